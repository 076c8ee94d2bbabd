"""How a client's body is read and its answer framed, in bytes: no sockets, no policy.

Conversations over sockets are in test_exchange.py; heads of clients are judged in core/test_request.py.
"""

from __future__ import annotations

import pytest

from egress_proxy.core.request import parse_head
from egress_proxy.proxy.client_side import ClientSide
from egress_proxy.proxy.http1 import AnswerHead, Header

OK = b"HTTP/1.1 200 OK\r\n"


def client(method: str = "GET", version: str = "1.1", body_bytes: int = 0, *headers: str) -> ClientSide:
    lines = (f"{method} http://api.example/ HTTP/{version}", *headers, "", "")
    side = ClientSide(parse_head("\r\n".join(lines).encode()), body_bytes)
    if body_bytes == 0:
        assert side.body() == b""
    return side


def answer(status: int = 200, *headers: Header, reason: bytes = b"OK") -> AnswerHead:
    return AnswerHead(status, reason, headers)


# The client's side: the body.


def test_a_body_is_read_to_its_length_however_it_comes() -> None:
    side = client("POST", "1.1", 5)
    assert side.body() is None
    side.feed(b"HE")
    assert side.body() == b"HE"
    assert side.body() is None
    assert not side.is_body_read()
    side.feed(b"LLO")
    assert side.body() == b"LLO"
    assert side.body() == b""
    assert side.is_body_read()
    assert side.leftover() == b""


def test_what_comes_behind_a_body_is_the_next_request() -> None:
    side = client("POST", "1.1", 3)
    side.feed(b"abcGET / HTTP/1.1\r\n")
    assert side.body() == b"abc"
    assert side.body() == b""
    assert side.leftover() == b"GET / HTTP/1.1\r\n"


def test_feeding_nothing_is_not_the_end_of_the_client() -> None:
    side = client("POST", "1.1", 3)
    side.feed(b"")
    assert side.body() is None
    side.feed(b"abc")
    assert side.body() == b"abc"


@pytest.mark.parametrize(("version", "headers"), [("1.1", ()), ("1.0", ()), ("1.1", ("Connection: close",))])
def test_a_body_that_was_read_counts_as_read_for_every_client(version: str, headers: tuple[str, ...]) -> None:
    side = client("POST", version, 3, *headers)
    side.feed(b"abc")
    assert (side.body(), side.body()) == (b"abc", b"")
    assert side.is_body_read()


# The client's side: the answer.


def test_a_length_from_the_upstream_is_passed_on() -> None:
    side = client()
    assert side.start(answer(200, (b"Content-Length", b"2"))) == OK + b"Content-Length: 2\r\n\r\n"
    assert side.part(b"hi") + side.end([]) == b"hi"
    assert side.is_reusable()


def test_a_body_of_unknown_length_is_chunked() -> None:
    side = client()
    assert side.start(answer()) == OK + b"Transfer-Encoding: chunked\r\n\r\n"
    assert side.part(b"hi") == b"2\r\nhi\r\n"
    assert side.end([(b"X-Sum", b"1")]) == b"0\r\nX-Sum: 1\r\n\r\n"
    assert side.is_reusable()


def test_a_client_of_http_1_0_gets_neither_chunks_nor_trailers_and_a_closed_connection() -> None:
    side = client(version="1.0")
    assert side.start(answer()) == OK + b"Connection: close\r\n\r\n"
    assert side.part(b"hi") == b"hi"
    assert side.end([(b"X-Sum", b"1")]) == b""
    assert not side.is_reusable()


def test_a_client_that_wants_to_close_is_told_that_it_will_be() -> None:
    side = client("GET", "1.1", 0, "Connection: close")
    assert b"Connection: close\r\n" in side.start(answer(200, (b"Content-Length", b"0")))
    side.end([])
    assert not side.is_reusable()


def test_an_answer_to_head_keeps_its_length_and_has_no_body() -> None:
    side = client("HEAD")
    assert side.start(answer(200, (b"Content-Length", b"1234"))) == OK + b"Content-Length: 1234\r\n\r\n"
    assert side.end([]) == b""
    assert side.is_reusable()


@pytest.mark.parametrize(
    ("status", "headers"), [(204, ()), (304, ((b"Content-Length", b"9"),)), (304, ((b"ETag", b'"x"'),))]
)
def test_nothing_is_added_to_an_answer_without_a_body(status: int, headers: tuple[Header, ...]) -> None:
    side = client()
    lines = b"".join(b"%b: %b\r\n" % header for header in headers)
    assert side.start(answer(status, *headers)) == b"HTTP/1.1 %d OK\r\n%b\r\n" % (status, lines)
    assert side.end([]) == b""
    assert side.is_reusable()


def test_interim_answers_are_for_clients_that_know_them() -> None:
    early = answer(103, (b"Link", b"</x>"), reason=b"Early Hints")
    assert client().interim(early) == b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    assert client(version="1.0").interim(early) == b""


def test_a_client_whose_body_is_not_read_gets_its_answer_and_a_closed_connection() -> None:
    side = client("POST", "1.1", 100)
    assert b"Connection: close\r\n" in side.start(answer(413, (b"Content-Length", b"0")))
    side.end([])
    assert not side.is_reusable()


def test_a_client_that_expects_100_continue_may_send_its_body_after_it() -> None:
    side = client("POST", "1.1", 3, "Expect: 100-continue")
    assert side.body() is None
    assert side.interim(answer(100, reason=b"Continue")) == b"HTTP/1.1 100 Continue\r\n\r\n"
    side.feed(b"abc")
    assert (side.body(), side.body()) == (b"abc", b"")
    side.start(answer(200, (b"Content-Length", b"0")))
    side.end([])
    assert side.is_reusable()
