"""The drop-in contract: what hosts of the earlier steerable-egress-proxy rely on, in one file.

Their argv, the readiness line, status lines to the byte, POST /allow, exit codes, secrets by name only.
Changing an expectation here breaks somebody's host. More of each subject is in the other files.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import Start, StartProvider
from tests.support import answers
from tests.support.byte_stream import connect, read_exactly
from tests.support.certificates import CertificateAuthority
from tests.support.dns_stub import DnsStub
from tests.support.http import request_bytes
from tests.support.origins import EchoOrigin, StuckOrigin, closed_port
from tests.support.program import PROGRAM, run_cli
from tests.support.provider import Provider
from tests.support.service import TOKEN, Service, ServiceDidNotStart

SECRET = "Bearer sk-held-by-the-proxy-alone"
SECRET_VARIABLE = "STEERABLE_EGRESS_SECRET"
TOKEN_VARIABLE = "STEERABLE_EGRESS_CONTROL_TOKEN"
JSON = {"Content-Type": "application/json"}
# The script that pip writes for `steerable-egress-proxy`, also where the project is not installed.
SCRIPT = "import sys; from egress_proxy.cli.main import main_drop_in; sys.exit(main_drop_in())"
_INSTALLED = Path(sys.executable).with_name("steerable-egress-proxy")
FORMS = {
    "steerable-egress-proxy": (str(_INSTALLED),) if _INSTALLED.exists() else (sys.executable, "-c", SCRIPT),
    "python -m egress_proxy": PROGRAM,
    "egress-proxy serve": (*PROGRAM, "serve"),
}


@pytest.fixture(scope="module")
def origin() -> Iterator[EchoOrigin]:
    with EchoOrigin() as echo:
        yield echo


@pytest.fixture(scope="module")
def dead_end() -> Iterator[tuple[str, str]]:
    """A target that refuses connections, and one where dialling hangs."""
    with closed_port() as port, StuckOrigin() as stuck:
        yield f"127.0.0.1:{port}", stuck.address


@pytest.fixture(scope="module")
def host(origin: EchoOrigin, dead_end: tuple[str, str]) -> Iterator[Service]:
    """A service as hosts start it; `program` leaves out the verb. No name here has an address."""
    listed = (origin.address, *dead_end, "listed.example", "ONE.example:8443", "[::1]:9")
    allow = [word for entry in listed for word in ("--allow", entry)]
    with Service(*allow, "--connect-timeout", "2", token=TOKEN, program=PROGRAM) as service:
        yield service


def inject_flags(name: str, port: int) -> tuple[str, ...]:
    return (
        *("--inject-host", name, "--inject-secret-env", SECRET_VARIABLE),
        *("--inject-header", "Authorization", "--inject-scheme", "http", "--inject-port", str(port)),
    )


# Argv, readiness and the end.


@pytest.mark.parametrize("form", FORMS)
def test_the_argv_of_hosts_starts_the_service(
    form: str, origin: EchoOrigin, tmp_path: Path, start_service: Callable[..., Service]
) -> None:
    service = start_service(
        *("--allow", origin.address, "--allow", "api.deepseek.com", "--connect-timeout", "10"),
        *inject_flags("127.0.0.1", 9),
        *("--record-requests", str(tmp_path / "requests.jsonl")),
        *("--control-port", "0", "--control-token-env", TOKEN_VARIABLE),
        control=True,
        program=FORMS[form],
        env={SECRET_VARIABLE: SECRET, TOKEN_VARIABLE: TOKEN},
    )
    with service.tunnel(origin.address, b"hello") as tunnel:
        assert read_exactly(tunnel, 5) == b"hello"
    assert service.stop() == 0


def test_both_ports_accept_once_the_control_line_is_read(
    origin: EchoOrigin, start_service: Callable[..., Service]
) -> None:
    with closed_port() as port:
        pass  # free from now on
    service = start_service("--allow", origin.address, "--bind", f"127.0.0.1:{port}", token=TOKEN)
    for ready in (port, service.control_port):
        connect(ready).close()
    lines = [f"EGRESS_PROXY_PORT={port}", f"EGRESS_CONTROL_PORT={service.control_port}"]
    assert service.stdout.text.splitlines() == [*lines, f"EGRESS_ATTACH={service.attach_path}"]


def test_the_control_port_can_be_chosen(start_service: Callable[..., Service]) -> None:
    with closed_port() as port:
        pass
    service = start_service("--allow", "a.example", "--control-port", str(port), token=TOKEN)
    assert service.control_port == port


def test_without_a_token_variable_there_is_no_control_line(start_service: Callable[..., Service]) -> None:
    service = start_service("--allow", "a.example", "--control-port", "0")
    assert re.fullmatch(r"EGRESS_PROXY_PORT=\d+\nEGRESS_ATTACH=/.+\n", service.stdout.text)


# Status lines, to the byte.

LONG = b"CONNECT listed.example:443 HTTP/1.1\r\nX: " + b"x" * 16_384
STATUS_LINES = [
    (b"CONNECT other.example:443 HTTP/1.1", b"403 Forbidden; egress denied for other.example:443"),
    (b"CONNECT OTHER.Example.:443 HTTP/1.0", b"403 Forbidden; egress denied for other.example:443"),
    (b"CONNECT listed.example:8443 HTTP/1.1", b"403 Forbidden; egress denied for listed.example:8443"),
    (b"CONNECT one.example:443 HTTP/1.1", b"403 Forbidden; egress denied for one.example:443"),
    (b"CONNECT 198.51.100.7:443 HTTP/1.1", b"403 Forbidden; egress denied for 198.51.100.7:443"),
    (b"CONNECT [2001:DB8::1]:443 HTTP/1.1", b"403 Forbidden; egress denied for [2001:db8::1]:443"),
    (b"CONNECT 2001:db8::1:443 HTTP/1.1", b"403 Forbidden; egress denied for [2001:db8::1]:443"),
    (b"GET http://listed.example/ HTTP/1.1", b"405 Method Not Allowed"),
    (b"POST http://other.example/ HTTP/1.1", b"405 Method Not Allowed"),
    (b"GET / HTTP/1.1", b"405 Method Not Allowed"),
    (b"CONNECT listed.example HTTP/1.1", b"400 Bad Request"),
    (b"CONNECT listed.example:0 HTTP/1.1", b"400 Bad Request"),
    (b"CONNECT listed..example:443 HTTP/1.1", b"400 Bad Request"),
    (b"CONNECT user@listed.example:443 HTTP/1.1", b"400 Bad Request"),
    (b"CONNECT listed.example:443", b"400 Bad Request"),
    (b"hello", b"400 Bad Request"),
    (LONG, b"431 Request Header Fields Too Large"),
    (b"CONNECT listed.example:443 HTTP/1.1", b"502 Bad Gateway"),  # the name has no address
]


@pytest.mark.parametrize(("head", "status"), STATUS_LINES)
def test_a_refusal_has_exactly_this_status_line(head: bytes, status: bytes, host: Service) -> None:
    line, _, rest = host.raw(head + b"\r\n\r\n").partition(b"\r\n")
    assert line == b"HTTP/1.1 " + status
    lines, _, body = rest.partition(b"\r\n\r\n")
    headers = dict(line.decode().split(": ", 1) for line in lines.split(b"\r\n"))
    assert headers["Content-Length"] == str(len(body))
    assert headers["X-Proxy-Error"] == json.loads(body)["error"]
    assert ("Allow: CONNECT" in lines.decode()) is status.startswith(b"405")


def test_a_tunnel_is_answered_with_this_head_and_no_more(origin: EchoOrigin, host: Service) -> None:
    with host.open() as sock:
        sock.sendall(f"CONNECT {origin.address} HTTP/1.1\r\nHost: {origin.address}\r\n\r\nearly".encode())
        head = b"HTTP/1.1 200 Connection Established\r\n\r\n"
        assert read_exactly(sock, len(head) + 5) == head + b"early"


def test_a_target_that_cannot_be_dialled_is_502_or_504(host: Service, dead_end: tuple[str, str]) -> None:
    closed, stuck = dead_end
    assert host.connect(closed).status_line == "HTTP/1.1 502 Bad Gateway"
    assert host.connect(stuck, timeout_s=15).status_line == "HTTP/1.1 504 Gateway Timeout"


@pytest.mark.parametrize(("port", "status"), [(443, 502), (80, 502), (8080, 403), (22, 403)])
def test_a_bare_host_means_443_and_80(port: int, status: int, host: Service) -> None:
    assert host.status(f"listed.example:{port}") == status


# POST /allow.


@pytest.mark.parametrize(
    ("entry", "answer"),
    [
        ("granted.example", b'{"allowed":"granted.example","ports":"80,443"}'),
        ("Granted.Example:8443", b'{"allowed":"granted.example","ports":"8443"}'),
        ("[2001:DB8::9]:443", b'{"allowed":"[2001:db8::9]","ports":"443"}'),
    ],
)
def test_a_grant_is_answered_with_these_bytes(entry: str, answer: bytes, host: Service) -> None:
    got = host.control("POST", "/allow", {"host": entry})
    assert (got.status, got.body) == (200, answer)
    assert got.value("Content-Type") in {"application/json", "application/json; charset=utf-8"}


def test_a_grant_holds_at_once_and_dies_with_the_process(
    origin: EchoOrigin, start_service: Callable[..., Service]
) -> None:
    for _ in range(2):
        service = start_service("--allow", "a.example", token=TOKEN)
        assert service.status(origin.address) == 403
        service.allow(origin.address)
        assert service.status(origin.address) == 200
        service.stop()


BAD_BODIES = [
    b"",
    b"not json",
    b"[]",
    b"{}",
    b'{"host":""}',
    b'{"host":null}',
    b'{"host":["a.example"]}',
    b'{"host":"*"}',
    b'{"host":"*.com"}',
    b'{"host":"https://a.example"}',
    b'{"host":"a.example:99999"}',
    b'{"host":"a.example\\nb.example"}',
    b'{"host":"a.example","host":"b.example"}',
    json.dumps({"host": "a.example", "reason": "x" * 4096}).encode(),
]


@pytest.mark.parametrize("body", BAD_BODIES, ids=lambda body: body[:40].decode())
def test_a_bad_grant_is_400(body: bytes, host: Service) -> None:
    before = host.control("GET", "/grants").json()
    answer = host.control("POST", "/allow", body=body, headers=JSON)
    assert answer.status == 400
    assert answer.json().keys() == {"error", "detail"}
    assert host.control("GET", "/grants").json() == before


def test_the_proxys_own_ports_and_metadata_cannot_be_granted(host: Service) -> None:
    for entry in (f"127.0.0.1:{host.proxy_port}", f"127.0.0.1:{host.control_port}", "169.254.169.254"):
        assert host.control("POST", "/allow", {"host": entry}).status == 403


def test_other_paths_are_404_and_other_methods_405(host: Service) -> None:
    for path in ("/", "/allow/", "/deny"):
        assert host.control("POST", path, {"host": "a.example"}).status in {404, 405}
    for method in ("GET", "PUT", "DELETE"):
        answer = host.control(method, "/allow", headers=JSON)
        assert (answer.status, answer.value("Allow")) == (405, "POST")


def test_without_the_token_everything_is_401(
    origin: EchoOrigin, start_service: Callable[..., Service]
) -> None:
    service = start_service("--allow", "a.example", token=TOKEN)
    wrong = [
        {},
        {"Authorization": "Bearer "},
        {"Authorization": f"Bearer {TOKEN}x"},
        {"Cookie": f"token={TOKEN}"},
    ]
    for headers in (*wrong, {"Authorization": f"Basic {TOKEN}"}, {"Authorization": TOKEN}):
        answer = service.control(
            "POST", f"/allow?token={TOKEN}", {"host": origin.address}, headers, authorized=False
        )
        assert answer.status == 401
    assert service.control("GET", "/no-such-path", authorized=False).status == 401
    assert service.status(origin.address) == 403


# Exit codes: every bad start is 2, with one line.

BAD_STARTS: list[tuple[str, tuple[str, ...]]] = [
    ("nothing is listed", ()),
    ("an entry is no host", ("--allow", "https://a.example")),
    ("an entry is a list", ("--allow", "a.example,b.example")),
    ("an entry is everything", ("--allow", "*")),
    ("a port is out of range", ("--allow", "a.example:65536")),
    ("bind has no port", ("--allow", "a.example", "--bind", "127.0.0.1")),
    ("bind is not loopback", ("--allow", "a.example", "--bind", "0.0.0.0:0")),
    ("a time is not positive", ("--allow", "a.example", "--connect-timeout", "0")),
    ("a host without a secret", ("--allow", "a.example", "--inject-host", "api.example")),
    ("a secret without a host", ("--allow", "a.example", "--inject-secret-env", "SET")),
    ("a secret that is not set", ("--inject-host", "api.example", "--inject-secret-env", "UNSET")),
    ("a secret that is empty", ("--inject-host", "api.example", "--inject-secret-env", "EMPTY")),
    (
        "no such scheme",
        ("--inject-host", "a.example", "--inject-secret-env", "SET", "--inject-scheme", "ftp"),
    ),
    ("records without a rule", ("--allow", "a.example", "--record-requests", "requests.jsonl")),
    ("a token that is not set", ("--allow", "a.example", "--control-token-env", "UNSET")),
    ("a control port out of range", ("--allow", "a.example", "--control-port", "70000")),
    ("no such flag", ("--allow", "a.example", "--no-such-flag")),
]


@pytest.mark.parametrize("args", [args for _, args in BAD_STARTS], ids=[what for what, _ in BAD_STARTS])
def test_a_bad_start_is_exit_code_2_and_one_line(args: tuple[str, ...]) -> None:
    done = run_cli(*args, env={"SET": SECRET, "EMPTY": ""}, program=(*PROGRAM, "serve"))
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"error: .+\n", done.stderr)
    assert SECRET not in done.stderr


def test_a_port_that_is_taken_is_exit_code_1_and_one_line(host: Service) -> None:
    with (
        pytest.raises(ServiceDidNotStart) as failed,
        Service("--allow", "a", bind=f"127.0.0.1:{host.proxy_port}"),
    ):
        pass
    assert (failed.value.exit_code, failed.value.stdout) == (1, "")
    assert re.fullmatch(r"error: .+\n", failed.value.stderr)


# The credential rule.


def test_a_request_goes_on_over_verified_tls_with_the_credential(
    ca: CertificateAuthority,
    dns: DnsStub,
    start_provider: StartProvider,
    start_service: Callable[..., Service],
) -> None:
    provider = start_provider("api.example")
    provider.on("/v1/chat?q=%2F", answers.fixed(b"answer", headers=[("X-Own", "kept")]))
    dns.add("api.example", provider.host)
    service = start_service(
        *("--inject-host", "api.example", "--inject-secret-env", SECRET_VARIABLE),
        *("--inject-header", "x-api-key", "--inject-port", str(provider.port)),
        *("--allow-private", "api.example:80"),
        *("--resolver", dns.address),
        env={SECRET_VARIABLE: SECRET, "SSL_CERT_FILE": str(ca.pem_path)},
        program=PROGRAM,
    )
    own = [("Host", "api.example"), ("authorization", "Bearer of-the-agent"), ("X-Api-Key", "of-the-agent")]
    answer = service.request(request_bytes("POST", "http://api.example/v1/chat?q=%2F", own, b"{}"))
    assert answer.head.status_line == "HTTP/1.1 200 OK"
    assert (answer.value("X-Own"), answer.value("X-Proxy-Error"), answer.body) == ("kept", None, b"answer")
    seen = provider.only_request
    assert (seen.method, seen.target, seen.body) == ("POST", "/v1/chat?q=%2F", b"{}")
    assert (seen.values("x-api-key"), seen.values("Authorization")) == ([SECRET], [])
    assert seen.value("Host") == f"api.example:{provider.port}"
    assert b"of-the-agent" not in seen.raw_head
    assert provider.connections[0].server_name == "api.example"


@pytest.fixture
def broker(start_provider: StartProvider, tmp_path: Path, start: Start) -> tuple[Service, Provider]:
    """The rule as hosts test it: plain http to loopback, the bodies recorded."""
    provider = start_provider()
    provider.otherwise(answers.fixed(b"ok"))
    records = ("--record-requests", str(tmp_path / "new" / "requests.jsonl"))
    rule = ("--allow", "a.example", *inject_flags("127.0.0.1", provider.port))
    service = start(Service(*rule, *records, env={SECRET_VARIABLE: SECRET}, token=TOKEN, program=PROGRAM))
    return service, provider


def test_what_the_rule_does_not_serve_is_refused_with_these_lines(broker: tuple[Service, Provider]) -> None:
    service, provider = broker
    chunked = b"\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    expected = {
        b"GET http://other.example/ HTTP/1.1\r\n\r\n": b"403 Forbidden; egress denied for other.example:80",
        b"GET http://127.0.0.1:8080/ HTTP/1.1\r\n\r\n": b"403 Forbidden; egress denied for 127.0.0.1:8080",
        b"POST http://127.0.0.1/ HTTP/1.1" + chunked: b"501 Not Implemented",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n": b"400 Bad Request",
        b"TRACE http://127.0.0.1/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n": b"405 Method Not Allowed",
    }
    got = {request: service.raw(request).partition(b"\r\n")[0] for request in expected}
    assert got == {request: b"HTTP/1.1 " + status for request, status in expected.items()}
    for target in ("https://127.0.0.1/", "http://user@127.0.0.1/"):
        assert service.request(request_bytes("GET", target, [("Host", "127.0.0.1")])).status == 403
    assert provider.octets_received == 0


def test_the_bodies_of_forwarded_requests_are_recorded_one_per_line(
    broker: tuple[Service, Provider], tmp_path: Path
) -> None:
    service, _ = broker
    for body in (b'{"prompt": "\xc3\xa9"}', b""):
        request = request_bytes("POST", "http://127.0.0.1/v1/chat?a=b", [("Host", "127.0.0.1")], body)
        assert service.request(request).status == 200
    assert service.stop() == 0
    path = tmp_path / "new" / "requests.jsonl"
    text = path.read_text(encoding="utf-8")
    records = [json.loads(line) for line in text.splitlines()]
    wanted = [("POST", "/v1/chat?a=b", 16, '{"prompt": "é"}'), ("POST", "/v1/chat?a=b", 0, "")]
    assert [(r["method"], r["path"], r["body_bytes"], r["body"]) for r in records] == wanted
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert SECRET not in text


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux only")
def test_secret_and_token_come_by_name_and_are_nowhere_to_be_seen(broker: tuple[Service, Provider]) -> None:
    service, provider = broker
    service.request(request_bytes("GET", "http://127.0.0.1/", [("Host", "127.0.0.1")]))
    service.allow("b.example")
    assert provider.only_request.value("Authorization") == SECRET
    argv, environment = (read_proc(service, name) for name in ("cmdline", "environ"))
    assert SECRET_VARIABLE in argv
    assert ("PATH=" in environment) is (os.geteuid() == 0)  # nobody but root may look at all
    for text in (service.stdout.text, service.stderr.text, argv, environment):
        assert SECRET not in text
        assert TOKEN not in text


def read_proc(service: Service, name: str) -> str:
    """What this user can see of the process."""
    try:
        return Path(f"/proc/{service.pid}/{name}").read_text(errors="replace")
    except PermissionError:
        return ""
