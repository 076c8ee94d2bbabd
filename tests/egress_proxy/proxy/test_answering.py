"""An answer between two sides, in bytes: framed for the client, watched for the secret, ended as it ended.

Both sides are the real ones, and no socket is there. Over sockets: test_exchange.py; framing alone:
test_client_side.py and test_http1.py; the guard alone: test_reflection.py.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass

import pytest

from egress_proxy.core.decision import Reason
from egress_proxy.core.request import parse_head
from egress_proxy.proxy.answering import Answering, UpstreamLost
from egress_proxy.proxy.client_side import ClientSide
from egress_proxy.proxy.http1 import NotHttp, UpstreamSide
from egress_proxy.proxy.reflection import BodyNotInspectable, ReflectionFound
from egress_proxy.proxy.secret_search import Forms
from tests.support.answers import bodiless, chunk, chunked, encoded, fixed, head, interim

CANARY = b"sk-CANARY-123"
STARS = b"*" * len(CANARY)


@dataclass(frozen=True, slots=True)
class Sides:
    """One request that is through, and the answer that is on its way."""

    http: UpstreamSide
    client: ClientSide
    answering: Answering

    def take_in(self, *pieces: bytes) -> list[bytes]:
        """What the client gets for each piece."""
        return [self.answering.take_in(piece) for piece in pieces]


def asked(
    method: str = "GET", version: str = "1.1", *, secret: bytes = CANARY, opaque_bodies: bool = False
) -> Sides:
    http = UpstreamSide()
    http.start(method, b"/", [(b"Host", b"x")])
    http.end()
    client = ClientSide(parse_head(f"{method} http://x/ HTTP/{version}\r\n\r\n".encode()), 0)
    answering = Answering(
        http, client, Forms((secret,)), is_head=method == "HEAD", opaque_bodies=opaque_bodies
    )
    return Sides(http, client, answering)


# Framing.


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("GET", fixed(b"hello")),
        ("GET", fixed(b"")),
        ("GET", chunked(b"hello", b"you")),
        ("GET", bodiless(204)),
        ("GET", bodiless(304, [("Content-Length", "9")])),
        ("HEAD", bodiless(200, [("Content-Length", "1234")])),
    ],
    ids=["length", "nothing", "chunks", "204", "304", "HEAD"],
)
def test_an_answer_that_is_well_framed_is_passed_on_as_it_is(method: str, answer: bytes) -> None:
    sides = asked(method)
    out = sides.take_in(answer)[0]
    assert out.partition(b"\r\n\r\n")[0] == answer.partition(b"\r\n\r\n")[0]
    assert dechunked(out) == dechunked(answer)
    assert sides.answering.is_over
    assert sides.answering.status == int(answer[9:12])
    assert sides.http.is_reusable()
    assert sides.client.is_reusable()


def dechunked(answer: bytes) -> bytes:
    """The body of an answer, whose chunks may be cut anew on the way."""
    start, _, rest = answer.partition(b"\r\n\r\n")
    if b"chunked" not in start:
        return rest
    body = b""
    while rest != b"0\r\n\r\n":
        size, _, rest = rest.partition(b"\r\n")
        body, rest = body + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return body


def test_an_answer_in_single_bytes_is_the_same_answer() -> None:
    answer = fixed(b"hello", 201)
    sides = asked()
    pieces = sides.take_in(*(answer[at : at + 1] for at in range(len(answer))))
    assert b"".join(pieces) == answer
    # The head at its end, then the body, which has no line end before its own.
    assert [bool(piece) for piece in pieces[-6:]] == [True, False, False, False, False, True]
    assert not any(pieces[: len(answer) - 6])


def test_each_piece_of_a_stream_goes_on_at_once_in_a_chunk_of_its_own() -> None:
    sides = asked()
    assert sides.take_in(head(200, [("Transfer-Encoding", "chunked")]), chunk(b"1\n"), chunk(b"2\n\n")) == [
        head(200, [("Transfer-Encoding", "chunked")]),
        chunk(b"1\n"),
        chunk(b"2\n\n"),
    ]
    assert not sides.answering.is_over
    assert sides.take_in(b"0\r\n\r\n") == [b"0\r\n\r\n"]
    assert sides.answering.is_over


def test_what_may_belong_to_more_waits_for_it_or_for_its_time() -> None:
    sides = asked()
    started = head(200, [("Transfer-Encoding", "chunked")])
    assert sides.take_in(started, chunk(b"one\ntw"), chunk(b"o\nthree")) == [
        started,
        chunk(b"one\n"),
        chunk(b"two\n"),
    ]
    assert sides.answering.holds
    assert sides.answering.let_go() == chunk(b"three")
    assert not sides.answering.holds


def test_an_answer_that_ends_with_its_connection_is_chunked_for_the_client() -> None:
    sides = asked()
    assert sides.take_in(head(200, [("X", "y")]) + b"all", b"") == [
        head(200, [("X", "y"), ("Transfer-Encoding", "chunked")]),
        chunk(b"all") + b"0\r\n\r\n",
    ]
    assert sides.client.is_reusable()
    assert not sides.http.is_reusable()


def test_a_client_of_http_1_0_gets_the_bare_body_and_an_end() -> None:
    sides = asked(version="1.0")
    answer = chunked(b"he", b"llo", trailers=[("X-Sum", "1")])
    assert sides.take_in(interim(103) + answer) == [b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello"]
    assert not sides.client.is_reusable()


def test_interim_answers_go_first_and_are_not_the_answer() -> None:
    sides = asked()
    assert sides.take_in(interim(103, [("Link", "</x>")])) == [interim(103, [("Link", "</x>")])]
    assert sides.answering.status is None
    assert not sides.answering.is_over
    assert sides.take_in(interim(102) + fixed(b"ok")) == [interim(102) + fixed(b"ok")]
    assert sides.answering.status == 200


@pytest.mark.parametrize("version", ["1.1", "1.0"])
def test_interim_answers_are_counted_however_they_come_and_whoever_sees_them(version: str) -> None:
    one = interim(102)
    shown = one if version == "1.1" else b""
    together, apart = asked(version=version), asked(version=version)
    assert together.take_in(one * 64) == [shown * 64]
    assert apart.take_in(*[one] * 64) == [shown] * 64
    with pytest.raises(NotHttp, match="no end to the interim answers"):
        together.take_in(one)
    assert apart.take_in(fixed(b"ok"))[0].endswith(b"ok")


def test_trailers_are_passed_on() -> None:
    out = asked().take_in(chunked(b"hi", trailers=[("X-Sum", "1")]))[0]
    assert out.endswith(chunk(b"hi") + b"0\r\nX-Sum: 1\r\n\r\n")


def test_the_bytes_of_the_body_are_counted_without_their_framing() -> None:
    sides = asked()
    sides.take_in(interim(103) + head(200, [("Transfer-Encoding", "chunked")]) + chunk(b"x" * 999 + b"\n"))
    assert sides.answering.body_bytes == 1000
    sides.take_in(chunk(b"y" * 234) + b"0\r\nX-Sum: 1\r\n\r\n")
    assert sides.answering.body_bytes == 1234


def test_what_comes_behind_an_answer_is_never_sent_on() -> None:
    sides = asked()
    assert sides.take_in(fixed(b"ok") + fixed(b"somebody else's")) == [fixed(b"ok")]
    assert sides.answering.is_over
    assert not sides.http.is_reusable()
    assert sides.answering.body_bytes == 2


# The secret.


def test_the_secret_is_starred_wherever_it_stands() -> None:
    canary = CANARY.decode()
    answer = (
        interim(103, [("X-Early", canary)])
        + head(200, [("X", canary), (canary, "x"), ("Transfer-Encoding", "chunked")], f"OK {canary}")
        + chunk(b"<" + CANARY + b">")
        + f"0\r\nX-Late: {canary}\r\n\r\n".encode()
    )
    assert asked().take_in(answer) == [answer.replace(CANARY, STARS)]


@pytest.mark.parametrize("at", [1, 5, len(CANARY) - 1])
def test_the_secret_that_comes_in_two_pieces_is_starred(at: int) -> None:
    sides = asked()
    body = b"<" + CANARY + b">"
    started = sides.take_in(head(200, [("Content-Length", str(len(body)))]))
    assert started == [head(200, [("Content-Length", str(len(body)))])]
    assert sides.take_in(body[: 1 + at], body[1 + at :]) == [b"", b"<" + STARS + b">"]
    assert sides.answering.is_over


def test_what_only_began_like_the_secret_comes_out_at_the_end() -> None:
    sides = asked()
    body = b"<" + CANARY[:-1]
    assert sides.take_in(fixed(body)) == [fixed(body)]
    assert sides.answering.body_bytes == len(body)


def test_a_length_is_no_place_for_stars() -> None:
    out = asked(secret=b"4").take_in(fixed(b"1234", headers=[("X", "4")]))[0]
    assert b"Content-Length: 4\r\n" in out
    assert b"X: *\r\n" in out
    assert out.endswith(b"123*")


def test_the_secret_in_a_compressed_body_ends_the_answer() -> None:
    sides = asked()
    octets = gzip.compress(b"<" + CANARY + b">")
    with pytest.raises(ReflectionFound):
        sides.take_in(encoded("gzip", octets))
    assert not sides.answering.is_over


def test_a_clean_compressed_body_passes_byte_for_byte() -> None:
    octets = gzip.compress(b"nothing here")
    sides = asked()
    assert sides.take_in(encoded("gzip", octets)) == [encoded("gzip", octets)]
    assert sides.answering.body_bytes == len(octets)


def test_a_compressed_body_is_to_be_read_in_smaller_pieces_and_no_other() -> None:
    """Before the head nothing is known, and what passes unread costs nothing."""
    gzipped, plain, opaque = asked(), asked(), asked(opaque_bodies=True)
    limits = [sides.answering.read_limit_bytes for sides in (gzipped, plain, opaque)]
    assert limits == [None, None, None]
    gzipped.take_in(head(200, [("Content-Encoding", "gzip"), ("Content-Length", "100")]))
    plain.take_in(head(200, [("Content-Length", "100")]))
    opaque.take_in(head(200, [("Content-Encoding", "br"), ("Content-Length", "100")]))
    limits = [sides.answering.read_limit_bytes for sides in (gzipped, plain, opaque)]
    assert limits == [16_384, None, None]


def test_a_body_that_is_not_what_its_coding_says_gives_nothing() -> None:
    with pytest.raises(BodyNotInspectable):
        asked().take_in(encoded("gzip", b"not gzip at all, " * 10))


def test_a_coding_that_cannot_be_looked_into_is_refused_by_name_without_the_secret() -> None:
    sides = asked()
    with pytest.raises(UpstreamLost) as lost:
        sides.take_in(encoded(f"br-{CANARY.decode()}", b"????"))
    assert lost.value.reason is Reason.BODY_NOT_INSPECTABLE
    assert f"br-{STARS.decode()}" in lost.value.detail
    assert CANARY.decode() not in lost.value.detail
    assert sides.answering.status is None  # nothing of it counts as begun


def test_a_coding_that_is_shown_is_cut_and_quotes_no_control_bytes() -> None:
    with pytest.raises(UpstreamLost) as lost:
        asked().take_in(encoded("\x80" + "x" * 5000, b"????"))
    assert len(lost.value.detail) < 200
    assert lost.value.detail.isascii()


def test_a_rule_may_let_opaque_bodies_pass() -> None:
    sides = asked(opaque_bodies=True)
    assert sides.take_in(encoded("br", b"????")) == [encoded("br", b"????")]


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 304)])
def test_a_coding_of_an_answer_without_a_body_does_not_matter(method: str, status: int) -> None:
    answer = bodiless(status, [("Content-Encoding", "br"), ("Content-Length", "4")])
    assert asked(method).take_in(answer) == [answer]


# Ends that are none.


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 O",
        interim(103),
        head(200, [("Content-Length", "8")]) + b"half",
        head(200, [("Transfer-Encoding", "chunked")]) + chunk(b"whole"),
        head(200, [("Transfer-Encoding", "chunked")]) + b"5\r\nhel",
    ],
    ids=["nothing", "in the head", "after an interim one", "in its length", "between chunks", "in a chunk"],
)
def test_an_end_that_comes_too_early_is_not_the_end_of_the_answer(answer: bytes) -> None:
    sides = asked()
    with pytest.raises(NotHttp):
        sides.take_in(answer, b"")
    assert not sides.answering.is_over
    assert not sides.client.is_reusable()
    assert not sides.http.is_reusable()


@pytest.mark.parametrize(
    "answer", [b"220 ready\r\n", head(101, [("Upgrade", "x")]), b"HTTP/1.1 099 \r\n\r\n"]
)
def test_nonsense_is_told_at_once(answer: bytes) -> None:
    sides = asked()
    with pytest.raises(NotHttp):
        sides.take_in(answer)
    assert sides.answering.status is None
