"""Cases C34, C39, C44, C48 and C49: what a request for a credential rule may be, and what goes on.

How bodies are framed: test_case_inject_framing.py. What comes back: test_case_inject_answers.py.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.end_to_end.case_inject import OTHER_SECRET, SECRET, Injecting, open_injecting
from tests.end_to_end.case_parts import MALFORMED, Refusal
from tests.end_to_end.programs import node_program, system_program
from tests.support.byte_stream import End, read_until_end
from tests.support.certificates import CertificateAuthority
from tests.support.http import read_response, request_bytes
from tests.support.service import Service

OTHER_TARGET = Refusal(403, "blocked-by-policy")
NO_METHOD = Refusal(405, "method-not-allowed")
CHUNKED = Refusal(501, "chunked-not-supported")


@pytest.fixture(scope="module")
def running(ca: CertificateAuthority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Injecting]:
    with open_injecting(ca, tmp_path_factory.mktemp("inject")) as injecting:
        yield injecting


@pytest.fixture
def inject(running: Injecting) -> Iterator[Injecting]:
    running.begin()
    yield running
    running.finish()


# C34: other forms.

FORMS: dict[bytes, Refusal] = {
    request_bytes("GET", "https://api.example/"): OTHER_TARGET,
    request_bytes("GET", "https://api.example:80/"): OTHER_TARGET,
    request_bytes("GET", "http://api.example:8080/"): OTHER_TARGET,
    request_bytes("GET", "http://api.example:443/"): OTHER_TARGET,
    request_bytes("GET", "http://other.example/"): OTHER_TARGET,
    request_bytes("GET", "http://api.example.evil.test/"): OTHER_TARGET,
    request_bytes("GET", "http://x.api.example/"): OTHER_TARGET,
    request_bytes("GET", "http://127.0.0.1/"): OTHER_TARGET,
    request_bytes("GET", "http://user:pw@api.example/"): OTHER_TARGET,
    request_bytes("GET", "http://@api.example/"): OTHER_TARGET,
    request_bytes("GET", "http://evil.test@api.example/"): OTHER_TARGET,
    request_bytes("GET", "/", [("Host", "api.example")]): MALFORMED,
    request_bytes("GET", "//api.example/", [("Host", "api.example")]): MALFORMED,
    request_bytes("OPTIONS", "*", [("Host", "api.example")]): MALFORMED,
    request_bytes("GET", "api.example"): MALFORMED,
    request_bytes("GET", "api.example:80"): MALFORMED,
    request_bytes("GET", "http:/api.example/"): MALFORMED,
    request_bytes("GET", "http://"): MALFORMED,
    request_bytes("GET", "http:///"): MALFORMED,
    request_bytes("GET", "http://api.example:0/"): MALFORMED,
    request_bytes("GET", "http://api.example:/"): MALFORMED,
    request_bytes("GET", "http://api.example\\@evil.test/"): OTHER_TARGET,
    request_bytes("GET", "http://api.example\\evil.test/"): MALFORMED,
    request_bytes("GET", "http://api%2eexample/"): MALFORMED,
    request_bytes("GET", "http://[api.example]/"): MALFORMED,
    request_bytes("GET", "http://api.example/#fragment"): MALFORMED,
    request_bytes("GET", "http://api.example/\x7f"): MALFORMED,
    request_bytes("GET", "http://api.example/\xe9"): MALFORMED,
    request_bytes("GET", "http://api.example/a b"): MALFORMED,
    request_bytes("GET", "http://api.example/", [("Host", "other.example")]): MALFORMED,
    request_bytes("GET", "http://api.example/", [("Host", "api.example:81")]): MALFORMED,
    request_bytes("GET", "http://api.example/", [("Host", "api.example")] * 2): MALFORMED,
    request_bytes("TRACE", "http://api.example/"): NO_METHOD,
    request_bytes("GET", "http://api.example/", [("Expect", "200-ok")]): Refusal(417, "expectation-failed"),
}


@pytest.mark.parametrize("request_", FORMS)
def test_other_forms_are_refused_with_a_reason_and_nothing_is_sent(
    inject: Injecting, request_: bytes
) -> None:
    assert inject.refused(request_) == FORMS[request_]


def test_other_schemes_and_the_hint_for_https(inject: Injecting) -> None:
    for scheme in ("ftp", "ws", "wss", "file", "httpx"):
        assert inject.refused(request_bytes("GET", f"{scheme}://api.example/")).status in (400, 403)
    said = inject.service.request(request_bytes("GET", "https://api.example/"))
    assert "CONNECT" in said.json()["hint"] + said.json()["reason"]
    assert said.value("Connection") == "close"


def test_a_refused_head_request_has_no_body(inject: Injecting) -> None:
    received, end = inject.service.raw_end(request_bytes("HEAD", "http://other.example/"))
    assert (received.startswith(b"HTTP/1.1 403 "), end) == (True, End.EOF)
    assert received.endswith(b"\r\n\r\n")


def test_without_a_rule_every_other_method_is_405(start_service: Callable[..., Service]) -> None:
    service = start_service("--allow", "ok.example")
    for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "connect", "FOO"):
        for target in ("http://ok.example/", "/", "*", "ok.example:443", "https://ok.example/"):
            answer = service.request(request_bytes(method, target))
            assert (answer.status, answer.value("Allow")) == (405, "CONNECT"), (method, target)


# C39: clients that can only send chunked.


@pytest.mark.parametrize("expect", [(), (("Expect", "100-continue"),)], ids=["plain", "expect"])
def test_a_chunked_body_is_501_before_it_is_read(
    inject: Injecting, expect: tuple[tuple[str, str], ...]
) -> None:
    sock = inject.service.open()
    head = request_bytes("POST", "http://api.example/up", [("Transfer-Encoding", "chunked"), *expect])
    begun = time.monotonic()
    sock.sendall(head)  # and not a byte of the body
    answer = read_response(sock)
    assert time.monotonic() - begun < 1
    assert (answer.status, answer.interim) == (501, ())
    assert answer.value("Connection") == "close"
    assert "chunked" in answer.json()["hint"]
    assert "Content-Length" in answer.json()["hint"]
    assert read_until_end(sock) == (b"", End.EOF)
    assert inject.requests == []


@pytest.mark.parametrize("expect", ["Expect:", "Expect: 100-continue"])
def test_curl_shows_the_501_of_a_chunked_upload(inject: Injecting, tmp_path: Path, expect: str) -> None:
    big = tmp_path / "big"
    big.write_bytes(b"x" * 8_000_000)
    proxy = f"http://127.0.0.1:{inject.service.proxy_port}"
    argv = [system_program("curl"), "-sS", "-x", proxy, "-H", "Transfer-Encoding: chunked", "-H", expect]
    argv += ["--data-binary", f"@{big}", "--max-time", "10", "-w", "\n%{http_code} %{time_starttransfer}"]
    done = subprocess.run(
        [*argv, "http://api.example/up"], capture_output=True, text=True, timeout=20, check=False
    )
    body, _, figures = done.stdout.rpartition("\n")
    code, seconds = figures.split()
    assert code == "501", done.stderr
    assert float(seconds) < 1
    assert "chunked is not supported" in body
    assert inject.requests == []


# A stream that begins and never ends: who waits for its end waits for ever.
NODE_UPLOAD = """
const body = new ReadableStream({start(c) { c.enqueue(new Uint8Array(65536)); }});
const begun = performance.now();
const answer = await fetch("http://api.example/up", {method: "POST", body, duplex: "half"});
console.log(JSON.stringify([answer.status, performance.now() - begun, await answer.text()]));
process.exit(0);
"""


def test_node_shows_the_501_of_a_streamed_upload(inject: Injecting) -> None:
    proxy = f"http://127.0.0.1:{inject.service.proxy_port}"
    env = {"PATH": "/usr/bin:/bin", "NODE_USE_ENV_PROXY": "1", "HTTP_PROXY": proxy, "http_proxy": proxy}
    argv = [node_program(), "--input-type=module", "-e", NODE_UPLOAD]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=40, check=False)
    assert done.returncode == 0, done.stderr
    status, milliseconds, text = json.loads(done.stdout)
    assert (status, "chunked is not supported" in text) == (501, True)
    assert milliseconds < 2_000  # Node's own first connection among it
    assert inject.requests == []


# C44: path and query, byte for byte.


@pytest.mark.parametrize(
    "path",
    [
        "/a%2Fb/%41/c//d;p=1?x=%20+y&z=%2B&u=/",
        "/?q=1",
        "/a?b?c&&d=;e=%zz%",
        "//double//slashes//",
        "/%E4%B8%AD/%e4%b8%ad",
        "/a+b/%2B/%20",
        "/~user/!$&'()*,;=:@",
        "/?../..=/../",
        "/a.b/..c/d..",
        "/" + "a" * 8_000,
        "/%00%0d%0a",
        '/^|{}"<>`\\x',
    ],
)
def test_path_and_query_pass_byte_for_byte(inject: Injecting, path: str) -> None:
    assert inject.get(path).status == 200
    assert inject.only_request.target == path


@pytest.mark.parametrize(
    ("target", "sent"),
    [
        ("http://api.example", "/"),
        ("http://api.example?q=1", "/?q=1"),
        ("http://api.example:80/x", "/x"),
        ("HTTP://API.EXAMPLE./x", "/x"),
        ("http://api.example/?", "/?"),
    ],
)
def test_the_forms_of_one_authority(inject: Injecting, target: str, sent: str) -> None:
    assert inject.ask(request_bytes("GET", target)).status == 200
    assert inject.only_request.target == sent
    assert inject.only_request.values("Host") == [f"api.example:{inject.provider.port}"]


def test_dot_segments_are_400(inject: Injecting) -> None:
    for path in (
        "/a/../c",
        "/..",
        "/./",
        "/a/%2e%2e/c",
        "/a/%2E./c",
        "/a/..?q",
        "/.",
        "/a/.%2e",
        "/a/..%2fc",
        "/..\\x",
    ):
        assert inject.refused(request_bytes("GET", f"http://api.example{path}")) == MALFORMED, path


# C48: upgrades.


@pytest.mark.parametrize("token", ["websocket", "WebSocket", "h2c, websocket"])
def test_a_websocket_upgrade_is_501_and_nothing_is_sent(inject: Injecting, token: str) -> None:
    lines = [
        ("Upgrade", token),
        ("Connection", "Upgrade"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("Sec-WebSocket-Version", "13"),
    ]
    answer = inject.refused(request_bytes("GET", "http://api.example/ws", lines))
    assert answer == Refusal(501, "upgrade-not-supported")


# C49: every request of a kept connection is judged.


def test_the_second_request_of_a_connection_is_judged_by_itself(inject: Injecting) -> None:
    sock = inject.service.open()
    assert inject.get("/1", sock=sock).status == 200
    assert inject.get("/2", sock=sock).status == 200
    assert inject.get("/3", host="evil.test", sock=sock).status == 403
    assert read_until_end(sock) == (b"", End.EOF)
    assert [r.target for r in inject.requests] == ["/1", "/2"]


def test_each_request_gets_the_credential_of_its_own_rule(inject: Injecting) -> None:
    sock = inject.service.open()
    for host in ("api.example", "key.example", "api.example"):
        assert inject.get("/", host=host, sock=sock).status == 200
    credentials = [(r.value("Authorization"), r.value("X-Custom-Key")) for r in inject.requests]
    assert credentials == [(f"Bearer {SECRET}", None), (None, OTHER_SECRET), (f"Bearer {SECRET}", None)]
    assert len({(r.connection, r.value("Host")) for r in inject.requests}) == 2


def test_pipelined_requests_are_answered_in_order_or_not_at_all(inject: Injecting) -> None:
    first, second = (request_bytes("GET", f"http://{h}/1") for h in ("api.example", "evil.test"))
    received, end = inject.service.raw_end(first + second + request_bytes("GET", "http://api.example/3"))
    assert end is End.EOF
    assert received.startswith(b"HTTP/1.1 200 ")
    rest = received.partition(b"\r\n\r\nok")[2]
    assert rest == b"" or rest.startswith(b"HTTP/1.1 403 ")
    assert [r.target for r in inject.requests] == ["/1"]


def test_a_request_behind_a_body_is_a_request_of_its_own(inject: Injecting) -> None:
    head = request_bytes("POST", "http://api.example/post", [("Content-Length", "3")])
    sock = inject.service.open()
    sock.sendall(head + b"abc" + request_bytes("GET", "http://api.example/x"))
    assert [read_response(sock).body for _ in range(2)] == [b"ok", b"ok"]
    posted, got = inject.requests
    assert (posted.target, posted.body, got.method, got.target) == ("/post", b"abc", "GET", "/x")
    inject.begin()
    received, _ = inject.service.raw_end(head + b"abcCONNECT evil.test:443 HTTP/1.1\r\n\r\n")
    assert received.partition(b"\r\n\r\nok")[2].startswith(b"HTTP/1.1 403 ")
