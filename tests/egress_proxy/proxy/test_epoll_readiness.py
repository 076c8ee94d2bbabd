"""The edge-triggered driver: what only edges need. What every driver does is in test_readiness.py."""

from __future__ import annotations

import contextlib
import functools
import os
import select
import socket
from collections.abc import Iterator

import pytest

from egress_proxy.core.events import EndCause, Ended
from tests.egress_proxy.proxy.live_tunnels import open_tunnel
from tests.support.byte_stream import End, read_end, read_exactly
from tests.support.data_port import DataPort
from tests.support.deadline import eventually
from tests.support.origins import EchoOrigin


@pytest.fixture
def port() -> Iterator[DataPort]:
    with DataPort(relay="epoll") as started:
        yield started


def test_a_watched_socket_is_told_of_and_an_unwatched_one_is_not(port: DataPort) -> None:
    ours, theirs = socket.socketpair()
    port.close_at_end(ours, theirs)
    ours.setblocking(False)
    told: list[int] = []
    port.call(lambda: port._epoll.watch(ours.fileno(), told.append))  # type: ignore[union-attr]
    theirs.send(b"x")
    eventually(lambda: any(events & select.EPOLLIN for events in told), what="the input is told of")
    port.call(lambda: port._epoll.unwatch(ours.fileno()))  # type: ignore[union-attr]
    told.clear()
    theirs.send(b"y")
    port.call(lambda: None)
    assert told == []


def test_an_end_that_came_with_the_last_bytes_is_not_lost(port: DataPort) -> None:
    """One edge for both: a short read must not be taken for the last one."""
    tunnel = open_tunnel(port)
    for sock, other in ((tunnel.client, tunnel.upstream), (tunnel.upstream, tunnel.client)):
        sock.sendall(b"last words")
        sock.shutdown(socket.SHUT_WR)
        assert read_exactly(other, 10) == b"last words"
        assert read_end(other) is End.EOF
    assert port.log.only(Ended).cause is EndCause.DONE


def test_a_descriptor_number_that_is_used_again_is_the_new_ones(port: DataPort) -> None:
    """Tunnels come and go within one batch of events, and the kernel hands out the same numbers."""
    with EchoOrigin() as echo:
        port.parts.in_force.policy = DataPort(allow=[echo.address]).setup.policy()
        for _ in range(100):
            sock = port.tunnel(echo.address, b"ping")
            assert read_exactly(sock, 4) == b"ping"
            sock.close()
        assert {event.cause for event in port.log.wait_for(Ended, 100)} <= {
            EndCause.DONE,
            EndCause.CLIENT_RESET,
        }


def test_a_stale_event_is_not_taken_for_one_of_the_next_owner(port: DataPort) -> None:
    """Both are in one batch: whoever is told first closes the other, whose number is somebody else's then."""
    pairs = [socket.socketpair() for _ in range(3)]
    port.close_at_end(*(end for pair in pairs for end in pair))
    (first, _), (second, _), (quiet, _) = pairs
    told: list[int] = []
    epoll = port._epoll
    assert epoll is not None

    def take_over(number: int, _events: int) -> None:
        if not told:
            epoll.unwatch(number)
            os.dup2(quiet.fileno(), number)
            epoll.watch(number, told.append)

    def begin() -> None:
        for sock, other in ((first, second), (second, first)):
            epoll.watch(sock.fileno(), functools.partial(take_over, other.fileno()))
        for _, far_end in pairs[:2]:
            far_end.send(b"x")

    port.call(begin)
    eventually(lambda: bool(told), what="the new owner is told that it can be written")
    assert [events & select.EPOLLIN for events in told] == [0]


def test_bulk_asks_for_one_more_poll_at_a_time(port: DataPort) -> None:
    """Each poll that is due would ask for another: they would multiply and hold up everything else."""
    tunnels = [open_tunnel(port) for _ in range(4)]
    for tunnel in tunnels:
        tunnel.upstream.setblocking(False)
    block = bytes(1 << 20)

    def due() -> int:
        return sum("_poll" in repr(handle) for handle in port.loop._ready)  # type: ignore[attr-defined]

    most = 0
    for _ in range(200):
        for tunnel in tunnels:
            with contextlib.suppress(BlockingIOError):
                tunnel.upstream.send(block)
            with contextlib.suppress(BlockingIOError):
                tunnel.client.setblocking(False)
                tunnel.client.recv(1 << 20)
        most = max(most, port.call(due))
    assert most <= 2  # the one that is due, and the descriptor's own
