"""Case C32: on port 443 the TLS client must name the host that its CONNECT named.

Servers on port 443 are in a network namespace, or on this machine where that is not to be had. The
hellos are OpenSSL's own; the origin echoes them, so what reached it is seen to the byte.
"""

from __future__ import annotations

import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from tests.end_to_end.case_parts import client_hello, write_config
from tests.end_to_end.programs import system_program
from tests.support.answers import fixed
from tests.support.byte_stream import End, read_exactly, read_until_end
from tests.support.certificates import CertificateAuthority, server_context
from tests.support.deadline import eventually
from tests.support.dns_stub import DnsStub
from tests.support.http import read_response, request_bytes
from tests.support.netns import NetworkNamespace, unavailable
from tests.support.origins import BannerOrigin, EchoOrigin
from tests.support.provider import Provider
from tests.support.service import Service

ECHO, TLS, BANNER = "127.0.0.50", "127.0.0.51", "127.0.0.52"
ALLOW = (
    "--allow-private",
    "ok.example:*",
    "--allow-private",
    "tls.example",
    "--allow-private",
    "smtp.example",
)


class ThisMachine:
    """In place of a namespace, for whoever may have port 443 here: root, and most containers."""

    def entered(self) -> AbstractContextManager[None]:
        return nullcontext()


@pytest.fixture(scope="module")
def net() -> Iterator[NetworkNamespace | ThisMachine]:
    reason = unavailable()
    if reason is None:
        with NetworkNamespace() as namespace:
            yield namespace
        return
    try:
        with socket.socket() as probe:
            probe.bind((ECHO, 443))
    except OSError:
        pytest.skip(reason)
    yield ThisMachine()


@pytest.fixture(scope="module")
def names(net: NetworkNamespace | ThisMachine) -> Iterator[DnsStub]:
    with net.entered(), DnsStub() as stub:
        stub.add("ok.example", ECHO)
        stub.add("tls.example", TLS)
        stub.add("smtp.example", BANNER)
        yield stub


@pytest.fixture(scope="module")
def origin(net: NetworkNamespace | ThisMachine) -> Iterator[EchoOrigin]:
    with net.entered(), EchoOrigin(bind=ECHO, port=443) as echo:
        yield echo


@pytest.fixture(scope="module")
def running(net: NetworkNamespace | ThisMachine, names: DnsStub) -> Iterator[Service]:
    args = (*ALLOW, "--allow", f"{ECHO}:443", "--resolver", names.address, "-v")
    with net.entered(), Service(*args) as service:
        yield service


@pytest.fixture
def service(running: Service, net: NetworkNamespace | ThisMachine) -> Iterator[Service]:
    with net.entered():
        yield running
        running.close_sockets()


