"""How requests to upstreams are put together and their answers read, in bytes: no sockets, no policy.

That h11 reads answers as we do is in ../../properties/test_answers.py; conversations are in test_exchange.py.
"""

from __future__ import annotations

import pytest

from egress_proxy.proxy.http1 import (
    ANSWER_HEAD_LIMIT_BYTES,
    AnswerEnd,
    AnswerHead,
    AnswerPart,
    Header,
    NotHttp,
    UpstreamSide,
)

CANARY = b"sk-CANARY-123"
OK = b"HTTP/1.1 200 OK\r\n"


def answer(status: int = 200, *headers: Header, reason: bytes = b"OK") -> AnswerHead:
    return AnswerHead(status, reason, headers)


def upstream(method: str = "GET") -> UpstreamSide:
    """One that has sent its request."""
    side = UpstreamSide()
    side.start(method, b"/", [(b"Host", b"api.example")])
    side.end()
    return side


def parts(side: UpstreamSide) -> list[AnswerPart]:
    """All parts that there are up to the end of the answer."""
    found: list[AnswerPart] = []
    while (part := side.answer()) is not None:
        found.append(part)
        if isinstance(part, AnswerEnd):
            break
    return found


def parsed(octets: bytes, method: str = "GET") -> list[AnswerPart]:
    side = upstream(method)
    side.feed(octets)
    return parts(side)


# The upstream's side: the request.


def test_a_request_goes_out_as_it_was_put_together() -> None:
    side = UpstreamSide()
    headers = [(b"Host", b"api.example"), (b"x-TWO", b"2"), (b"Content-Length", b"3"), (b"X-One", b"\xe4 1")]
    lines = b"".join(b"%b: %b\r\n" % header for header in headers)
    sent = side.start("POST", b"/a%2Fb?x=%20+y", headers)
    assert sent == b"POST /a%2Fb?x=%20+y HTTP/1.1\r\n" + lines + b"\r\n"
    side.end()


def test_equal_lengths_become_one() -> None:
    side = UpstreamSide()
    lengths = [(b"Content-Length", b"3"), (b"Content-Length", b"3")]
    assert side.start("POST", b"/", [(b"Host", b"x"), *lengths]).count(b"Content-Length: 3\r\n") == 1


# The upstream's side: the answer.


@pytest.mark.parametrize(
    "octets",
    [
        OK + b"Content-Length: 5\r\n\r\nHELLO",
        OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nHELLO\r\n0\r\n\r\n",
    ],
    ids=["length", "chunks"],
)
def test_an_answer_is_read_byte_by_byte_to_its_end(octets: bytes) -> None:
    side, found = upstream(), []
    for at in range(len(octets)):
        side.feed(octets[at : at + 1])
        found += parts(side)
    head, *body, end = found
    assert isinstance(head, AnswerHead)
    assert isinstance(end, AnswerEnd)
    assert b"".join(part for part in body if isinstance(part, bytes)) == b"HELLO"
    assert side.is_reusable()


def test_an_answer_without_length_ends_with_the_connection() -> None:
    side = upstream()
    side.feed(OK + b"\r\nHELLO")
    assert parts(side)[1:] == [b"HELLO"]
    side.feed(b"")
    assert parts(side) == [AnswerEnd(())]
    assert not side.is_reusable()


@pytest.mark.parametrize(
    ("method", "head"),
    [
        ("HEAD", OK + b"Content-Length: 1234\r\n"),
        ("GET", b"HTTP/1.1 204 No Content\r\n"),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n"),
    ],
)
def test_an_answer_without_a_body_is_over_at_its_blank_line(method: str, head: bytes) -> None:
    side = upstream(method)
    side.feed(head + b"\r\n")
    assert isinstance(parts(side)[-1], AnswerEnd)
    assert side.is_reusable()


def test_interim_answers_come_before_the_final_one() -> None:
    found = parsed(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n" + OK + b"Content-Length: 0\r\n\r\n"
    )
    assert [part.status for part in found if isinstance(part, AnswerHead)] == [100, 103, 200]


def test_headers_for_the_next_hop_alone_are_taken_out() -> None:
    head = parsed(
        OK
        + b"Connection: keep-alive, X-Named\r\nKeep-Alive: timeout=5\r\nx-named: 1\r\nTE: x\r\nTrailer: y\r\n"
        b"Upgrade: h2c\r\nProxy-Connection: close\r\nX-Kept: 2\r\nContent-Length: 0\r\n\r\n"
    )[0]
    assert isinstance(head, AnswerHead)
    assert head.headers == ((b"X-Kept", b"2"), (b"Content-Length", b"0"))


def test_the_code_of_our_own_refusals_is_taken_out_wherever_it_comes() -> None:
    interim = b"HTTP/1.1 103 Early Hints\r\nX-Proxy-Error: x\r\n\r\n"
    chunks = b"1\r\nx\r\n0\r\nX-Proxy-Error: x\r\nX-Sum: 1\r\n\r\n"
    final_head = OK + b"x-proxy-ERROR: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    early, final, body, end = parsed(interim + final_head + chunks)
    assert isinstance(early, AnswerHead)
    assert isinstance(final, AnswerHead)
    assert early.headers == final.headers == ()
    assert (body, end) == (b"x", AnswerEnd(((b"X-Sum", b"1"),)))


