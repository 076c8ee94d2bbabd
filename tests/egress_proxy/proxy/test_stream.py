"""Rules of the plain stream: order, ends that are told apart, and no waiting of bytes or calls.

Real TCP on loopback. TLS over it is in test_tls.py.
See egress_proxy/proxy/stream.py.
"""

import asyncio
import contextlib
import hashlib
import socket
from collections.abc import Callable, Iterator

import pytest

from egress_proxy.proxy.socket_options import prepare
from egress_proxy.proxy.stream import (
    READ_BYTES,
    SocketStream,
    StreamReset,
    reset_on_close,
)
from tests.egress_proxy.proxy.socket_pairs import await_unread
from tests.egress_proxy.proxy.stream_ends import connected, until_readable
from tests.support.byte_stream import End, close_with_reset, read_end, read_exactly, read_until_end
from tests.support.deadline import DEFAULT_S
from tests.support.origins import pattern

BULK_BYTES = 16 * 1024 * 1024  # far beyond what the kernel holds for one connection


async def test_what_arrives_is_received_and_the_end_is_empty() -> None:
    with connected() as (ours, theirs):
        theirs.sendall(b"hello")
        theirs.shutdown(socket.SHUT_WR)
        assert await ours.receive() == b"hello"
        assert await ours.receive() == b""
        assert await ours.receive() == b""


async def test_one_read_brings_a_bounded_amount() -> None:
    with connected() as (ours, theirs):
        sending = asyncio.to_thread(theirs.sendall, pattern(BULK_BYTES))
        async with asyncio.TaskGroup() as group:
            group.create_task(sending)
            received, largest = hashlib.sha256(), 0
            left = BULK_BYTES
            while left:
                block = await ours.receive()
                received.update(block)
                largest, left = max(largest, len(block)), left - len(block)
        assert received.digest() == hashlib.sha256(pattern(BULK_BYTES)).digest()
        assert 0 < largest <= READ_BYTES


async def test_bytes_that_were_given_back_come_first_and_in_order() -> None:
    with connected() as (ours, theirs):
        theirs.sendall(b"later")
        ours.unread(b"second")
        ours.unread(b"first ")
        assert await ours.receive() == b"first second"
        assert await ours.receive() == b"later"


async def test_bytes_that_were_given_back_come_before_the_end() -> None:
    with connected() as (ours, theirs):
        theirs.shutdown(socket.SHUT_WR)
        ours.unread(b"rest")
        assert await ours.receive() == b"rest"
        assert await ours.receive() == b""


async def test_giving_nothing_back_is_no_end() -> None:
    with connected() as (ours, theirs):
        ours.unread(b"")
        theirs.sendall(b"x")
        assert await ours.receive() == b"x"


async def test_unread_bytes_are_taken_once() -> None:
    with connected() as (ours, _):
        ours.unread(b"rest")
        assert ours.take_unread() == b"rest"
        assert ours.take_unread() == b""


async def test_a_reset_is_no_end() -> None:
    with connected() as (ours, theirs):
        close_with_reset(theirs)
        with pytest.raises(StreamReset):
            await ours.receive()


async def test_a_reset_while_waiting_is_no_end() -> None:
    with connected() as (ours, theirs):
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(_outcome(ours))
            await asyncio.sleep(0)  # one turn of the loop: it waits now
            close_with_reset(theirs)
        assert waiting.result() is StreamReset


async def _outcome(stream: SocketStream) -> bytes | type[StreamReset]:
    try:
        return await stream.receive()
    except StreamReset:
        return StreamReset


async def test_sending_to_a_peer_that_reset_raises() -> None:
    with connected() as (ours, theirs):
        close_with_reset(theirs)
        await until_readable(ours.sock)
        with pytest.raises(StreamReset):
            await ours.send(b"x")


async def test_a_closed_stream_counts_as_broken() -> None:
    with connected() as (ours, _):
        ours.close()
        with pytest.raises(StreamReset):
            await ours.receive()
        with pytest.raises(StreamReset):
            await ours.send(b"x")


