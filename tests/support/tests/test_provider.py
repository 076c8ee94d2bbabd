"""The provider against httpx, the ssl module and plain sockets: answers, records and endings.

Nothing of the product is used here.
See ../provider.py, ../answers.py and ../live_stream.py.
"""

from __future__ import annotations

import gzip
import hashlib
import threading
from collections.abc import Iterator

import httpx
import pytest

from tests.support import answers, http
from tests.support.byte_stream import End, connect, read_until_end
from tests.support.conversation import Script
from tests.support.exchange import Exchange
from tests.support.live_stream import LiveStream
from tests.support.origins import pattern
from tests.support.provider import Provider

GET = b"GET /x HTTP/1.1\r\nHost: api.example\r\nX-Secret: sk-canary\r\n\r\n"


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as running:
        yield running


def url(provider: Provider, path: str = "/x") -> str:
    return f"http://{provider.address}{path}"


def test_a_request_is_recorded_to_the_byte(provider: Provider) -> None:
    provider.on("/v1", answers.fixed(b"ok", headers=[("X-A", "1")]))
    raw = b"POST /v1?a=%20 HTTP/1.1\r\nhOST: h\r\nX-B:  2 \r\nx-b: 3\r\nContent-Length: 3\r\n\r\n"
    response = http.exchange(provider.port, raw + b"abc")
    assert (response.status, response.body, response.value("x-a")) == (200, b"ok", "1")
    request = provider.only_request
    assert (request.raw_head, request.body, request.whole) == (raw, b"abc", True)
    assert (request.method, request.target, request.path) == ("POST", "/v1?a=%20", "/v1")
    assert request.headers[:3] == [("hOST", "h"), ("X-B", "2"), ("x-b", "3")]
    assert request.body_sha256 == hashlib.sha256(b"abc").hexdigest()
    assert provider.connections[0].raw == raw + b"abc"


def test_answers_come_in_turn_and_unscripted_paths_are_404(provider: Provider) -> None:
    provider.on("/x", answers.fixed(b"1"), answers.fixed(b"2"))
    with httpx.Client(trust_env=False) as client:
        assert [client.get(url(provider)).text for _ in range(3)] == ["1", "2", "2"]
        assert client.get(url(provider, "/other")).status_code == 404
    assert [(r.connection, r.number) for r in provider.requests] == [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert provider.wait_for_closed(0) is End.EOF


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (answers.fixed(b"hello"), b"hello"),
        (answers.chunked(b"he", b"llo", trailers=[("X-T", "1")]), b"hello"),
        (answers.until_close(b"hello"), b"hello"),
        (answers.gzipped(b"hello" * 99), b"hello" * 99),
        (answers.encoded("unheard-of", b"\0\1"), b"\0\1"),
        (answers.bulk(3_000_000), pattern(3_000_000)),
        (answers.play(answers.interim(103), answers.fixed(b"late")), b"late"),
    ],
)
def test_good_answers_are_good_to_httpx(provider: Provider, answer: bytes | Script, body: bytes) -> None:
    provider.on("/x", answer)
    assert httpx.get(url(provider), trust_env=False).content == body


def test_a_gzip_body_of_several_members_is_one_to_the_gzip_module(provider: Provider) -> None:
    provider.on("/x", answers.gzipped(b"0123456789", members=3))
    body = http.exchange(provider.port, GET).body
    assert body.count(b"\x1f\x8b\x08") == 3
    assert gzip.decompress(body) == b"0123456789"


def test_bodiless_answers_leave_the_connection_usable(provider: Provider) -> None:
    length = [("Content-Length", "1234")]
    provider.on("/x", *(answers.bodiless(s, h) for s, h in [(200, length), (204, ()), (304, length)]))
    with connect(provider.port) as sock:
        for method, status in [("HEAD", 200), ("GET", 204), ("GET", 304)]:
            sock.sendall(http.request_bytes(method, "/x"))
            response = http.read_response(sock, method)
            assert (response.status, response.body) == (status, b"")
    assert provider.wait_for_closed(0) is End.EOF


def test_interim_heads_are_told_from_the_final_one(provider: Provider) -> None:
    link = [("Link", "</a>")]
    provider.on("/x", answers.play(answers.interim(103, link), answers.fixed(b"x")))
    response = http.exchange(provider.port, GET)
    assert [(h.status, h.value("link")) for h in response.interim] == [(103, "</a>")]