def test_the_values_of_a_header_are_joined() -> None:
    head = answer(200, (b"Content-Encoding", b"gzip"), (b"x", b"1"), (b"content-encoding", b"br"))
    assert head.value(b"content-encoding") == b"gzip, br"
    assert head.value(b"etag") is None


def test_a_head_shows_no_header_in_its_text() -> None:
    assert CANARY.decode() not in repr(answer(200, (b"X", CANARY)))
    assert CANARY.decode() not in repr(AnswerEnd(((b"X", CANARY),)))


NONSENSE = [
    b"220 mail.example ESMTP " + CANARY + b"\r\n\r\n",
    b"HTTP/1.1 2000 " + CANARY + b"\r\n\r\n",
    OK + CANARY + b"\r\n\r\n",
    OK + CANARY + b" : x\r\n\r\n",
    OK + b"X: \x00" + CANARY + b"\r\n\r\n",
    OK + b"Content-Length: " + CANARY + b"\r\n\r\n",
    OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
    OK + b"Transfer-Encoding: " + CANARY + b"\r\n\r\n",
    OK + b"Transfer-Encoding: chunked, chunked\r\n\r\n",
    OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
    OK + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
    OK + b"Content-Length: 1, 1\r\n\r\n",
    OK + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\n",
    b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"HTTP/1.1 103 Early Hints\r\nContent-Length: 3\r\n\r\n" + OK + b"\r\n",
    b"HTTP/1.1 103 Early Hints\r\nTransfer-Encoding: chunked\r\n\r\n" + OK + b"\r\n",
    OK + b"X: \n\n",
    OK + b"X: folded\r\n line\r\n\r\n",
    OK + b"X: bare\nY: 1\r\n\r\n",
    OK + b"X: bare\rY: 1\r\n\r\n",
    b"\r\n" + OK + b"\r\n",
    b"HTTP/2.0 200 OK\r\n\r\n",
    b"HTTP/1.1 099 OK\r\n\r\n",
    OK + b"Transfer-Encoding: chunked\r\n\r\n1\nx\n0\n\n",
    OK + b"Transfer-Encoding: chunked\r\n\r\n0x1\r\nx\r\n0\r\n\r\n",
    *(OK + b"Transfer-Encoding: chunked\r\n\r\n" + size + b"\r\nx\r\n0\r\n\r\n"
      for size in (b"0 1", b"1 1", b" 1", b"\t1", b"1\x0b", b"1\xa0", b"1 x", b"1\r", b"1 \n")),
    OK + b"Transfer-Encoding: chunked\r\n\r\n-1\r\nx\r\n0\r\n\r\n",
    OK + b"Transfer-Encoding: chunked\r\n\r\n" + CANARY + b"\r\n",
    OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx" + CANARY + b"\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: " + CANARY + b"\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n" + CANARY,
    b"\x16\x03\x01\x02\x00" + CANARY + b"\r\n\r\n",
    b"\"'\\" + CANARY + b"\r\n\r\n",
]  # fmt: skip


@pytest.mark.parametrize("pad", [b" ", b"\t", b"  \t ", b" ;x=y", b" " * 1000])
def test_blanks_behind_a_chunk_size_are_taken(pad: bytes) -> None:
    """Old servers and balancers pad it."""
    octets = OK + b"Transfer-Encoding: chunked\r\n\r\n5" + pad + b"\r\nHELLO\r\n0" + pad + b"\r\n\r\n"
    for cut in (len(octets), 1):
        side = upstream()
        found: list[AnswerPart] = []
        for at in range(0, len(octets), cut):
            side.feed(octets[at : at + cut])
            found += parts(side)
        assert b"".join(part for part in found if isinstance(part, bytes)) == b"HELLO"
        assert isinstance(found[-1], AnswerEnd)
        assert side.is_reusable()


