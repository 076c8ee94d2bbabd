"""When an answer's bytes go on: at once, after their time, when the client has room, or in a later turn.

Streams are scripted and the loop is real. Over sockets: test_exchange.py; what goes on: test_answering.py.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable
from typing import cast

import pytest

from egress_proxy.core.request import parse_head
from egress_proxy.proxy.answering import Answering
from egress_proxy.proxy.client_side import ClientSide
from egress_proxy.proxy.delivery import HOLD_S, ClientLost, Delivery
from egress_proxy.proxy.http1 import UpstreamSide
from egress_proxy.proxy.secret_search import Forms
from egress_proxy.proxy.stream import SocketStream, Stream, StreamReset
from tests.support.answers import chunk, head

HEAD = head(200, [("Transfer-Encoding", "chunked")])


class Upstream:
    """Gives what it is told to, when it is told to."""

    def __init__(self) -> None:
        self.onlooker: Callable[[], None] | None = None
        self._reads: list[bytes] = []

    def says(self, *reads: bytes) -> None:
        self._reads += reads
        assert self.onlooker is not None
        self.onlooker()

    def take(self, limit_bytes: int | None = None) -> bytes | None:
        return self._reads.pop(0) if self._reads else None

    def has_more(self) -> bool:
        return bool(self._reads)

    def look_on(self, onlooker: Callable[[], None] | None) -> None:
        self.onlooker = onlooker

    def is_looked_on(self) -> bool:
        return self.onlooker is not None


class Client:
    """Remembers what it was given."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.is_full = self.is_gone = False
        self.was_given = asyncio.Event()

    def give(self, data: bytes) -> None:
        if self.is_gone:
            raise StreamReset
        self.got.append(data)
        self.was_given.set()

    def is_clogged(self) -> bool:
        return self.is_full

    def is_broken(self) -> bool:
        return self.is_gone


class Play:
    """One delivery between the two, after the answer's head."""

    def __init__(self, before: bytes = HEAD) -> None:
        self.upstream, self.client = Upstream(), Client()
        self.steps: list[bool] = []
        self.errors: list[Exception] = []
        self.is_over = False
        http = UpstreamSide()
        http.start("GET", b"/", [(b"Host", b"x")])
        http.end()
        side = ClientSide(parse_head(b"GET http://x/ HTTP/1.1\r\n\r\n"), 0)
        forms = Forms((b"sk-CANARY-123",))
        self.delivery = Delivery(
            cast("SocketStream", self.client),
            cast("Stream", self.upstream),
            Answering(http, side, forms, is_head=False, opaque_bodies=False),
            drive=self._drive,
            on_step=self.steps.append,
            on_over=self._end,
        )
        self.delivery.start()
        self.upstream.says(before)
        self.client.got.clear()
        self.client.was_given.clear()

    def _drive(self, step: Callable[[], None]) -> None:
        try:
            step()
        except ClientLost as error:
            self.errors.append(error)

    def _end(self) -> None:
        self.is_over = True


async def test_text_up_to_a_line_end_goes_on_at_once() -> None:
    play = Play()
    play.upstream.says(chunk(b"data: 1\n\n"))
    assert play.client.got == [chunk(b"data: 1\n\n")]


async def test_other_text_goes_on_by_itself_after_its_time() -> None:
    play = Play()
    play.upstream.says(chunk(b"no line end"))
    assert play.client.got == []
    await asyncio.wait_for(play.client.was_given.wait(), 5)
    assert play.client.got == [chunk(b"no line end")]


async def test_other_text_goes_on_with_what_completes_its_line() -> None:
    play = Play()
    play.upstream.says(chunk(b"one "), chunk(b"line\n"))
    assert play.client.got == [chunk(b"one line\n")]


async def test_the_time_of_an_earlier_byte_does_not_part_a_secret_from_its_end() -> None:
    play, loop = Play(), asyncio.get_running_loop()
    play.upstream.says(chunk(b"x"))
    due_at = loop.time() + HOLD_S
    while loop.time() <= due_at:
        pass
    play.upstream.says(chunk(b"sk-CANARY"))
    await asyncio.sleep(0)  # what is due runs
    await asyncio.sleep(0)
    play.upstream.says(chunk(b"-123"), b"0\r\n\r\n")
    got = b"".join(play.client.got)
    assert b"sk-" not in got
    assert got.count(b"*") == len("sk-CANARY-123")


async def test_the_end_of_the_answer_waits_for_nothing() -> None:
    play = Play()
    play.upstream.says(chunk(b"all") + b"0\r\n\r\n")
    assert play.client.got == [chunk(b"all") + b"0\r\n\r\n"]
    assert play.is_over


async def test_a_client_without_room_gets_what_waited_when_it_has_some() -> None:
    play = Play()
    play.client.is_full = True
    play.upstream.says(chunk(b"no line end"))
    assert not play.upstream.is_looked_on()
    play.client.is_full = False
    play.delivery.go_on()
    assert play.upstream.is_looked_on()
    await asyncio.wait_for(play.client.was_given.wait(), 5)
    assert play.client.got == [chunk(b"no line end")]


async def test_others_have_their_turn_while_a_bomb_is_looked_at() -> None:
    bomb = gzip.compress(bytes(3_000_000), 9, mtime=0)
    play = Play(head(200, [("Content-Encoding", "gzip"), ("Content-Length", str(len(bomb)))]))
    turns = 0
    play.upstream.says(bomb)
    while not play.is_over:
        assert not play.upstream.is_looked_on()
        await asyncio.sleep(0)
        turns += 1
    assert turns > 10
    assert b"".join(play.client.got) == bomb


async def test_a_client_that_is_gone_is_lost() -> None:
    play = Play()
    play.client.is_gone = True
    play.upstream.says(chunk(b"x\n"))
    assert [type(error) for error in play.errors] == [ClientLost]
    with pytest.raises(ClientLost):
        play.delivery.go_on()


async def test_after_a_stop_nothing_is_sent() -> None:
    play = Play()
    play.upstream.says(chunk(b"no line end"))
    play.delivery.stop()
    play.delivery.go_on()
    await asyncio.sleep(0.01)
    assert play.client.got == []