def test_a_client_that_expects_100_gets_it_before_its_body_is_read(provider: Provider) -> None:
    provider.on("/x", answers.fixed(b"done"))
    with connect(provider.port) as sock:
        sock.sendall(b"POST /x HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert http.read_head(sock).status == 100
        assert not provider.requests[0].whole
        sock.sendall(b"ab")
        assert http.read_response(sock).body == b"done"
    assert provider.only_request.body == b"ab"


def test_an_early_answer_arrives_though_the_body_was_not_read(provider: Provider) -> None:
    provider.on("/x", answers.early(answers.fixed(b"too big", 413)))
    with connect(provider.port) as sock:
        sock.sendall(b"POST /x HTTP/1.1\r\nContent-Length: 9000000\r\n\r\n" + b"x" * 100_000)
        assert http.read_response(sock).status == 413
        assert read_until_end(sock) == (b"", End.EOF)
    assert not provider.only_request.whole


def test_a_chunked_request_is_recorded_decoded_and_raw(provider: Provider) -> None:
    provider.on("/x", answers.fixed(b"ok"))
    raw = b"POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    assert http.exchange(provider.port, raw).body == b"ok"
    assert provider.only_request.body == b"abc"
    assert provider.connections[0].raw == raw


def test_a_held_answer_waits_for_its_gate(provider: Provider) -> None:
    gate = threading.Event()
    provider.on("/x", answers.held(gate, answers.fixed(b"at last")))
    with connect(provider.port) as sock:
        sock.sendall(GET)
        assert read_until_end(sock, 0.05) == (b"", End.OPEN)
        gate.set()
        assert http.read_response(sock).body == b"at last"


@pytest.mark.parametrize(
    ("answer", "received", "end"),
    [
        (answers.torn_length(b"abc", 10), b"abc", End.EOF),
        (answers.torn_length(b"abc", 10, answers.abort), b"abc", End.RESET),
        (answers.torn_chunk(b"ab", torn=b"c", declared=5), b"2\r\nab\r\n5\r\nc", End.EOF),
        (answers.nonsense(b"junk\r\n\r\n"), b"", End.EOF),
        (answers.reset(), b"", End.RESET),
    ],
)
def test_broken_answers_break_as_said(provider: Provider, answer: Script, received: bytes, end: End) -> None:
    provider.on("/x", answer)
    with connect(provider.port) as sock:
        sock.sendall(GET)
        raw, how = read_until_end(sock)
        assert (raw.partition(b"\r\n\r\n")[2], how) == (received, end)
    with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
        httpx.get(url(provider), trust_env=False)


def test_echoes_hold_the_head_plain_compressed_and_cut(provider: Provider) -> None:
    gate = threading.Event()
    provider.on("/x", answers.echo(), answers.echo_gzip(), answers.echo_split(b"sk-canary", gate))
    with connect(provider.port) as sock:
        sock.sendall(GET)
        assert http.read_response(sock).body == GET
        sock.sendall(GET)
        assert gzip.decompress(http.read_response(sock).body) == GET
        sock.sendall(GET)
        http.read_head(sock)
        assert http.read_chunk(sock).endswith(b"sk-c")
        gate.set()
        assert http.read_chunk(sock).startswith(b"anary")
        assert http.read_chunk(sock) == b""
    provider.on("/x", answers.echo_header("x-secret"))
    assert http.exchange(provider.port, GET).value("X-Echo") == "sk-canary"


def test_redirects_and_cookies_are_plain_answers(provider: Provider) -> None:
    cookies = [("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")]
    provider.on("/x", answers.redirect("http://other.example/"), answers.fixed(b"", 200, cookies))
    assert http.exchange(provider.port, GET).value("location") == "http://other.example/"
    assert http.exchange(provider.port, GET).head.values("set-cookie") == ["a=1", "b=2"]


def test_connections_close_after_so_many_requests_or_when_said() -> None:
    with Provider(max_requests=2) as provider:
        provider.otherwise(answers.fixed(b"ok"))
        with connect(provider.port) as sock:
            for _ in range(2):
                sock.sendall(GET)
                assert http.read_response(sock).body == b"ok"
            assert read_until_end(sock) == (b"", End.EOF)
        provider.otherwise(answers.fixed(b"ok", headers=[("Connection", "close")]))
        with connect(provider.port) as sock:
            sock.sendall(GET)
            http.read_response(sock)
            assert read_until_end(sock) == (b"", End.EOF)


def test_idle_connections_close_on_demand(provider: Provider) -> None:
    provider.otherwise(answers.fixed(b"ok"))
    with connect(provider.port) as used, connect(provider.port) as fresh:
        used.sendall(GET)
        http.read_response(used)
        provider.wait_for_idle(2)
        assert provider.close_idle() == 2
        assert provider.open_connections == 0
        assert read_until_end(used) == read_until_end(fresh) == (b"", End.EOF)


def test_pipelined_requests_are_answered_in_order(provider: Provider) -> None:
    provider.on("/a", answers.fixed(b"a"))
    provider.on("/b", answers.fixed(b"b"))
    with connect(provider.port) as sock:
        sock.sendall(http.request_bytes("GET", "/a") + http.request_bytes("GET", "/b"))
        assert [http.read_response(sock).body for _ in range(2)] == [b"a", b"b"]


def test_a_script_that_fails_by_itself_fails_the_block() -> None:
    def bad(exchange: Exchange) -> None:
        raise KeyError(exchange.request.path)

    provider = Provider()
    provider.on("/x", bad)

    def play() -> None:
        with provider, connect(provider.port) as sock:
            sock.sendall(GET)
            assert read_until_end(sock)[0] == b""

    with pytest.raises(ExceptionGroup) as failed:
        play()
    assert isinstance(failed.value.exceptions[0], KeyError)


def test_a_provider_ends_though_scripts_wait(provider: Provider) -> None:
    provider.on("/x", answers.held(threading.Event(), answers.fixed(b"never")))
    provider.on("/s", LiveStream())
    with connect(provider.port) as one, connect(provider.port) as other:
        one.sendall(GET)
        other.sendall(b"GET /s HTTP/1.1\r\n\r\n")
        provider.wait_for_requests(2)
        provider.stop()
    assert provider.open_connections == 0