@pytest.mark.parametrize("opening", [b"1", b"1\r\nx\r\n0"])
def test_blanks_behind_a_chunk_size_have_a_limit(opening: bytes) -> None:
    side = upstream()
    side.feed(OK + b"Transfer-Encoding: chunked\r\n\r\n" + opening)
    parts(side)
    for _ in range(ANSWER_HEAD_LIMIT_BYTES // 1000):
        side.feed(b" " * 1000)
        parts(side)
    side.feed(b" " * 1000)
    with pytest.raises(NotHttp):
        parts(side)


@pytest.mark.parametrize("octets", NONSENSE, ids=[str(octets[:40]) for octets in NONSENSE])
def test_nonsense_is_told_without_quoting_it(octets: bytes) -> None:
    with pytest.raises(NotHttp) as caught:
        parsed(octets)
    message = str(caught.value)
    assert message
    assert CANARY.decode() not in message
    assert "\\" not in message
    assert caught.value.__cause__ is None


def test_a_head_that_is_too_long_is_nonsense() -> None:
    with pytest.raises(NotHttp):
        parsed(OK + b"X: " + b"x" * (ANSWER_HEAD_LIMIT_BYTES + 1))


@pytest.mark.parametrize("opening", [b"1;x=", b"1\r\nx\r\n0\r\nX: ", b"1\r\nx\r\n0\r\n"])
def test_what_chunks_say_beside_the_body_has_a_limit(opening: bytes) -> None:
    side = upstream()
    side.feed(OK + b"Transfer-Encoding: chunked\r\n\r\n" + opening)
    parts(side)
    more = b"X: 1\r\n" * 160 if opening.endswith(b"\r\n") else b"x" * 1000
    for _ in range(ANSWER_HEAD_LIMIT_BYTES // len(more) - 1):
        side.feed(more)
        parts(side)
    side.feed(more * 2)
    with pytest.raises(NotHttp, match="too long"):
        parts(side)


def test_chunks_of_a_byte_each_are_no_trailers() -> None:
    side = upstream()
    side.feed(OK + b"Transfer-Encoding: chunked\r\n\r\n")
    for _ in range(200):
        side.feed(b"1\r\nx\r\n" * 100)
        assert parts(side)[-1] == b"x" * 100


def test_a_head_as_long_as_some_servers_send_is_read() -> None:
    assert isinstance(parsed(OK + b"X: " + b"x" * 40_000 + b"\r\n\r\n")[0], AnswerHead)


@pytest.mark.parametrize(
    "octets",
    [
        b"",
        b"HTTP/1.1 200",
        OK + b"Content-Length: 5\r\n\r\nHELL",
        OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nHELLO\r\n",
    ],
    ids=["no answer", "head", "length", "chunks"],
)
def test_an_answer_that_ends_early_is_no_answer(octets: bytes) -> None:
    side = upstream()
    if octets:
        side.feed(octets)
    parts(side)
    side.feed(b"")
    with pytest.raises(NotHttp):
        parts(side)


def test_whether_an_upstream_has_said_anything_is_known_anew_for_each_request() -> None:
    side = upstream()
    said = [side.has_answered]
    for octets in (b"H", OK[1:] + b"Content-Length: 0\r\n\r\n"):
        side.feed(octets)
        said.append(side.has_answered)
    parts(side)
    assert side.is_reusable()
    side.start("GET", b"/", [(b"Host", b"x")])
    said.append(side.has_answered)
    side.feed(b"")  # a kept connection turns out to be closed
    said.append(side.has_answered)
    assert said == [False, True, True, False, False]


@pytest.mark.parametrize(
    "octets",
    [
        OK + b"Connection: close\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        OK + b"Content-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\n",
    ],
    ids=["close", "HTTP/1.0", "bytes behind the answer"],
)
def test_a_connection_that_cannot_carry_another_request_is_not_reused(octets: bytes) -> None:
    side = upstream()
    side.feed(octets)
    assert isinstance(parts(side)[-1], AnswerEnd)
    assert not side.is_reusable()


def test_a_connection_whose_request_is_not_through_is_not_reused() -> None:
    side = UpstreamSide()
    side.start("POST", b"/", [(b"Host", b"x"), (b"Content-Length", b"9")])
    side.feed(OK + b"Content-Length: 0\r\n\r\n")
    assert isinstance(parts(side)[-1], AnswerEnd)
    assert not side.is_reusable()


def test_a_kept_connection_carries_one_exchange_after_another() -> None:
    side = UpstreamSide()
    for number in range(3):
        assert side.start("GET", b"/%d" % number, [(b"Host", b"x")]).startswith(b"GET /%d " % number)
        side.end()
        side.feed(OK + b"Content-Length: 1\r\n\r\n%d" % number)
        assert parts(side)[1] == b"%d" % number
        assert side.is_reusable()


@pytest.mark.parametrize("name", [b"Content-Encoding", b"Content-Type"])
def test_connection_cannot_hide_how_the_body_is_to_be_read(name: bytes) -> None:
    """A coding that the reflection guard does not see would hide the secret from it."""
    side = UpstreamSide()
    side.start("GET", b"/", [(b"Host", b"api.example")])
    side.end()
    side.feed(b"HTTP/1.1 200 OK\r\nConnection: %s, X-Own\r\n%s: gzip\r\nX-Own: 1\r\n\r\n" % (name, name))
    answer = side.answer()
    assert isinstance(answer, AnswerHead)
    assert answer.value(name.lower()) == b"gzip"
    assert answer.value(b"x-own") is None


def test_an_upstream_cannot_ask_the_client_for_our_token() -> None:
    side = UpstreamSide()
    side.start("GET", b"/", [(b"Host", b"api.example")])
    side.end()
    side.feed(b'HTTP/1.1 407 Give\r\nProxy-Authenticate: Basic realm="x"\r\nContent-Length: 0\r\n\r\n')
    answer = side.answer()
    assert isinstance(answer, AnswerHead)
    assert answer.value(b"proxy-authenticate") is None