async def test_sending_waits_for_a_peer_that_does_not_read_and_loses_nothing() -> None:
    with connected() as (ours, theirs):
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(ours.send(pattern(BULK_BYTES)))
            done, _ = await asyncio.wait([sending], timeout=0.2)
            assert not done
            received = await asyncio.to_thread(read_exactly, theirs, BULK_BYTES)
        assert received == pattern(BULK_BYTES)


async def test_what_was_sent_before_close_is_delivered() -> None:
    with connected() as (ours, theirs):
        await ours.send(b"last words")
        ours.close()
        assert await asyncio.to_thread(read_until_end, theirs) == (b"last words", End.EOF)


async def test_an_aborted_stream_cannot_be_taken_for_complete() -> None:
    with connected() as (ours, theirs):
        ours.abort()
        assert await asyncio.to_thread(read_end, theirs) is End.RESET


async def test_the_end_of_our_output_leaves_the_other_direction_open() -> None:
    with connected() as (ours, theirs):
        await ours.send(b"question")
        ours.end_output()
        assert await asyncio.to_thread(read_until_end, theirs) == (b"question", End.EOF)
        theirs.sendall(b"answer")
        assert await ours.receive() == b"answer"


async def test_ending_our_output_of_a_broken_connection_is_harmless() -> None:
    with connected() as (ours, theirs):
        close_with_reset(theirs)
        with pytest.raises(StreamReset):
            await ours.receive()
        ours.end_output()
        ours.close()
        ours.end_output()
        reset_on_close(ours.sock)
        assert ours.sock.fileno() == -1


async def test_taking_tells_bytes_the_end_and_nothing_apart() -> None:
    with connected() as (ours, theirs):
        assert ours.take() is None
        theirs.sendall(b"bytes")
        await until_readable(ours.sock)
        assert ours.take() == b"bytes"
        ours.unread(b"held")
        assert ours.has_more()
        assert ours.take() == b"held"
        assert not ours.has_more()
        theirs.shutdown(socket.SHUT_WR)
        await until_readable(ours.sock)
        assert ours.take() == b""


async def test_taking_brings_no_more_than_it_may_and_the_rest_is_told_of_again() -> None:
    async with asyncio.timeout(DEFAULT_S):
        with connected() as (stream, theirs):
            theirs.sendall(b"x" * 2500)
            await asyncio.to_thread(await_unread, stream.sock, 2500)
            pieces = [stream.take(1000), stream.take(1000)]
            told = asyncio.Event()
            stream.look_on(told.set)
            await told.wait()
            pieces += [stream.take(1000), stream.take(1000)]
    assert pieces == [b"x" * 1000, b"x" * 1000, b"x" * 500, None]


async def test_taking_from_a_broken_connection_raises() -> None:
    with connected() as (ours, theirs):
        close_with_reset(theirs)
        await until_readable(ours.sock)
        with pytest.raises(StreamReset):
            ours.take()


async def test_an_idle_stream_is_quiet_however_often_one_looks() -> None:
    with connected() as (ours, theirs):
        assert ours.is_quiet()
        assert ours.is_quiet()
        theirs.sendall(b"x")
        assert await ours.receive() == b"x"
        assert ours.is_quiet()


async def test_a_stream_that_ended_or_broke_or_brought_something_is_not_quiet() -> None:
    for spoil in (
        lambda sock: sock.sendall(b"HTTP/1.1 408 Request Timeout\r\n"),
        lambda sock: sock.shutdown(socket.SHUT_WR),
        close_with_reset,
    ):
        with connected() as (ours, theirs):
            spoil(theirs)
            await until_readable(ours.sock)
            assert not ours.is_quiet()


async def test_bytes_given_back_are_not_quiet() -> None:
    with connected() as (ours, _):
        ours.unread(b"x")
        assert not ours.is_quiet()


