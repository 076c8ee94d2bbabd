"""Answers of upstreams: what llhttp and we make of them, h11 makes of them as well; or we refuse.

How llhttp frames an answer is not ours to say, and it was lenient in the past: so a second parser has to
agree on each head, each byte of the body, the end, and on whether the connection is good for another request.
Tables of cases are in ../egress_proxy/proxy/test_http1.py.
"""

import itertools
from dataclasses import dataclass, field

import h11
from hypothesis import example, given
from hypothesis import strategies as st

from egress_proxy.proxy.http1 import AnswerEnd, AnswerHead, AnswerPart, NotHttp, UpstreamSide

HOP_BY_HOP = frozenset(
    {b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"proxy-connection"}
    | {b"proxy-authenticate", b"proxy-authentication-info", b"x-proxy-error"}
)
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


@dataclass(slots=True)
class Reading:
    """What a parser found."""

    heads: list[tuple[int, list[tuple[bytes, bytes]]]] = field(default_factory=list)
    body: bytes = b""
    trailers: list[tuple[bytes, bytes]] | None = None  # none: the answer is not over
    is_reusable: bool = False


def ours(method: str, pieces: list[bytes]) -> Reading | None:
    """None where it is refused."""
    side, found = UpstreamSide(), Reading()
    side.start(method, b"/", [(b"Host", b"x")])
    side.end()
    try:
        for piece in pieces:
            side.feed(piece)
            while found.trailers is None and (part := side.answer()) is not None:
                note(found, part)
    except NotHttp:
        return None
    found.is_reusable = side.is_reusable()
    return found


def note(found: Reading, part: AnswerPart) -> None:
    match part:
        case AnswerHead():
            found.heads.append((part.status, lowered(part.headers)))
        case AnswerEnd():
            found.trailers = lowered(part.trailers)
        case _:
            found.body += part


def oracle(method: str, pieces: list[bytes]) -> Reading | None:
    client, found = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20), Reading()
    client.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
    client.send(h11.EndOfMessage())
    try:
        for piece in pieces:
            client.receive_data(piece)
            while found.trailers is None and not isinstance(event := client.next_event(), type):
                match event:
                    case h11.InformationalResponse() | h11.Response():
                        found.heads.append((event.status_code, lowered(event.headers.raw_items())))
                    case h11.Data():
                        found.body += bytes(event.data)
                    case h11.EndOfMessage():
                        found.trailers = lowered(event.headers.raw_items())
                    case _:
                        return None
    except h11.RemoteProtocolError:
        return None
    is_clean = client.trailing_data == (b"", False)
    found.is_reusable = client.their_state is client.our_state is h11.DONE and is_clean
    return found


def lowered(headers: object) -> list[tuple[bytes, bytes]]:
    assert isinstance(headers, list | tuple)
    return [(bytes(name).lower(), bytes(value)) for name, value in headers]


def without_hop_by_hop(reading: Reading) -> None:
    """What we take out of heads and trailers is tested elsewhere; here it must not look like a difference."""
    for _, headers in reading.heads:
        named = {
            token.strip(b" \t").lower()
            for name, value in headers
            if name == b"connection"
            for token in value.split(b",")
        }
        headers[:] = [pair for pair in headers if pair[0] not in HOP_BY_HOP | named]
    if reading.trailers is not None:
        reading.trailers = [pair for pair in reading.trailers if pair[0] not in HOP_BY_HOP]


HEADERS = st.sampled_from(
    [
        b"Content-Length: 5",
        b"Content-Length: 0",
        b"Content-Length: 5, 5",
        b"Content-Length: +5",
        b"content-length:5 ",
        b"Transfer-Encoding: chunked",
        b"transfer-encoding: CHUNKED",
        b"Transfer-Encoding: gzip, chunked",
        b"Transfer-Encoding: identity",
        b"Connection: close",
        b"Connection: keep-alive, X-Own",
        b"Connection: upgrade",
        b"Upgrade: h2c",
        b"X-Own: 1",
        b"X: \xe4 \t y",
        b"Empty:",
        b"X: a\r\n folded",
        b"Name : x",
        b"no colon",
    ]
)
CHUNKS = st.sampled_from(
    [
        *(b"5\r\nHELLO\r\n", b"5;ext=1\r\nHELLO\r\n", b"005\r\nHELLO\r\n", b"a\r\n0123456789\r\n"),
        *(b"A\r\n0123456789\r\n", b"5 \r\nHELLO\r\n", b"5\nHELLO\n", b"5\r\nHELLO", b"0\r\n\r\n"),
        *(b"0\r\nX-Sum: 1\r\n\r\n", b"0\r\nX-Sum: 1\r\nX-Own: 2\r\n\r\n", b"00\r\n\r\n", b"0x5\r\nHELLO\r\n"),
        *(b"ffffffffffffffffff\r\n", b"-1\r\n", b"\r\n"),
    ]
)
STATUS_LINES = st.sampled_from(
    [
        *(OK, b"HTTP/1.1 204 No Content\r\n", b"HTTP/1.1 304 Not Modified\r\n", b"HTTP/1.0 200 OK\r\n"),
        *(b"HTTP/1.1 100 Continue\r\n", b"HTTP/1.1 103 Early Hints\r\n", b"HTTP/1.1 101 Switching\r\n"),
        *(b"HTTP/1.1 199 x\r\n", b"HTTP/1.1 200\r\n", b"HTTP/1.1 200 \r\n", b"HTTP/1.1 999 x\r\n"),
        *(
            b"HTTP/1.1 99 x\r\n",
            b"HTTP/1.1  200 OK\r\n",
            b"HTTP/2.0 200 OK\r\n",
            b"HTTP/1.1 200 OK\n",
            b"\r\n" + OK,
        ),
    ]
)
BODIES = st.lists(CHUNKS, max_size=4).map(b"".join) | st.sampled_from([b"", b"HELLO", b"HELLO\r\n", b"HELL"])


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    lines = draw(st.lists(HEADERS, max_size=3))
    head = draw(STATUS_LINES) + b"".join(line + b"\r\n" for line in lines) + b"\r\n"
    return head + draw(BODIES)


