"""Case C46: an upstream that cannot prove who it is gets no secret, and nobody goes round it.

One service with a rule for each kind of certificate. Answers: test_case_inject_answers.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from tests.end_to_end.case_parts import Refusal, refusal, write_config
from tests.support.byte_stream import End
from tests.support.certificates import CertificateAuthority, Leaf, server_context
from tests.support.dns_stub import DnsStub
from tests.support.http import request_bytes
from tests.support.origins import EarlyCloseOrigin, EchoOrigin, ResetOrigin, SinkOrigin, closed_port
from tests.support.provider import Provider
from tests.support.service import Service

SECRET = "sk-CANARY-123"
NOT_VERIFIED = Refusal(502, "upstream-tls")
RULE = """
[[inject]]
name = "{name}"
host = "{name}.example"
upstream_port = {port}
secret = "env:SECRET"
"""


def host(name: str) -> str:
    return f"{name}.example"


LEAVES: dict[str, Callable[[CertificateAuthority, str], Leaf]] = {
    "selfsigned": lambda ca, name: ca.self_signed(name),
    "wrongname": lambda ca, name: ca.wrong_name(),
    "sibling": lambda ca, name: ca.leaf("other.example"),
    "wildabove": lambda ca, name: ca.leaf("*.sibling.example"),
    "byaddress": lambda ca, name: ca.leaf("127.0.0.1"),
    "expired": lambda ca, name: ca.expired(name),
    "tooearly": lambda ca, name: ca.not_yet_valid(name),
    "foreign": lambda ca, name: ca.foreign(name),
}


@dataclass(slots=True)
class World:
    service: Service
    providers: dict[str, Provider]
    plain: EarlyCloseOrigin  # HTTP without TLS, where the rule says TLS

    def ask(self, name: str) -> Refusal:
        return refusal(self.service, request_bytes("GET", f"http://{host(name)}/"))


@pytest.fixture(scope="module")
def world(ca: CertificateAuthority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with ExitStack() as stack:
        dns = stack.enter_context(DnsStub())
        shown = {name: make(ca, host(name)) for name, make in LEAVES.items()}
        contexts = {name: server_context(leaf) for name, leaf in shown.items()}
        contexts["good"] = server_context(ca.leaf(host("good")))
        providers = {name: stack.enter_context(Provider(tls=tls)) for name, tls in contexts.items()}
        ports = {name: provider.port for name, provider in providers.items()}
        plain = stack.enter_context(EarlyCloseOrigin(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
        ports["plain"] = plain.port
        for name, origin in (("silent", SinkOrigin), ("resets", ResetOrigin), ("echoes", EchoOrigin)):
            ports[name] = stack.enter_context(origin()).port
        ports["refuses"] = stack.enter_context(closed_port())
        ports["missing"] = 9
        ports["blackhole"] = 9
        for name in ports.keys() - {"missing", "blackhole"}:
            dns.add(host(name), "127.0.0.1")
        dns.black_hole(host("blackhole"))
        # A port of its own for the client, so that it lies inward by an entry for exactly that.
        inward = ", ".join(f'"{host(name)}:80"' for name in ports)
        rules = "".join(RULE.format(name=name, port=port) for name, port in ports.items())
        config = f"allow_private = [{inward}]\nconnect_timeout = 1\n" + rules
        path = write_config(tmp_path_factory.mktemp("upstreams"), config)
        env = {"SECRET": SECRET, "SSL_CERT_FILE": str(ca.pem_path)}
        service = Service("--config", path, "--resolver", dns.address, env=env)
        yield World(stack.enter_context(service), providers, plain)


@pytest.mark.parametrize("name", LEAVES)
def test_a_wrong_certificate_is_502_and_the_secret_is_never_sent(world: World, name: str) -> None:
    assert world.ask(name) == NOT_VERIFIED
    provider = world.providers[name]
    provider.wait_for_connections(1)
    provider.wait_for_closed()
    assert provider.octets_received == 0
    assert len(provider.connections) == 1  # no second try, none on another port or without TLS


def test_an_upstream_without_tls_is_502_and_sees_a_hello_alone(world: World) -> None:
    assert world.ask("plain") == NOT_VERIFIED
    assert world.plain.wait_for_end() is not End.OPEN
    assert world.plain.received()[:1] == b"\x16"
    assert SECRET.encode() not in world.plain.received()
    assert world.plain.connections_accepted == 1


def test_the_log_names_the_cause(world: World) -> None:
    for name, cause in (("expired", "expired"), ("wrongname", "match"), ("selfsigned", "self")):
        answer = world.service.request(request_bytes("GET", f"http://{host(name)}/"))
        assert cause in answer.json()["reason"].lower(), (name, answer.json()["reason"])
        assert answer.json()["reason"] in world.service.stderr.text or cause in world.service.stderr.text
    assert SECRET not in world.service.stderr.text


def test_a_right_certificate_is_taken(world: World) -> None:
    assert world.service.request(request_bytes("GET", "http://good.example/")).status == 404
    assert world.providers["good"].requests[0].value("Authorization") == SECRET
    world.providers["good"].drain()


def test_upstreams_that_do_not_shake_hands(world: World) -> None:
    assert world.ask("resets") == NOT_VERIFIED
    assert world.ask("echoes") == NOT_VERIFIED
    begun = time.monotonic()
    assert world.ask("silent") == Refusal(504, "upstream-timeout")
    assert time.monotonic() - begun < 3  # the connect time, 1 s, covers the handshake


def test_upstreams_that_are_not_there(world: World) -> None:
    assert world.ask("refuses") == Refusal(502, "upstream-unreachable")
    assert world.ask("missing") == Refusal(502, "upstream-unreachable")
    assert world.ask("blackhole") == Refusal(504, "upstream-timeout")


def test_a_rules_host_that_lies_inward_gets_no_secret(
    start_service: Callable[..., Service], dns: DnsStub, ca: CertificateAuthority
) -> None:
    """Without an entry that opts in: address rules hold for rules as well."""
    with Provider(tls=server_context(ca.leaf("api.example"))) as provider:
        args = ("--inject-host", "api.example", "--inject-secret-env", "SECRET", "--resolver", dns.address)
        env = {"SECRET": SECRET, "SSL_CERT_FILE": str(ca.pem_path)}
        service = start_service(
            *args, "--inject-port", str(provider.port), "--deny", "denied.example", env=env
        )
        for address in ("127.0.0.1", "10.0.0.1", "::1", "169.254.169.254", "::ffff:127.0.0.1"):
            dns.add("api.example", address, ttl=0)
            answer = refusal(service, request_bytes("GET", "http://api.example/"))
            assert answer == Refusal(403, "blocked-by-address"), address
        assert provider.connections == []


def test_a_deny_entry_wins_over_a_rule(start_service: Callable[..., Service], dns: DnsStub) -> None:
    args = ("--inject-host", "api.example", "--inject-secret-env", "SECRET", "--resolver", dns.address)
    service = start_service(*args, "--deny", "api.example", env={"SECRET": SECRET})
    for asked in (request_bytes("GET", "http://api.example/"), b"CONNECT api.example:80 HTTP/1.1\r\n\r\n"):
        assert refusal(service, asked) == Refusal(403, "blocked-by-denylist")
    assert dns.total_queries == 0


def test_a_rule_opens_no_tunnel(start_service: Callable[..., Service], dns: DnsStub) -> None:
    """Not to its own upstream, and an entry implies no credential."""
    with EchoOrigin() as origin:
        dns.add("api.example", "127.0.0.1")
        rule = ("--inject-host", "api.example", "--inject-secret-env", "SECRET")
        args = (*rule, "--inject-port", str(origin.port), "--resolver", dns.address)
        service = start_service(*args, env={"SECRET": SECRET})
        for target in (f"api.example:{origin.port}", "api.example:443", "other.example:80"):
            assert service.status(target) == 403
        assert origin.connections_accepted == 0
