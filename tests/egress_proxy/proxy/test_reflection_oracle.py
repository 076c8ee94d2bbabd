"""Whoever makes an upstream repeat guesses at the credential learns nothing from what comes back, and when.

The guesser has its own text in every kind of body, cut as it likes, and sees every piece that it gets: its
size, its turn, and whether it came by itself or waited for its time. It is given the true beginning of the
key, of every length, and compares the right next character with wrong ones. Time is ours here, so that it is
exact; with real time: the last test. See egress_proxy/proxy/reflection.py.
"""

from __future__ import annotations

import random
import string
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pytest

from egress_proxy.core.request import parse_head
from egress_proxy.proxy.answering import Answering
from egress_proxy.proxy.client_side import ClientSide
from egress_proxy.proxy.http1 import UpstreamSide
from egress_proxy.proxy.secret_search import Forms
from tests.conftest import Start
from tests.egress_proxy.proxy.brokers import SECRET, broker, call
from tests.support.answers import chunk, head
from tests.support.http import read_chunk, read_head
from tests.support.live_stream import LiveStream
from tests.support.provider import Provider

ALPHABET = string.ascii_letters + string.digits
RANDOM = random.Random(20_261_201)
KEY = "sk-ant-api03-" + "".join(RANDOM.choices(ALPHABET, k=35))
VALUE = f"Bearer {KEY}"
FORMS = Forms((VALUE.encode(), KEY.encode()))
REQUESTS_EACH = 5_000


@dataclass(frozen=True, slots=True)
class Body:
    """How text is sent: what stands before it, and how a piece of it looks on the wire."""

    before: bytes
    wrap: Callable[[Sequence[bytes]], Iterator[bytes]]
    encoded: bool = False


def as_chunks(texts: Sequence[bytes]) -> Iterator[bytes]:
    return map(chunk, texts)


def as_it_is(texts: Sequence[bytes]) -> Iterator[bytes]:
    return iter(texts)


def as_gzip(texts: Sequence[bytes]) -> Iterator[bytes]:
    """Stored, so that how well a text compresses says nothing: that is the guesser's own affair."""
    stream = zlib.compressobj(0, wbits=31)
    for text in texts:
        yield chunk(stream.compress(text) + stream.flush(zlib.Z_SYNC_FLUSH))


CHUNKED = ("Transfer-Encoding", "chunked")
EVENTS = ("Content-Type", "text/event-stream")
BODIES = {
    "chunked": Body(head(200, [CHUNKED]), as_chunks),
    "of a length": Body(head(200, [("Content-Length", "1000000")]), as_it_is),
    "until it closes": Body(head(200, []), as_it_is),
    "gzip": Body(head(200, [CHUNKED, ("Content-Encoding", "gzip")]), as_gzip),
    "events": Body(head(200, [CHUNKED, EVENTS]), as_chunks),
}
# A guess alone, with text on both sides, at the end of an event, its last character by itself, broken up.
CUTS: dict[str, Callable[[bytes], list[bytes]]] = {
    "alone": lambda guess: [guess],
    "after text": lambda guess: [b"x" * 300 + guess, b"y"],
    "event": lambda guess: [b"data: " + guess + b"\n\n", b"data: y\n\n"],
    "last apart": lambda guess: [guess[:-1], guess[-1:], b"|"],
    "in two": lambda guess: [guess[: len(guess) // 2], guess[len(guess) // 2 :], b"|\n"],
    "byte by byte": lambda guess: [guess[at : at + 1] for at in range(max(0, len(guess) - 4), len(guess))],
}

Seen = list[tuple[str, int]]


def seen(body: Body, texts: Sequence[bytes], *, waits: bool) -> Seen:
    """Sizes of all that the client gets, each with what set it off; ``waits``: every piece has its time."""
    http = UpstreamSide()
    http.start("GET", b"/", [(b"Host", b"x")])
    http.end()
    side = ClientSide(parse_head(b"GET http://x/ HTTP/1.1\r\n\r\n"), 0)
    answering = Answering(http, side, FORMS, is_head=False, opaque_bodies=False)
    got: Seen = [("head", len(answering.take_in(body.before)))]
    for piece in body.wrap(texts):
        got.append(("at once", len(answering.take_in(piece))))
        while answering.is_behind:
            got.append(("next turn", len(answering.go_on())))
        if waits and answering.holds:
            got.append(("after its time", len(answering.let_go())))
    got.append(("held", int(answering.holds)))
    return got


def guesses() -> Iterator[tuple[bytes, list[bytes]]]:
    """The right text of every length, in what a provider could be made to say, and wrong ones beside it."""
    for spelled in (KEY, VALUE, f'"{KEY}', KEY[len("sk-ant-api03-") :]):
        for known in range(1, len(spelled) - 1):
            right, start = spelled[: known + 1], spelled[:known]
            wrong = RANDOM.sample([one for one in ALPHABET if one != right[-1]], 2)
            yield right.encode(), [(start + one).encode() for one in wrong]


@pytest.mark.parametrize("kind", BODIES)
def test_right_and_wrong_guesses_cannot_be_told_apart_by_sizes_or_turns(kind: str) -> None:
    asked = 0
    for right, wrong in guesses():
        for cut in CUTS.values():
            for waits in (False, True):
                shown = [seen(BODIES[kind], cut(guess), waits=waits) for guess in (right, *wrong)]
                assert shown[0] == shown[1] == shown[2], (right, kind)
                asked += len(shown)
    assert asked > REQUESTS_EACH


@pytest.mark.parametrize("kind", ["chunked", "of a length", "until it closes", "events"])
def test_the_whole_key_is_masked_all_the_same(kind: str) -> None:
    """Without this a guard that lets everything pass would be the best."""
    http = UpstreamSide()
    http.start("GET", b"/", [(b"Host", b"x")])
    http.end()
    side = ClientSide(parse_head(b"GET http://x/ HTTP/1.1\r\n\r\n"), 0)
    answering = Answering(http, side, FORMS, is_head=False, opaque_bodies=False)
    answering.take_in(BODIES[kind].before)
    pieces = [f"<{KEY[:20]}".encode(), f"{KEY[20:]}>\n".encode()]
    out = b"".join(answering.take_in(piece) for piece in BODIES[kind].wrap(pieces))
    assert b"<" + b"*" * len(KEY) + b">" in out


def test_a_right_guess_takes_no_other_time_than_a_wrong_one(
    start: Start,
) -> None:
    """By chance alone the right one is slower in half of the rounds: of 60 in 11 to 49, but for one run of a
    million."""
    stream, rounds, slower = LiveStream(), 60, 0
    provider = start(Provider())
    provider.otherwise(stream)
    caller = call(start(broker(provider)))
    caller.send("GET", "/events")
    read_head(caller.sock)
    for number in range(rounds):
        known = 2 + number % (len(SECRET) - 4)
        right = SECRET[: known + 1]
        wrong = right[:-1] + RANDOM.choice([one for one in ALPHABET if one != right[-1]])
        took: dict[str, float] = {}
        for guess in RANDOM.sample([right, wrong], 2):
            stream.push(b"\n")
            assert read_chunk(caller.sock) == b"\n"
            started = time.perf_counter()
            stream.push(f"> {guess}".encode())
            assert read_chunk(caller.sock) == f"> {guess}".encode()
            took[guess] = time.perf_counter() - started
        slower += took[right] > took[wrong]
    assert 10 < slower < 50