async def test_a_cancelled_read_leaves_the_stream_usable() -> None:
    with connected() as (ours, theirs):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await ours.receive()
        theirs.sendall(b"still here")
        assert await ours.receive() == b"still here"


async def test_an_urgent_byte_is_a_byte_in_its_place() -> None:
    with connected() as (ours, theirs):
        theirs.sendall(b"before")
        theirs.send(b"!", socket.MSG_OOB)
        theirs.sendall(b"after")
        theirs.shutdown(socket.SHUT_WR)
        received = b""
        while block := await ours.receive():
            received += block
        assert received == b"before!after"


async def test_a_unix_socket_can_be_prepared_and_used() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        prepare(ours)
        stream = SocketStream(asyncio.get_running_loop(), ours)
        theirs.sendall(b"x")
        assert await stream.receive() == b"x"
        stream.end_output()
        assert theirs.recv(1) == b""


# How long a wait may take, and who hears of input meanwhile.


async def test_a_wait_ends_when_its_time_is_over_and_the_stream_goes_on() -> None:
    with connected() as (ours, theirs):
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await ours.receive(0.01)
        theirs.sendall(b"late")
        assert await ours.receive(DEFAULT_S) == b"late"


async def test_a_short_wait_behind_a_long_one_is_short() -> None:
    with connected() as (ours, theirs):
        theirs.sendall(b"x")
        assert await ours.receive(10 * DEFAULT_S) == b"x"
        with pytest.raises(TimeoutError):
            await ours.receive(0.01)


async def test_the_time_of_an_earlier_wait_ends_no_later_one() -> None:
    with connected() as (ours, theirs):
        theirs.sendall(b"x")
        assert await ours.receive(0.05) == b"x"
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(ours.receive(DEFAULT_S))
            done, _ = await asyncio.wait({waiting}, timeout=0.1)  # the promise is about time that passes
            assert not done
            theirs.sendall(b"y")
        assert waiting.result() == b"y"


async def test_sending_has_its_time_too() -> None:
    with connected() as (ours, _), pytest.raises(TimeoutError):
        await ours.send(bytes(BULK_BYTES), 0.05)


async def test_an_onlooker_hears_of_input_that_nobody_waits_for_and_takes_nothing() -> None:
    with connected() as (ours, theirs):
        heard = asyncio.Event()
        ours.look_on(heard.set)
        theirs.sendall(b"x")
        await asyncio.wait_for(heard.wait(), DEFAULT_S)
        ours.look_on(None)
        assert await ours.receive(DEFAULT_S) == b"x"


async def test_input_that_nobody_waits_for_does_not_keep_the_loop_busy() -> None:
    with connected() as (ours, theirs):
        theirs.sendall(b"x")
        assert await ours.receive(DEFAULT_S) == b"x"
        theirs.sendall(b"y")
        await until_readable(ours.sock)
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0)
        assert loop.remove_reader(ours.sock.fileno()) is False
        assert await ours.receive(DEFAULT_S) == b"y"


async def test_a_new_onlooker_hears_of_what_an_earlier_one_left() -> None:
    with connected() as (ours, theirs):
        first, second = asyncio.Event(), asyncio.Event()
        ours.look_on(first.set)
        theirs.sendall(b"x")
        await asyncio.wait_for(first.wait(), DEFAULT_S)
        ours.look_on(None)
        await asyncio.sleep(0)  # one turn of the loop: it is told while nobody looks on
        ours.look_on(second.set)
        await asyncio.wait_for(second.wait(), DEFAULT_S)
        assert ours.take() == b"x"


async def test_nobody_can_look_on_a_closed_stream() -> None:
    with connected() as (ours, _):
        ours.close()
        with pytest.raises(StreamReset):
            ours.look_on(lambda: None)


# Giving without waiting.


def is_watched_for_room(stream: SocketStream) -> bool:
    """Whether the loop waits for room to write; asked of a stream that is done with."""
    return asyncio.get_running_loop().remove_writer(stream.sock.fileno())


