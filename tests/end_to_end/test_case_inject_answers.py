"""Cases C41, C43 and C45: answers without a body, compressed ones, cookies.

The secret in answers: test_case_inject_reflection.py. Streams: test_case_inject_streams.py.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import time
from collections.abc import Iterator

import pytest

from tests.end_to_end.case_inject import SECRET, Injecting, open_injecting
from tests.end_to_end.case_parts import Refusal
from tests.support.answers import (
    bodiless,
    chunked,
    early,
    encoded,
    fixed,
    gzip_members,
    interim,
    play,
    read_body,
    redirect,
)
from tests.support.byte_stream import End, read_until_end
from tests.support.certificates import CertificateAuthority
from tests.support.http import read_response, request_bytes
from tests.support.origins import pattern

NOT_INSPECTABLE = Refusal(502, "body-not-inspectable")
VALUE = f"Bearer {SECRET}"


@pytest.fixture(scope="module")
def running(ca: CertificateAuthority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Injecting]:
    with open_injecting(ca, tmp_path_factory.mktemp("inject")) as injecting:
        yield injecting


@pytest.fixture
def inject(running: Injecting) -> Iterator[Injecting]:
    running.begin()
    yield running
    running.finish()


# C41: no body.


def test_answers_without_a_body_end_at_the_blank_line(inject: Injecting) -> None:
    on = inject.provider.on
    on("/head", bodiless(200, [("Content-Length", "1234")]))
    on("/chunked-head", bodiless(200, [("Transfer-Encoding", "chunked")]))
    on("/204", bodiless(204))
    on("/304", bodiless(304, [("Content-Length", "9"), ("ETag", '"x"')]))
    on("/304-gzip", bodiless(304, [("Content-Encoding", "br")]))
    on("/205", fixed(b"", 205))
    on("/empty", fixed(b""))
    sock = inject.service.open()
    for method, path, status in (
        ("HEAD", "/head", 200),
        ("GET", "/204", 204),
        ("GET", "/304", 304),
        ("HEAD", "/chunked-head", 200),
        ("HEAD", "/304", 304),
        ("GET", "/304-gzip", 304),
        ("GET", "/205", 205),
        ("GET", "/empty", 200),
        ("POST", "/204", 204),
        ("DELETE", "/204", 204),
        ("GET", "/", 200),
    ):
        begun = time.monotonic()
        answer = inject.ask(request_bytes(method, f"http://api.example{path}"), sock)
        assert (answer.status, answer.body) == (status, b"ok" if path == "/" else b""), (method, path)
        assert time.monotonic() - begun < 1
        if path == "/head":
            assert answer.value("Content-Length") == "1234"
        if status == 304 and path == "/304":
            assert answer.value("ETag") == '"x"'
        if status == 204:
            assert answer.value("Transfer-Encoding") is None
    sock.close()
    assert len({r.connection for r in inject.requests}) == 1  # the upstream's stayed usable, too


@pytest.mark.parametrize("status", [200, 201, 400, 401, 403, 404, 429, 500, 502, 503])
def test_a_status_of_the_upstream_is_its_own(inject: Injecting, status: int) -> None:
    marked = [("X-Proxy-Error", "blocked-by-allowlist"), ("Retry-After", "7")]
    inject.provider.on("/", fixed(b"theirs", status, marked, reason="Its Own Words"))
    answer = inject.get()
    assert (answer.status, answer.reason, answer.body) == (status, "Its Own Words", b"theirs")
    assert answer.value("X-Proxy-Error") is None
    assert answer.value("Retry-After") == "7"


def test_interim_answers_and_expectations(inject: Injecting) -> None:
    inject.provider.on("/hints", play(interim(103, [("Link", "</x>; rel=preload")]), read_body, fixed(b"ok")))
    answer = inject.get("/hints")
    assert ([head.status for head in answer.interim], answer.body) == ([103], b"ok")
    sock = inject.service.open()
    head = request_bytes("POST", "http://api.example/", [("Expect", "100-continue"), ("Content-Length", "3")])
    sock.sendall(head)
    assert sock.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
    sock.sendall(b"abc")
    assert read_response(sock).body == b"ok"
    assert inject.requests[-1].body == b"abc"


@pytest.mark.parametrize("linger", [True, False])
def test_an_early_answer_reaches_a_client_that_still_sends(inject: Injecting, linger: bool) -> None:
    inject.provider.on("/up", early(fixed(b"too much", 413, [("Connection", "close")]), linger=linger))
    sock = inject.service.open()
    sock.sendall(request_bytes("POST", "http://api.example/up", [("Content-Length", "10000000")]))
    sock.sendall(b"x" * 1000)
    answer = read_response(sock)
    assert (answer.status, answer.body) == (413, b"too much")
    sock.sendall(b"x" * 1000)
    assert read_until_end(sock)[1] is not End.OPEN


def test_redirects_are_handed_back(inject: Injecting) -> None:
    inject.provider.on("/", redirect("https://evil.test/elsewhere", 307))
    answer = inject.get()
    assert (answer.status, answer.value("Location")) == (307, "https://evil.test/elsewhere")
    assert len(inject.requests) == 1


# C43: compressed bodies.


def test_gzip_passes_byte_for_byte(inject: Injecting) -> None:
    text = pattern(300_000) + b"text " * 50_000
    bodies = [gzip.compress(text), gzip_members(text, 3), gzip.compress(b""), gzip.compress(text, 0)]
    for number, body in enumerate(bodies):
        for status in (200, 500):
            inject.provider.on(f"/{number}/{status}", encoded("gzip", body, status))
            answer = inject.get(f"/{number}/{status}")
            assert answer.status == status
            assert hashlib.sha256(answer.body).digest() == hashlib.sha256(body).digest()
            assert (answer.value("Content-Encoding"), answer.value("Content-Length")) == (
                "gzip",
                str(len(body)),
            )
    whole = gzip.compress(text)
    pieces = [whole[at : at + 997] for at in range(0, len(whole), 997)]
    inject.provider.on("/pieces", chunked(*pieces, headers=[("Content-Encoding", "gzip")]))
    assert inject.get("/pieces").body == whole


OPAQUE = ("br", "zstd", "deflate", "compress", "gzip, gzip", "br, gzip", "gzip, br", "x-unknown", "dcb")


@pytest.mark.parametrize("coding", OPAQUE)
def test_other_codings_pass_only_where_the_rule_says_so(inject: Injecting, coding: str) -> None:
    body = pattern(100_000)
    for status in (200, 500):
        inject.provider.on(f"/{status}", encoded(coding, body, status))
        answer = inject.get(f"/{status}")
        assert (answer.status, answer.value("X-Proxy-Error")) == (502, "body-not-inspectable")
        assert coding.split(",")[0] in answer.json()["reason"]
        passed = inject.get(f"/{status}", host="opaque.example")
        assert (passed.status, passed.body) == (status, body)
        assert (passed.value("Content-Encoding"), passed.value("Content-Length")) == (coding, str(len(body)))


def test_a_body_that_is_not_what_it_says_does_not_get_through(inject: Injecting) -> None:
    inject.provider.on("/", encoded("gzip", b"this is no gzip at all" * 1000))
    body = inject.cut_off(request_bytes("GET", "http://api.example/"))
    assert body == b"" or json.loads(body)["error"] == "body-not-inspectable"
    assert b"no gzip" not in body


@pytest.mark.parametrize(
    ("offered", "sent"),
    [
        ((), "identity"),
        (("br, zstd, gzip;q=0.5, deflate",), "identity, gzip"),
        (("gzip",), "identity, gzip"),
        (("br", "GZIP"), "identity, gzip"),
        (("br, zstd",), "identity"),
        (("gzip;q=0",), "identity"),
        (("identity",), "identity"),
        (("*",), "identity, gzip"),
    ],
)
def test_what_a_client_accepts_is_reduced(inject: Injecting, offered: tuple[str, ...], sent: str) -> None:
    lines = [("Accept-Encoding", value) for value in offered]
    inject.ask(request_bytes("GET", "http://api.example/", lines))
    assert inject.only_request.values("Accept-Encoding") == [sent]


def test_an_opaque_rule_leaves_it_alone(inject: Injecting) -> None:
    inject.ask(request_bytes("GET", "http://opaque.example/", [("Accept-Encoding", "br;q=1.0, zstd")]))
    assert inject.only_request.values("Accept-Encoding") == ["br;q=1.0, zstd"]


# C45: no state.


def test_no_cookie_is_kept(inject: Injecting) -> None:
    cookies = [
        ("Set-Cookie", "sid=1; Path=/"),
        ("Set-Cookie", "b=2"),
        ("WWW-Authenticate", 'Digest nonce="n"'),
    ]
    inject.provider.on("/login", fixed(b"in", headers=cookies))
    first = inject.get("/login")
    assert first.head.values("Set-Cookie") == ["sid=1; Path=/", "b=2"]
    sock = inject.service.open()
    inject.get("/login", sock=sock)
    inject.get("/again", sock=sock)
    inject.get("/other", host="key.example")
    assert [r.values("Cookie") for r in inject.requests] == [[]] * 4


def test_no_answer_is_kept(inject: Injecting) -> None:
    fresh = [
        ("Cache-Control", "public, max-age=3600"),
        ("ETag", '"1"'),
        ("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT"),
    ]
    inject.provider.on("/", fixed(b"one", headers=fresh), fixed(b"two", headers=fresh))
    assert [inject.get().body, inject.get().body] == [b"one", b"two"]
    assert all(r.value("If-None-Match") is None for r in inject.requests)
