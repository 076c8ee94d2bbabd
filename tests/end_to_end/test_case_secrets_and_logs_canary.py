"""Case C53: a secret is in no output of any kind, whatever goes wrong.

Every byte that leaves the process is searched, in all forms that a reader could turn back. Verbs, and
what a secret may be: test_case_secrets_and_logs_values.py.
"""

from __future__ import annotations

import base64
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.end_to_end.canaries import CANARIES, leaks
from tests.end_to_end.case_parts import client_hello, write_config
from tests.support.answers import (
    abort,
    chunk,
    close,
    echo,
    echo_gzip,
    fixed,
    head,
    nonsense,
    play,
    read_body,
    reply_with,
    reset,
    torn_length,
)
from tests.support.byte_stream import connect, read_until_end
from tests.support.certificates import CertificateAuthority, server_context
from tests.support.conversation import Answer
from tests.support.dns_stub import DnsStub
from tests.support.exchange import Exchange
from tests.support.http import request_bytes
from tests.support.origins import EchoOrigin, ResetOrigin, closed_port
from tests.support.provider import Provider
from tests.support.service import Service


def test_the_search_finds_every_form() -> None:
    token = CANARIES["CLIENT_TOKEN"].encode()
    for shown in (
        token,
        base64.b64encode(b"user:" + token),
        base64.b64encode(b"x" + token),
        token.hex().encode(),
        repr(token).encode(),
    ):
        assert leaks(b"before " + shown + b" behind"), shown
    assert not leaks(b'{"kind":"decision","target":"sk-canary.test:443"}')


CONFIG = """
allow_private = ["{inward}"]
connect_timeout = 1
[[allow]]
host = "localhost:*"
[[inject]]
name = "api"
host = "api.example"
upstream_port = {port}
format = "Bearer {{secret}}"
secret = "env:SECRET"
[[inject]]
name = "bad"
host = "bad.example"
upstream_port = {bad_port}
secret = "env:SECRET"
[[inject]]
name = "refused"
host = "refused.example"
upstream_port = {closed_port}
secret = "env:SECRET"
[[inject]]
name = "missing"
host = "missing.example"
secret = "env:SECRET"
[[client]]
name = "build"
token = "env:CLIENT_TOKEN"
[control]
token = "env:CONTROL_TOKEN"
[limits]
first_byte_timeout_s = 1
"""
BASIC = base64.b64encode(f"me:{CANARIES['CLIENT_TOKEN']}".encode()).decode()
BEARER = [("Proxy-Authorization", f"Bearer {CANARIES['CLIENT_TOKEN']}")]


class World:
    """One service with three secrets, and a collector of all that anybody gets to see."""

    def __init__(self, service: Service, provider: Provider, folder: Path) -> None:
        self.service = service
        self.provider = provider
        self.folder = folder

    def send(self, octets: bytes, control: bool = False) -> bytes:
        port = self.service.control_port if control else self.service.proxy_port
        with connect(port) as sock:
            sock.sendall(octets)
            return read_until_end(sock, 2)[0]

    def get(self, path: str = "/", host: str = "api.example") -> bytes:
        headers = [*BEARER, ("Connection", "close")]
        return self.send(request_bytes("GET", f"http://{host}{path}", headers))


@pytest.fixture
def world(shared: World) -> Iterator[World]:
    yield shared
    shared.service.close_sockets()
    shared.provider.drain()


