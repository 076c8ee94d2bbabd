"""Rules of a polite end: the answer arrives whatever the client still sends, and nobody is waited for long.

Real TCP on loopback, where a reset would overtake the answer.
See egress_proxy/proxy/closing.py.
"""

import asyncio
import socket
import time

import pytest

from egress_proxy.proxy import closing
from egress_proxy.proxy.closing import LINGER_S, close_politely
from tests.egress_proxy.proxy.stream_ends import connected, descriptors
from tests.support.byte_stream import End, close_with_reset, end_direction, read_until_end

ANSWER = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
MARGIN_S = 1.0


async def test_a_client_that_reads_and_leaves_is_left_at_once() -> None:
    with connected() as (ours, theirs):
        await ours.send(ANSWER)
        reading = asyncio.to_thread(_read_and_close, theirs)
        begun = time.monotonic()
        async with asyncio.TaskGroup() as group:
            answer = group.create_task(reading)
            await close_politely(ours)
        assert time.monotonic() - begun < MARGIN_S
        assert answer.result() == (ANSWER, End.EOF)
        assert ours.sock.fileno() == -1


def _read_and_close(sock: socket.socket) -> tuple[bytes, End]:
    answer = read_until_end(sock)
    sock.close()
    return answer


@pytest.mark.parametrize("upload_bytes", [1, 100_000, 8 * 1024 * 1024])
async def test_the_answer_arrives_though_the_client_is_in_the_middle_of_its_body(upload_bytes: int) -> None:
    """RFC 9112 9.6: had we closed with its bytes unread, a reset would have thrown the answer away."""
    with connected() as (ours, theirs):

        def upload_first() -> tuple[bytes, End]:
            theirs.sendall(b"x" * upload_bytes)
            end_direction(theirs)
            return read_until_end(theirs)

        async with asyncio.TaskGroup() as group:
            answer = group.create_task(asyncio.to_thread(upload_first))
            await ours.send(ANSWER)
            await close_politely(ours)
        assert answer.result() == (ANSWER, End.EOF)


async def test_bytes_that_were_given_back_are_thrown_away_too() -> None:
    with connected() as (ours, theirs):
        ours.unread(b"GET / HTTP/1.1\r\n\r\n")
        await ours.send(ANSWER)
        end_direction(theirs)
        await close_politely(ours)
        assert await asyncio.to_thread(read_until_end, theirs) == (ANSWER, End.EOF)


@pytest.mark.parametrize("is_sending", [False, True])
async def test_a_client_that_does_not_leave_is_waited_for_no_longer_than_stated(
    is_sending: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert LINGER_S == 2.0
    monkeypatch.setattr(closing, "LINGER_S", 0.3)
    with connected() as (ours, theirs):
        before = descriptors()
        begun = time.monotonic()
        async with asyncio.TaskGroup() as group:
            trickle = group.create_task(_trickle(theirs)) if is_sending else None
            await close_politely(ours)
            if trickle is not None:
                trickle.cancel()
        assert 0.3 <= time.monotonic() - begun < 0.3 + MARGIN_S
        assert descriptors() == before - 1


async def _trickle(sock: socket.socket) -> None:
    """A byte now and then, so that something is always on its way."""
    while True:
        sock.send(b"x")
        await asyncio.sleep(0.01)


async def test_an_endless_upload_is_cut_off_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closing, "LINGER_BYTES", 200_000)
    monkeypatch.setattr(closing, "LINGER_S", 10.0)
    with connected() as (ours, theirs):

        def upload() -> int:
            sent = 0
            try:
                while True:
                    sent += theirs.send(b"x" * 65_536)
            except OSError:
                return sent

        begun = time.monotonic()
        async with asyncio.TaskGroup() as group:
            sent = group.create_task(asyncio.to_thread(upload))
            await close_politely(ours)
        assert time.monotonic() - begun < MARGIN_S
        assert sent.result() > 200_000


async def test_a_client_that_resets_is_let_go() -> None:
    with connected() as (ours, theirs):
        close_with_reset(theirs)
        await close_politely(ours)
        assert ours.sock.fileno() == -1
