"""Contract sections 1-3: who is a client, the data port as a unix socket, and how many there may be.

Client tokens and what is granted to one client alone; limits of tunnels and of descriptors.
"""

from __future__ import annotations

import base64
import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Start
from tests.end_to_end.case_inject import SECRET, open_injecting
from tests.end_to_end.case_parts import (
    NO_SUCH_NAME,
    NOT_LISTED,
    Refusal,
    connect_head,
    decisions,
    refusal,
    write_config,
)
from tests.end_to_end.programs import system_program
from tests.support.byte_stream import read_exactly, read_until, read_until_end
from tests.support.certificates import CertificateAuthority
from tests.support.deadline import eventually
from tests.support.dns_stub import DnsStub
from tests.support.http import request_bytes
from tests.support.origins import EchoOrigin
from tests.support.program import run_cli
from tests.support.service import SERVE, TOKEN, Service

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="limits are looked at in /proc, Linux only")
UNKNOWN = Refusal(407, "client-authentication-required")


def basic(token: str, user: str = "me") -> tuple[str, str]:
    return "Proxy-Authorization", "Basic " + base64.b64encode(f"{user}:{token}".encode()).decode()


def bearer(token: str) -> tuple[str, str]:
    return "Proxy-Authorization", f"Bearer {token}"


def asked(service: Service, target: str, *headers: tuple[str, str]) -> Refusal:
    return refusal(service, request_bytes("CONNECT", target, headers))


# Client tokens.


def test_without_its_token_a_client_gets_407(start_service: Callable[..., Service], dns: DnsStub) -> None:
    args = ("--allow", "ok.example", "--client-token-env", "CLIENT", "--resolver", dns.address)
    service = start_service(*args, env={"CLIENT": "client-token"})
    answer = service.connect("ok.example:443")
    assert (answer.status, answer.value("Proxy-Authenticate")) == (407, 'Basic realm="egress"')
    right = basic("client-token")
    for headers in (
        (),
        (basic("client-tokenx"),),
        (basic(""),),
        (basic("me", "client-token"),),
        (bearer("client-tokenx"),),
        (("Proxy-Authorization", "client-token"),),
        (("Proxy-Authorization", "Basic client-token"),),
        (("Proxy-Authorization", "Basic " + base64.b64encode(b"client-token").decode()),),
        (("Proxy-Authorization", "Digest " + right[1].split()[1]),),
        (("Authorization", right[1]),),
        (right, right),
        (right, basic("wrong")),
    ):
        for target in ("ok.example:443", "evil.test:443"):
            assert asked(service, target, *headers) == UNKNOWN, headers
    assert dns.total_queries == 0
    for header in (
        right,
        basic("client-token", ""),
        basic("client-token", "a label"),
        bearer("client-token"),
    ):
        assert asked(service, "ok.example:443", header) == NO_SUCH_NAME
        assert asked(service, "evil.test:443", header) == NOT_LISTED
    assert asked(service, "bad..name:443") == Refusal(400, "bad-request")  # the target is looked at first
    logged = decisions(service, 33)
    assert "a label" in {record["label"] for record in logged}
    assert {record["client"] for record in logged} == {"anonymous"}


ENTRIES = """
allow = ["shared.example", {host = "built.example", client = "build"}]
deny = [{host = "denied.example", client = "build"}]
"""
CLIENTS = """
[[client]]
name = "build"
token = "env:BUILD"
[[client]]
name = "chat"
token = "env:CHAT"
"""
TOKENS = {"BUILD": "token-of-build", "CHAT": "token-of-chat"}