@pytest.fixture(scope="module")
def shared(ca: CertificateAuthority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("canary")
    good, bad = server_context(ca.leaf("api.example")), server_context(ca.expired("bad.example"))
    with DnsStub() as dns, Provider(tls=good) as provider, Provider(tls=bad) as liar, closed_port() as closed:
        for name in ("api.example", "bad.example", "refused.example"):
            dns.add(name, "127.0.0.1")
        names = ("api.example:80", "bad.example:80", "refused.example:80")
        ports = {"port": provider.port, "bad_port": liar.port, "closed_port": closed}
        path = write_config(folder, CONFIG.format(inward='", "'.join(names), **ports))
        records = ("--audit", str(folder / "audit"), "--record-requests", str(folder / "requests"))
        # asyncio's debug mode shows arguments of callbacks and tracebacks of tasks.
        env = {**CANARIES, "SSL_CERT_FILE": str(ca.pem_path), "PYTHONASYNCIODEBUG": "1"}
        args = ("--config", path, "--resolver", dns.address, "-v", *records)
        with Service(*args, control=True, env=env) as service:
            yield World(service, provider, folder)


def everything_shown(world: World) -> dict[str, bytes]:
    shown = {
        "stdout": world.service.stdout.text.encode(),
        "stderr": world.service.stderr.text.encode(),
        "audit": (world.folder / "audit").read_bytes(),
        "requests": (world.folder / "requests").read_bytes(),
    }
    for name in ("cmdline", "environ", "comm", "status", "limits", "maps"):
        path = Path(f"/proc/{world.service.pid}/{name}")
        try:
            shown[name] = path.read_bytes()
        except OSError:  # not Linux, or not root: nobody can look
            continue
    return shown


def until_hangup(exchange: Exchange) -> None:
    exchange.await_hangup()
    exchange.close()


def upstream_answers() -> dict[str, Answer]:
    secret = CANARIES["SECRET"]
    echoing = f"HTTP/1.1 2xx {secret}\r\n{secret}: {secret}\r\n\r\n".encode()
    return {
        "/echo": echo(),
        "/gzip": echo_gzip(),
        "/reset": reset(),
        "/reset-in-body": play(read_body, head(200, [("Content-Length", "9")]) + b"a", abort),
        "/torn": torn_length(secret.encode()[:9], declared=100),
        "/nonsense": nonsense(secret.encode() * 3),
        "/bad-status": nonsense(echoing),
        "/bad-header": nonsense(b"HTTP/1.1 200 OK\r\n" + secret.encode() + b"\r\n\r\n"),
        "/bad-length": nonsense(f"HTTP/1.1 200 OK\r\nContent-Length: {secret}\r\n\r\n".encode()),
        "/bad-coding": nonsense(f"HTTP/1.1 200 OK\r\nTransfer-Encoding: {secret}\r\n\r\n".encode()),
        "/bad-chunk": play(
            read_body, head(200, [("Transfer-Encoding", "chunked")]) + secret.encode() + b"\r\n", close
        ),
        "/chunk-extension": play(
            read_body,
            head(200, [("Transfer-Encoding", "chunked")]) + b"1;x=" + secret.encode() + b"\r\na\r\n0\r\n\r\n",
        ),
        "/other-coding": fixed(secret.encode(), headers=[("Content-Encoding", secret)]),
        "/reason": fixed(b"", 500, reason=secret),
        "/header": reply_with(lambda r: fixed(b"", headers=[("X-Echo", r.value("Authorization") or "")])),
        "/body": fixed(b"a" * 10_000 + secret.encode() + b"b" * 10_000),
        "/chunks": play(
            read_body,
            head(200, [("Transfer-Encoding", "chunked")]),
            *(chunk(secret.encode()[n : n + 1]) for n in range(len(secret))),
            b"0\r\n\r\n",
        ),
        "/silence": play(read_body, until_hangup),
    }


def test_no_answer_of_an_upstream_brings_the_secret_back(world: World) -> None:
    for path, answer in upstream_answers().items():
        world.provider.on(path, answer)
        assert leaks(world.get(path)) == [], path
    post = request_bytes("POST", "http://api.example/echo", [*BEARER, ("Connection", "close")], b"a body")
    assert leaks(world.send(post)) == []
    assert world.provider.requests[0].value("Authorization") == f"Bearer {CANARIES['SECRET']}"


def test_no_failure_shows_a_secret(world: World) -> None:
    answers = [world.get("/", host) for host in ("bad.example", "refused.example", "missing.example")]
    assert [answer.split(b" ")[1] for answer in answers] == [b"502"] * 3
    with_token = f"Proxy-Authorization: Basic {BASIC}\r\n".encode()
    asked = [
        b"GET http://api.example/ HTTP/1.1\r\n" + with_token + b"bad header\r\n\r\n",
        b"GET http://api.example/\x00 HTTP/1.1\r\n" + with_token + b"\r\n",
        b"GET http://other.example/ HTTP/1.1\r\n" + with_token + b"\r\n",
        b"POST http://api.example/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + with_token + b"\r\n",
        b"CONNECT evil.test:443 HTTP/1.1\r\n" + with_token + b"\r\n",
        b"CONNECT localhost:1 HTTP/1.1\r\n" + with_token + b"\r\n",
        b"CONNECT :443 HTTP/1.1\r\n" + with_token + b"\r\n",
        b"CONNECT evil.test:443 HTTP/1.1\r\n" + with_token[:-4] + b"AAAA\r\n\r\n",
        b"CONNECT evil.test:443 HTTP/1.1\r\n" + with_token * 2 + b"\r\n",
        b"CONNECT evil.test:443 HTTP/1.1\r\nX: " + with_token * 500 + b"\r\n",
        with_token + b"\r\n",
        client_hello("evil.test"),
    ]
    with ResetOrigin() as resets, EchoOrigin() as echoes:
        for origin in (resets, echoes):
            target = f"CONNECT localhost:{origin.port} HTTP/1.1\r\n".encode()
            asked.append(target + with_token + b"\r\nx")
        answers += [world.send(octets) for octets in asked]
    assert [leaks(answer) for answer in answers] == [[]] * len(answers)


def test_the_control_api_shows_no_secret(world: World) -> None:
    token = CANARIES["CONTROL_TOKEN"]
    answers = []
    for header in (f"Bearer {token}", f"bearer {token}", f"Basic {token}", f"Bearer {token}x"):
        for call in ("GET /status", f"GET /grants?token={token}", f"GET /no?{token}", "DELETE /allow"):
            lines = f"{call} HTTP/1.1\r\nHost: localhost:{world.service.control_port}\r\n"
            octets = f"{lines}Authorization: {header}\r\nConnection: close\r\n\r\n".encode()
            answers.append(world.send(octets, control=True))
    assert all(not leaks(answer) for answer in answers)


def test_nothing_that_the_process_shows_holds_a_secret(world: World) -> None:
    world.get("/echo")
    found = {where: leaks(octets) for where, octets in everything_shown(world).items()}
    assert {where: hits for where, hits in found.items() if hits} == {}
    assert world.service.is_running()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux only")
def test_the_process_cannot_be_looked_into(world: World) -> None:
    proc = Path(f"/proc/{world.service.pid}")
    limits = (proc / "limits").read_text()
    core = next(line for line in limits.splitlines() if line.startswith("Max core file size"))
    assert core.split()[4:6] == ["0", "0"]
    # Not dumpable: its entries belong to root, whoever runs it, so nobody of the same user gets in.
    assert (proc / "environ").stat().st_uid == 0
    for name in ("audit", "requests"):
        assert (world.folder / name).stat().st_mode & 0o777 == 0o600


def test_an_end_in_the_middle_of_it_shows_no_secret(
    ca: CertificateAuthority, dns: DnsStub, start_provider: Callable[..., Provider], tmp_path: Path
) -> None:
    provider = start_provider("api.example")
    dns.add("api.example", "127.0.0.1")
    provider.otherwise(play(read_body, head(200, [("Content-Length", "9")]) + b"a", until_hangup))
    rule = f'[[inject]]\nname = "api"\nhost = "api.example"\nupstream_port = {provider.port}\n'
    limits = "\n[limits]\ndrain_timeout_s = 0.3\n"
    text = f'allow_private = ["api.example:80"]\n{rule}secret = "env:SECRET"{limits}'
    args = ("--config", write_config(tmp_path, text), "--resolver", dns.address, "-v")
    env = {"SECRET": CANARIES["SECRET"], "SSL_CERT_FILE": str(ca.pem_path), "PYTHONASYNCIODEBUG": "1"}
    with Service(*args, env=env) as service:
        sock = service.open()
        sock.sendall(request_bytes("GET", "http://api.example/"))
        provider.wait_for_requests(1)
        service.signal(signal.SIGTERM)
        assert service.wait() == 0
        assert leaks(service.stderr.text + service.stdout.text) == []
