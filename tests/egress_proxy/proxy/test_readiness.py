"""Tunnels driven by the event loop: whatever either side does, the other hears of it, and nothing is left.

Every rule holds for both drivers, LoopReadiness and EpollReadiness. One turn is judged in test_relay.py.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import os
import random
import select
import socket
import threading
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from egress_proxy.core.events import EndCause, Ended
from tests.egress_proxy.proxy.live_tunnels import LiveTunnel, open_tunnel
from tests.egress_proxy.proxy.socket_pairs import await_event, fill
from tests.support.byte_stream import (
    BLOCK_BYTES,
    End,
    close_with_reset,
    read_end,
    read_exactly,
    read_some,
    read_until_end,
)
from tests.support.data_port import TUNNELS, DataPort
from tests.support.deadline import DEFAULT_S, eventually
from tests.support.origins import pattern, pattern_sha256
from tests.support.proc_figures import open_descriptors

BULK_BYTES = 8_000_000
SERVER_HELLO = b"\x16\x03\x01\x00\x06\x02\x00\x00\x02\x03\x03"  # TLS, and nothing that a client says first
# The table is looked through four times within its shortest limit.
OFTEN_SWEPT = dataclasses.replace(TUNNELS, hello_s=0.4)
Side = str


@pytest.fixture(params=["loop", "epoll"])
def port(request: pytest.FixtureRequest) -> Iterator[DataPort]:
    with DataPort(relay=request.param, tunnels=OFTEN_SWEPT) as started:
        yield started


def ends_of(tunnel: LiveTunnel, side: Side) -> tuple[socket.socket, socket.socket]:
    """The end of that side, and the other one."""
    ends = (tunnel.client, tunnel.upstream)
    return ends if side == "client" else ends[::-1]


@contextlib.contextmanager
def sending(sock: socket.socket, total_bytes: int, *, then_end: bool = True) -> Iterator[list[OSError]]:
    """Send so much of the pattern from a thread, as fast as it is taken; gives what went wrong with it."""
    failed: list[OSError] = []

    def send() -> None:
        try:
            left = total_bytes
            while left > 0:
                block = pattern(min(left, BLOCK_BYTES + 1))
                sock.sendall(block)
                left -= len(block)
            if then_end:
                sock.shutdown(socket.SHUT_WR)
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=send, name="support-sender", daemon=True)
    thread.start()
    try:
        yield failed
    finally:
        thread.join(DEFAULT_S)


def digest_to_end(sock: socket.socket) -> tuple[int, str]:
    count, digest = 0, hashlib.sha256()
    while block := read_some(sock):
        count += len(block)
        digest.update(block)
    return count, digest.hexdigest()


def test_bulk_arrives_whole_in_both_directions_at_once(port: DataPort) -> None:
    tunnel = open_tunnel(port)
    with sending(tunnel.client, BULK_BYTES), sending(tunnel.upstream, BULK_BYTES):
        received: list[tuple[int, str]] = []
        reader = threading.Thread(target=lambda: received.append(digest_to_end(tunnel.client)))
        reader.start()
        assert digest_to_end(tunnel.upstream) == (BULK_BYTES, pattern_sha256(BULK_BYTES))
        reader.join(5)
    assert received == [(BULK_BYTES, pattern_sha256(BULK_BYTES))]
    ended = port.log.only(Ended)
    assert (ended.cause, ended.bytes_out, ended.bytes_in) == (EndCause.DONE, BULK_BYTES, BULK_BYTES)


def test_many_small_messages_take_turns(port: DataPort) -> None:
    tunnel = open_tunnel(port)
    for number in range(300):
        message = b"%d\n" % number
        speaker, listener = ends_of(tunnel, "client" if number % 2 else "upstream")
        speaker.sendall(message)
        assert read_exactly(listener, len(message)) == message


def test_early_bytes_are_sent_without_a_further_word_of_the_client(port: DataPort) -> None:
    tunnel = open_tunnel(port, early=b"HELLO")
    assert read_exactly(tunnel.upstream, 5) == b"HELLO"


def test_early_bytes_that_do_not_fit_at_once_come_whole(port: DataPort) -> None:
    tunnel = open_tunnel(port, early=pattern(400_000), small=True)
    assert read_exactly(tunnel.upstream, 400_000) == pattern(400_000)
    tunnel.client.sendall(b"later")
    assert read_exactly(tunnel.upstream, 5) == b"later"


def test_a_server_may_speak_first(port: DataPort) -> None:
    tunnel = open_tunnel(port)
    tunnel.upstream.sendall(b"SSH-2.0-test\r\n")
    assert read_exactly(tunnel.client, 14) == b"SSH-2.0-test\r\n"


@pytest.mark.parametrize("side", ["client", "upstream"])
def test_after_one_side_ended_its_direction_the_other_may_answer_and_end(port: DataPort, side: Side) -> None:
    tunnel = open_tunnel(port)
    first, second = ends_of(tunnel, side)
    first.sendall(b"question")
    first.shutdown(socket.SHUT_WR)
    assert read_until_end(second) == (b"question", End.EOF)
    second.sendall(b"a" * 40)
    assert read_exactly(first, 40) == b"a" * 40
    second.sendall(b"b" * 300_000)
    second.shutdown(socket.SHUT_WR)
    assert read_until_end(first) == (b"b" * 300_000, End.EOF)
    assert port.log.only(Ended).cause is EndCause.DONE


def test_an_end_behind_bytes_that_wait_is_not_lost(port: DataPort) -> None:
    tunnel = open_tunnel(port, small=True)
    with sending(tunnel.client, 1_000_000):
        assert digest_to_end(tunnel.upstream) == (1_000_000, pattern_sha256(1_000_000))


# Resets, in every state of a tunnel.


def idle(tunnel: LiveTunnel, side: Side) -> None:
    """Nothing has been said."""


def talked(tunnel: LiveTunnel, side: Side) -> None:
    for one, other in (ends_of(tunnel, "client"), ends_of(tunnel, "upstream")):
        one.sendall(b"hello")
        read_exactly(other, 5)


def half_closed(tunnel: LiveTunnel, side: Side) -> None:
    """The side that will break has ended its direction before."""
    mine, other = ends_of(tunnel, side)
    mine.shutdown(socket.SHUT_WR)
    assert read_end(other) is End.EOF


def half_closed_by_the_other(tunnel: LiveTunnel, side: Side) -> None:
    mine, other = ends_of(tunnel, side)
    other.shutdown(socket.SHUT_WR)
    assert read_end(mine) is End.EOF


def pending(tunnel: LiveTunnel, side: Side) -> None:
    """The side that will break has sent more than the other one takes."""
    mine, _ = ends_of(tunnel, side)
    fill(mine)


def pending_for_it(tunnel: LiveTunnel, side: Side) -> None:
    """The other side has sent more than the one that will break takes."""
    _, other = ends_of(tunnel, side)
    fill(other)


STATES = [idle, talked, half_closed, half_closed_by_the_other, pending, pending_for_it]


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
@pytest.mark.parametrize("side", ["client", "upstream"])
def test_a_reset_is_passed_on_as_a_reset_in_every_state(
    port: DataPort, side: Side, state: Callable[[LiveTunnel, Side], None]
) -> None:
    before = port.registered_descriptors()
    tunnel = open_tunnel(port, small=True)
    mine, other = ends_of(tunnel, side)
    state(tunnel, side)
    close_with_reset(mine)
    assert port.log.only(Ended).cause == f"{side}_reset"
    assert is_reset(other)
    assert port.registered_descriptors() == before


def is_reset(sock: socket.socket) -> bool:
    """Whether the connection was reset, which a read does not tell of once the other side had ended it."""
    await_event(sock, select.POLLHUP)
    told = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    return told in (errno.ECONNRESET, errno.EPIPE)


@pytest.mark.parametrize("side", ["client", "upstream"])
def test_an_answer_in_front_of_a_reset_reaches_a_side_that_is_still_sending(
    port: DataPort, side: Side
) -> None:
    tunnel = open_tunnel(port)
    mine, other = ends_of(tunnel, side)
    with sending(other, 1_000_000_000) as failed:
        read_exactly(mine, 100_000)
        mine.sendall(b"HTTP/1.1 413 Too Large\r\n\r\n")
        close_with_reset(mine)
        answer, end = read_until_end(other)
    assert answer == b"HTTP/1.1 413 Too Large\r\n\r\n"
    # The kernel tells of a reset once: the reader or the sender. A FIN before it would give EPIPE.
    assert end is End.RESET or isinstance(failed[0], ConnectionResetError)


# Back-pressure.


def test_a_source_without_end_beside_a_reader_that_reads_nothing_costs_no_memory(port: DataPort) -> None:
    tunnels = [open_tunnel(port, small=True) for _ in range(4)]
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number, tunnel in enumerate(tunnels):
            fill(tunnel.client if number % 2 else tunnel.upstream)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < 4 * 1_048_576  # under 1 MiB each, the test's own blocks included
    assert port.table.count().open == 4


def test_a_flow_that_waits_for_its_sink_is_not_woken_by_its_source() -> None:
    """Of LoopReadiness alone: what is readable or writable all the time would be reported all the time."""
    with DataPort() as port:
        before = port.registered_descriptors()
        tunnel = open_tunnel(port, small=True)
        assert (port.registered_descriptors(), port.watched_for_writing()) == (before + 2, 0)
        sent = fill(tunnel.upstream)
        assert (port.registered_descriptors(), port.watched_for_writing()) == (before + 1, 1)
        assert len(read_exactly(tunnel.client, sent)) == sent
        eventually(lambda: port.watched_for_writing() == 0)
        assert port.registered_descriptors() == before + 2


def test_what_waited_for_a_slow_reader_comes_whole_once_it_reads(port: DataPort) -> None:
    tunnel = open_tunnel(port, small=True)
    sent = fill(tunnel.upstream)
    tunnel.upstream.shutdown(socket.SHUT_WR)
    assert digest_to_end(tunnel.client) == (sent, pattern_sha256(sent))


def test_a_small_tunnel_is_served_beside_bulk_ones(port: DataPort) -> None:
    bulk = [open_tunnel(port) for _ in range(4)]
    small = open_tunnel(port)
    with contextlib.ExitStack() as stack:
        for tunnel in bulk:
            stack.enter_context(sending(tunnel.upstream, 1 << 40, then_end=False))
            stack.enter_context(draining(tunnel.client))
            stack.callback(close_with_reset, tunnel.upstream)
        for number in range(50):
            message = b"%d\n" % number
            small.client.sendall(message)
            assert read_exactly(small.upstream, len(message)) == message


@contextlib.contextmanager
def draining(sock: socket.socket) -> Iterator[None]:
    def drain() -> None:
        with contextlib.suppress(OSError):
            while sock.recv(1 << 20):
                pass

    thread = threading.Thread(target=drain, name="support-drain", daemon=True)
    thread.start()
    yield
    thread.join(5)


# Nothing is left.


def end_somehow(tunnel: LiveTunnel, choice: random.Random) -> None:
    first, second = ends_of(tunnel, choice.choice(["client", "upstream"]))
    size, way = choice.randrange(1, 2000), choice.choice(["close", "close both", "reset", "half", "stall"])
    with contextlib.suppress(OSError):  # on a busy machine it has been idle for too long already
        first.sendall(pattern(size))
        if way == "half":
            first.shutdown(socket.SHUT_WR)
    if way == "reset":
        close_with_reset(first)
    if way in ("close", "close both"):
        first.close()
    if way == "close both":
        second.close()
    # A tunnel that stalls says nothing further: the limit on idle ones ends it.


@pytest.mark.parametrize("relay", ["loop", "epoll"])
def test_of_500_tunnels_that_ended_in_random_ways_nothing_is_left(relay: str) -> None:
    choice = random.Random(5)
    limits = dataclasses.replace(TUNNELS, idle_s=0.5, half_close_s=0.3)
    with DataPort(relay=relay, tunnels=limits) as port:
        open_tunnel(port).close()
        port.log.wait_for(Ended)
        figures = port.registered_descriptors(), port.tasks()
        descriptors = open_descriptors(os.getpid())
        for _ in range(5):
            tunnels = [open_tunnel(port) for _ in range(100)]
            for tunnel in tunnels:
                end_somehow(tunnel, choice)
            eventually(lambda: port.table.count().open == 0, what="the ends of all tunnels")
            for tunnel in tunnels:
                tunnel.close()
        assert (port.registered_descriptors(), port.tasks()) == figures
        assert open_descriptors(os.getpid()) == descriptors
        assert len(port.log.of(Ended)) == 501


def test_a_tunnel_that_ends_in_the_turn_of_its_early_bytes_is_not_watched(port: DataPort) -> None:
    before = port.registered_descriptors()
    tunnel = open_tunnel(port, "ok.example:443", early=SERVER_HELLO)
    assert port.log.only(Ended).cause is EndCause.SNI_REFUSED
    await_event(tunnel.client, select.POLLHUP)
    assert port.registered_descriptors() == before
    assert port.table.count().open == 0