def test_entries_and_grants_may_be_for_one_client(
    start_service: Callable[..., Service], dns: DnsStub, tmp_path: Path
) -> None:
    config = write_config(tmp_path, ENTRIES + CLIENTS)
    service = start_service("--config", config, "--resolver", dns.address, token=TOKEN, env=TOKENS)
    build, chat = bearer("token-of-build"), basic("token-of-chat", "build")  # a label names nobody
    assert asked(service, "shared.example:443") == UNKNOWN
    for header in (build, chat):
        assert asked(service, "shared.example:443", header) == NO_SUCH_NAME
    assert asked(service, "built.example:443", build) == NO_SUCH_NAME
    assert asked(service, "built.example:443", chat) == NOT_LISTED
    service.allow("granted.example", client="chat", ttl_s=60)
    assert asked(service, "granted.example:443", chat) == NO_SUCH_NAME
    assert asked(service, "granted.example:443", build) == NOT_LISTED
    service.allow("denied.example")
    assert asked(service, "denied.example:443", build) == Refusal(403, "blocked-by-denylist")
    assert asked(service, "denied.example:443", chat) == NO_SUCH_NAME
    for name in ("nobody", "anonymous", "Build", ""):
        answer = service.control("POST", "/allow", {"host": "x.example", "client": name})
        assert answer.status == 400, name
    assert {record["client"] for record in decisions(service, 9)} == {"anonymous", "build", "chat"}


def test_a_rule_asks_for_the_token_and_does_not_pass_it_on(ca: CertificateAuthority, tmp_path: Path) -> None:
    with open_injecting(
        ca, tmp_path, config='[[client]]\nname = "a"\ntoken = "env:OTHER_SECRET"\n'
    ) as inject:
        inject.begin()
        token = bearer("second-secret-of-the-tests")
        assert inject.refused(request_bytes("GET", "http://api.example/")) == UNKNOWN
        assert inject.refused(request_bytes("GET", "http://api.example/", [bearer("x")])) == UNKNOWN
        assert inject.refused(request_bytes("CONNECT", "api.example:80")) == UNKNOWN
        assert inject.ask(request_bytes("GET", "http://api.example/", [token])).status == 200
        assert b"second-secret" not in inject.only_request.raw_head
        sock = inject.service.open()
        sock.sendall(request_bytes("CONNECT", "api.example:80", [token]))
        assert read_until(sock, b"\r\n\r\n").startswith(b"HTTP/1.1 200 ")
        assert inject.ask(request_bytes("GET", "/", [("Host", "api.example")]), sock).status == 200
        assert inject.requests[1].value("Authorization") == f"Bearer {SECRET}"
        inject.finish()


def test_a_bind_beyond_loopback_needs_tokens_and_consent() -> None:
    consent = ("--dangerously-bind-any",)
    token = ("--client-token-env", "CLIENT")
    for bind in ("0.0.0.0:0", "[::]:0", "192.0.2.1:0"):
        for args in ((), consent, token):
            done = run_cli("serve", "--bind", bind, "--allow", "a.example", *args, env={"CLIENT": "x"})
            assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), (bind, args)
        if bind != "0.0.0.0:0":
            break  # a process each: the other forms are in tests/egress_proxy/cli


# The data port as a unix socket.


@pytest.fixture
def unix_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("u") / "s"


def over_unix(path: Path, octets: bytes) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(5)
    sock.connect(str(path))
    sock.sendall(octets)
    return sock


def test_the_unix_socket_is_the_same_port_for_its_owner_alone(unix_path: Path) -> None:
    with EchoOrigin() as origin:
        with Service("--allow", origin.address, "--listen-unix", str(unix_path)) as service:
            assert stat.S_IMODE(unix_path.stat().st_mode) == 0o600
            with over_unix(unix_path, connect_head(origin.address) + b"HELLO") as sock:
                assert read_until(sock, b"\r\n\r\n").startswith(b"HTTP/1.1 200 ")
                assert read_exactly(sock, 5) == b"HELLO"
            with over_unix(unix_path, connect_head("evil.test:443")) as sock:
                assert read_until_end(sock)[0].startswith(b"HTTP/1.1 403 ")
            assert service.status(origin.address) == 200  # and the TCP port is there besides
            assert {record["peer"] for record in decisions(service, 3)} > {"unix"}
        assert not unix_path.exists()