MUTANTS = st.sampled_from(
    [b"\r", b"\n", b"\r\n", b"\0", b" ", b"\t", b":", b";", b"0", b"1", b"\x80", b"x", b""]
)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    octets = draw(answers())
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(octets)))
        octets = octets[:at] + draw(MUTANTS) + octets[at + draw(st.integers(0, 2)) :]
    return octets


@st.composite
def in_pieces(draw: st.DrawFn) -> list[bytes]:
    octets = b"".join(draw(st.lists(mutated(), min_size=1, max_size=3)))
    cuts = sorted(draw(st.sets(st.integers(0, len(octets)), max_size=4)))
    pieces = [octets[a:b] for a, b in zip([0, *cuts], [*cuts, len(octets)], strict=True)]
    return [piece for piece in pieces if piece] + draw(st.sampled_from([[], [b""]]))


@given(st.sampled_from(["GET", "HEAD", "POST"]), in_pieces())
@example("GET", [CHUNKED + b"0\r\n\r\n\r\n"])
@example("GET", [CHUNKED + b"5\r\nHELLO\r\n0\r\n\r", b"\n", b""])
@example("GET", [CHUNKED + b"0\r\n\r\n" + OK + b"\r\n"])
@example("GET", [CHUNKED + b"0\r\n\r\n" + OK + b"\r\nHELLO"])
@example("GET", [OK + b"Content-Length: 5\r\n\r\nHELLO\r\n"])
@example("GET", [OK + b"Content-Length: 5\r\n\r\nHELL", b""])
@example("GET", [OK + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"])
@example("GET", [b"HTTP/1.1 199 x\r\nContent-Length: 5\r\n\r\nHELLO"])
@example("GET", [b"HTTP/1.1 100 Continue\r\n\r\n\r\n" + OK + b"\r\n"])
@example("HEAD", [OK + b"Content-Length: 5\r\n\r\nHELLO"])
@example("HEAD", [CHUNKED + b"0\r\n\r\n"])
@example("GET", [b"HTTP/1.1 304 x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"])
@example("GET", [OK + b"Connection: close\r\nContent-Length: 0\r\n\r\n" + OK])
def test_an_answer_that_is_not_refused_is_the_same_to_h11(method: str, pieces: list[bytes]) -> None:
    found = ours(method, pieces)
    if found is None:
        return
    expected = oracle(method, pieces)
    assert expected is not None
    without_hop_by_hop(found)
    without_hop_by_hop(expected)
    assert (found.heads, found.body, found.trailers) == (expected.heads, expected.body, expected.trailers)
    assert expected.is_reusable or not found.is_reusable


@given(
    st.lists(st.binary(min_size=1, max_size=40), max_size=5),
    st.sets(st.integers(0, 300), max_size=5),
    st.sampled_from([b"", b"", b" ", b"\t  "]),
)
def test_a_chunked_answer_is_read_however_it_is_cut(chunks: list[bytes], cuts: set[int], pad: bytes) -> None:
    sized = b"".join(b"%x%b\r\n%b\r\n" % (len(one), pad, one) for one in chunks)
    octets = CHUNKED + sized + b"0" + pad + b"\r\nX: 1\r\n\r\n"
    edges = [0, *sorted(cut for cut in cuts if cut < len(octets)), len(octets)]
    found = ours("GET", [octets[a:b] for a, b in itertools.pairwise(edges) if a < b])
    assert found is not None
    assert (found.body, found.trailers) == (b"".join(chunks), [(b"x", b"1")])
    assert found.is_reusable