@contextlib.contextmanager
def clogged() -> Iterator[tuple[SocketStream, socket.socket]]:
    """Our end with BULK_BYTES given, and a peer that has read nothing of it."""
    with connected() as (ours, theirs):
        ours.give(pattern(BULK_BYTES))
        yield ours, theirs


async def test_what_a_peer_takes_at_once_does_not_clog_and_nobody_is_told() -> None:
    with connected() as (ours, theirs):
        told: list[None] = []
        ours.on_room = lambda: told.append(None)
        ours.give(b"short")
        assert not ours.is_clogged()
        assert await asyncio.to_thread(read_exactly, theirs, 5) == b"short"
        assert not is_watched_for_room(ours)
        assert told == []


async def test_what_does_not_go_out_at_once_goes_out_in_order_and_whoever_gave_it_is_told() -> None:
    with clogged() as (ours, theirs):
        gone = asyncio.Event()
        ours.on_room = gone.set
        assert ours.is_clogged()
        ours.give(b"last words")
        received = await asyncio.to_thread(read_exactly, theirs, BULK_BYTES + 10)
        assert received == pattern(BULK_BYTES) + b"last words"
        await asyncio.wait_for(gone.wait(), DEFAULT_S)
        assert not ours.is_clogged()
        assert not ours.is_broken()
        assert not is_watched_for_room(ours)


async def test_a_peer_that_resets_while_something_waits_for_room_breaks_the_stream() -> None:
    with clogged() as (ours, theirs):
        told = asyncio.Event()
        ours.on_room = told.set
        assert not ours.is_broken()
        close_with_reset(theirs)
        await asyncio.wait_for(told.wait(), DEFAULT_S)
        assert ours.is_broken()
        assert not ours.is_clogged()  # it will never go out: nobody may wait for that
        assert not is_watched_for_room(ours)


async def test_giving_to_a_peer_that_reset_raises() -> None:
    with connected() as (ours, theirs):
        close_with_reset(theirs)
        await until_readable(ours.sock)
        with pytest.raises(StreamReset):
            ours.give(b"x")


@pytest.mark.parametrize("end", [SocketStream.close, SocketStream.abort, SocketStream.release])
async def test_ending_a_clogged_stream_leaves_nothing_in_the_loop(
    end: Callable[[SocketStream], None],
) -> None:
    """A descriptor that is still registered would be the next connection's of that number."""
    with clogged() as (ours, _):
        told: list[None] = []
        ours.on_room = lambda: told.append(None)
        ours.look_on(lambda: None)
        ours.deadline.set(DEFAULT_S, lambda: told.append(None))
        number = ours.sock.fileno()
        end(ours)
        loop = asyncio.get_running_loop()
        assert loop.remove_writer(number) is False
        assert loop.remove_reader(number) is False
        assert all(timer.cancelled() for timer in loop._scheduled)  # type: ignore[attr-defined]
        assert not ours.is_clogged()
        await asyncio.sleep(0)
        assert told == []


async def test_a_stream_that_takes_turns_with_its_peer_is_watched_once_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each change of what is watched is a system call."""
    loop = asyncio.get_running_loop()
    watched: list[int] = []
    add_reader = loop.add_reader

    def count(descriptor: int, *rest: object) -> None:
        watched.append(descriptor)
        add_reader(descriptor, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "add_reader", count)
    with connected() as (ours, theirs):
        for _ in range(10):
            theirs.sendall(b"x")
            assert await ours.receive(DEFAULT_S) == b"x"
            await ours.send(b"y")
            ours.look_on(lambda: None)
            ours.look_on(None)
        assert watched == [ours.sock.fileno()]


async def test_a_released_socket_is_watched_no_more() -> None:
    with connected() as (ours, theirs):
        theirs.sendall(b"x")
        assert await ours.receive(DEFAULT_S) == b"x"
        sock = ours.release()
        assert asyncio.get_running_loop().remove_reader(sock.fileno()) is False
        theirs.sendall(b"y")
        assert await asyncio.get_running_loop().sock_recv(sock, 1) == b"y"