def test_a_stale_socket_is_replaced_and_a_living_or_foreign_one_is_not(unix_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(unix_path))
    with Service("--allow", "ok.example", "--listen-unix", str(unix_path)):
        with over_unix(unix_path, connect_head("evil.test:443")) as sock:
            assert read_until_end(sock)[0].startswith(b"HTTP/1.1 403 ")
        args = ("serve", "--bind", "127.0.0.1:0", "--allow", "ok.example", "--listen-unix")
        second = run_cli(*args, str(unix_path))
        assert (second.returncode in (1, 2), second.stdout, second.stderr.count("\n")) == (True, "", 1)
        with over_unix(unix_path, connect_head("evil.test:443")) as sock:  # the first one still has it
            assert read_until_end(sock)[0].startswith(b"HTTP/1.1 403 ")
    unix_path.write_text("a file of somebody's")
    refused = run_cli(*args, str(unix_path))
    assert (refused.returncode in (1, 2), refused.stdout) == (True, "")
    assert unix_path.read_text() == "a file of somebody's"


@pytest.mark.skipif(sys.platform != "linux", reason="SO_PEERCRED is Linux only")
def test_another_user_gets_no_answer_even_past_the_mode(start: Start) -> None:
    if os.geteuid() != 0:
        pytest.skip("another user's client needs root")
    folder = Path(start(tempfile.TemporaryDirectory(prefix="eg-")))
    folder.chmod(0o711)
    unix_path = folder / "s"
    with Service("--allow", "ok.example", "--listen-unix", str(unix_path)) as service:
        unix_path.chmod(0o777)
        done = subprocess.run(
            [system_program("socat"), "-t", "2", "-", f"UNIX-CONNECT:{unix_path}"],
            input=connect_head("evil.test:443"),
            capture_output=True,
            user=65534,
            timeout=20,
            check=False,
        )
        assert b"HTTP/" not in done.stdout
        assert b"Permission denied" not in done.stderr  # it did get as far as to us
        with over_unix(unix_path, connect_head("evil.test:443")) as sock:
            assert read_until_end(sock)[0].startswith(b"HTTP/1.1 403 ")
        assert len(decisions(service, 1)) == 1


# How many.


def test_tunnels_are_limited_in_all_and_per_client(
    start_service: Callable[..., Service], tmp_path: Path
) -> None:
    with EchoOrigin() as origin:
        limits = "[limits]\ntunnels = 5\ntunnels_per_client = 3\n"
        config = write_config(tmp_path, f'allow = ["{origin.address}"]\n{CLIENTS}{limits}')
        service = start_service("--config", config, env=TOKENS)
        build, chat = bearer("token-of-build"), bearer("token-of-chat")
        mine = [service.connect(origin.address, headers=[build]) for _ in range(4)]
        assert [answer.status for answer in mine] == [200, 200, 200, 503]
        assert (mine[3].error, mine[3].value("Retry-After") is not None) == ("too-many-tunnels", True)
        theirs = [service.connect(origin.address, headers=[chat]) for _ in range(3)]
        assert [answer.status for answer in theirs] == [200, 200, 503]
        mine[0].sock.close()
        eventually(lambda: service.connect(origin.address, headers=[chat]).status == 200, what="room again")


@linux_only
def test_with_few_descriptors_it_refuses_in_time_and_recovers() -> None:
    """Refused with 503 before accept fails; the control API and the log still work."""
    limited = ("sh", "-c", 'ulimit -n 160 && exec "$@"', "sh", *SERVE)
    with (
        EchoOrigin() as origin,
        Service("--allow", origin.address, program=limited, token=TOKEN) as service,
    ):
        answers = [service.connect(origin.address) for _ in range(60)]
        statuses = [answer.status for answer in answers]
        assert set(statuses) == {200, 503}
        assert statuses == sorted(statuses)
        full = answers[-1]
        assert (full.error, full.value("Retry-After") is not None) == ("too-many-tunnels", True)
        silent = [service.open() for _ in range(100)]  # clients who say nothing take no more either
        assert service.control("GET", "/status").json()["tunnels"]["open"] == statuses.count(200)
        tunnel = answers[0].sock
        tunnel.sendall(b"still here")
        assert read_exactly(tunnel, 10) == b"still here"
        for sock in (*silent, *(answer.sock for answer in answers)):
            sock.close()
        eventually(lambda: service.status(origin.address) == 200, what="room again")
        # The last of the others may still be on their way out.
        eventually(lambda: service.status("evil.test:443") == 403, what="the list holds as before")