def many_protocols(size: int) -> list[str]:
    """Enough of them to make a hello as large as post-quantum keys may one day."""
    return [f"protocol-{n:06d}" for n in range(size // 16)]


def ended_without_a_byte(service: Service, origin: EchoOrigin, octets: bytes, target: str) -> None:
    """The tunnel ends, and the server has seen a connection and nothing else."""
    index = origin.connections_accepted
    tunnel = service.tunnel(target)
    tunnel.sendall(octets)
    received, end = read_until_end(tunnel)
    assert (received, end is not End.OPEN) == (b"", True)
    origin.wait_for_end(index)
    assert origin.received(index) == b""


def passed(service: Service, octets: bytes, target: str = "ok.example:443") -> None:
    tunnel = service.tunnel(target)
    tunnel.sendall(octets)
    assert read_exactly(tunnel, len(octets)) == octets


WRONG = {
    "another host": client_hello("evil.test"),
    "a name below": client_hello("a.ok.example"),
    "a name above": client_hello("example"),
    "a longer name": client_hello("ok.example.evil.test"),
    "another host, 20 KB": client_hello("evil.test", many_protocols(20_000)),
}


@pytest.mark.parametrize("hello", WRONG.values(), ids=WRONG.keys())
def test_a_hello_for_another_host_ends_the_tunnel_before_a_byte(
    service: Service, origin: EchoOrigin, hello: bytes
) -> None:
    ended_without_a_byte(service, origin, hello, "ok.example:443")


def test_the_end_is_recorded_as_a_mismatch(service: Service, origin: EchoOrigin) -> None:
    ended_without_a_byte(service, origin, client_hello("evil.test"), "ok.example:443")
    service.stderr.wait_for('"reason": "sni_mismatch"')


def test_a_wrong_name_does_not_pass_in_pieces_or_as_early_bytes(service: Service, origin: EchoOrigin) -> None:
    hello = client_hello("evil.test")
    index = origin.connections_accepted
    early = service.tunnel("ok.example:443", extra=hello)
    assert read_until_end(early)[0] == b""
    origin.wait_for_end(index)
    pieces = service.tunnel("ok.example:443")
    for octet in hello[:-1]:
        pieces.sendall(bytes([octet]))
    pieces.sendall(hello[-1:])
    assert read_until_end(pieces)[0] == b""
    origin.wait_for_end(index + 1)
    assert (origin.received(index), origin.received(index + 1)) == (b"", b"")


RIGHT = {
    "the name": client_hello("ok.example"),
    "in capitals": client_hello("OK.EXAMPLE"),
    "20 KB": client_hello("ok.example", many_protocols(20_000)),
    "60 KB": client_hello("ok.example", many_protocols(60_000)),
    "no name": client_hello(None),
}


@pytest.mark.parametrize("hello", RIGHT.values(), ids=RIGHT.keys())
def test_a_hello_for_the_host_passes_whole(service: Service, hello: bytes) -> None:
    passed(service, hello)
    passed(service, hello, "OK.example.:443")


def test_a_hello_in_pieces_of_a_byte_passes_unchanged(service: Service) -> None:
    hello = client_hello("ok.example")
    tunnel = service.tunnel("ok.example:443", extra=hello[:1])
    for octet in hello[1:]:
        tunnel.sendall(bytes([octet]))
    tunnel.sendall(b"more")
    assert read_exactly(tunnel, len(hello) + 4) == hello + b"more"


def test_a_hello_split_over_records_is_read(service: Service, origin: EchoOrigin) -> None:
    def split(hello: bytes, at: int) -> bytes:
        body = hello[5:]
        parts = (body[:at], body[at:])
        return b"".join(hello[:3] + len(part).to_bytes(2) + part for part in parts)

    for at in (1, 4, 50):
        passed(service, split(client_hello("ok.example"), at))
        ended_without_a_byte(service, origin, split(client_hello("evil.test"), at), "ok.example:443")


def test_a_record_in_front_of_the_hello_does_not_hide_it(service: Service, origin: EchoOrigin) -> None:
    """Servers skip an alert, so a proxy that takes it for no TLS is passed by."""
    for record in (b"\x15\x03\x01\x00\x02\x01\x00", b"\x14\x03\x03\x00\x01\x01"):
        ended_without_a_byte(service, origin, record + client_hello("evil.test"), "ok.example:443")


OTHER = {
    "SSH": b"SSH-2.0-test\r\n",
    "HTTP": b"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n",
    "one byte": b"x",
    "a zero": b"\x00",
}


@pytest.mark.parametrize("octets", OTHER.values(), ids=OTHER.keys())
def test_other_first_bytes_pass_and_are_noted(service: Service, octets: bytes) -> None:
    before = service.stderr.text.count('"kind": "notice"')
    passed(service, octets)
    eventually(lambda: service.stderr.text.count('"kind": "notice"') > before, what="a note of it")


def test_what_only_begins_like_a_hello_does_not_pass(service: Service, origin: EchoOrigin) -> None:
    broken = b"\x16\x03\x01\x00\x10" + b"\xff" * 16
    index = origin.connections_accepted
    tunnel = service.tunnel("ok.example:443")
    tunnel.sendall(broken + b"GET / HTTP/1.1\r\n\r\n")
    assert read_until_end(tunnel, 0.5)[0] in (b"", broken + b"GET / HTTP/1.1\r\n\r\n")
    endless = service.tunnel("ok.example:443")
    endless.sendall((b"\x16\x03\x01\x40\x00" + b"\x01\x00\xff\xff" + b"\x00" * 16_380) * 8)
    read_until_end(endless, 0.5)
    assert origin.received_count(index + 1) in (0, 8 * 16_389)


def test_other_ports_and_literal_addresses(service: Service, origin: EchoOrigin) -> None:
    """The check is for port 443; a client cannot name an address, but it can name something else."""
    with EchoOrigin(bind=ECHO, port=8443):
        passed(service, client_hello("evil.test"), "ok.example:8443")
    passed(service, client_hello(None), f"{ECHO}:443")
    ended_without_a_byte(service, origin, client_hello("evil.test"), f"{ECHO}:443")


def test_a_server_may_speak_first_on_443(service: Service) -> None:
    with BannerOrigin(bind=BANNER, port=443) as smtp:
        tunnel = service.tunnel("smtp.example:443")
        assert read_exactly(tunnel, len(smtp.banner)) == smtp.banner
        tunnel.sendall(client_hello("evil.test"))
        assert read_until_end(tunnel)[0] == b""
        assert smtp.wait_for_end() is not End.OPEN
        assert smtp.received() == b""


def test_a_hello_that_does_not_end_in_time_ends_the_tunnel(
    net: NetworkNamespace | ThisMachine, names: DnsStub, origin: EchoOrigin, tmp_path: Path
) -> None:
    config = write_config(tmp_path, "[limits]\nhead_timeout_s = 1")
    with net.entered(), Service(*ALLOW, "--resolver", names.address, "--config", config) as service:
        index, begun = origin.connections_accepted, time.monotonic()
        tunnel = service.tunnel("ok.example:443", extra=client_hello("ok.example")[:-1])
        assert read_until_end(tunnel)[1] is not End.OPEN
        assert time.monotonic() - begun < 3.5
        assert origin.wait_for_end(index) is not End.OPEN
        assert origin.received(index) == b""


def test_the_stricter_settings(
    net: NetworkNamespace | ThisMachine, names: DnsStub, origin: EchoOrigin, tmp_path: Path
) -> None:
    config = write_config(tmp_path, "[tls]\nrequire_sni = true\nonly_tls_on_443 = true")
    with net.entered(), Service(*ALLOW, "--resolver", names.address, "--config", config) as service:
        passed(service, client_hello("ok.example"))
        for octets in (client_hello(None), client_hello("evil.test"), *OTHER.values()):
            ended_without_a_byte(service, origin, octets, "ok.example:443")


def test_the_check_can_be_switched_off(
    net: NetworkNamespace | ThisMachine, names: DnsStub, origin: EchoOrigin
) -> None:
    with net.entered(), Service(*ALLOW, "--no-sni-check", "--resolver", names.address) as service:
        passed(service, client_hello("evil.test"))
        passed(service, client_hello(None))


def test_real_handshakes(service: Service, ca: CertificateAuthority) -> None:
    """A Python client and openssl s_client: the right name gets through to the server, no other does."""
    leaf = ca.leaf("tls.example", "evil.test")
    with Provider(tls=server_context(leaf), bind=TLS, port=443) as provider:
        provider.otherwise(fixed(b"hello"))
        context = ca.client_context()
        with context.wrap_socket(service.tunnel("tls.example:443"), server_hostname="tls.example") as secure:
            secure.sendall(request_bytes("GET", "/", [("Host", "tls.example")]))
            assert read_response(secure).body == b"hello"
        with pytest.raises((ssl.SSLError, ConnectionError, EOFError)):
            context.wrap_socket(service.tunnel("tls.example:443"), server_hostname="evil.test")
        provider.wait_for_connections(2)
        assert [c.server_name for c in provider.connections] == ["tls.example", None]
        for name, code in (("tls.example", 0), ("evil.test", 1)):
            argv = [
                system_program("openssl"),
                "s_client",
                "-proxy",
                f"127.0.0.1:{service.proxy_port}",
                "-brief",
            ]
            argv += ["-connect", "tls.example:443", "-servername", name, "-CAfile", str(ca.pem_path)]
            done = subprocess.run(
                [*argv, "-servername", name], input=b"", capture_output=True, timeout=20, check=False
            )
            assert done.returncode == code, done.stderr
        provider.wait_for_connections(4)
        assert [c.server_name for c in provider.connections][2:] == ["tls.example", None]
