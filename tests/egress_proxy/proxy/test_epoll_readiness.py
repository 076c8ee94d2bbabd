"""The edge-triggered driver: what only edges need. What every driver does is in test_readiness.py."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import select
import socket
from collections.abc import Iterator

import pytest

from egress_proxy.core.access import Client
from egress_proxy.core.decision import Allow, OptIn
from egress_proxy.core.events import EndCause, Ended
from egress_proxy.core.host import parse_authority
from egress_proxy.proxy import epoll_readiness as epoll_readiness_module
from egress_proxy.proxy.epoll_readiness import EpollReadiness
from egress_proxy.proxy.relay import BULK_BYTES, TURN_BYTES, Flow, Wants
from egress_proxy.proxy.tunnel import Tunnel, TunnelFacts
from tests.egress_proxy.proxy.live_tunnels import ADDRESS, open_tunnel
from tests.egress_proxy.proxy.socket_pairs import (
    Pair,
    await_event,
    await_unread,
    connected_pair,
    unread_bytes,
)
from tests.support.byte_stream import End, read_end, read_exactly
from tests.support.data_port import DataPort
from tests.support.deadline import eventually
from tests.support.origins import EchoOrigin

TARGET = parse_authority("ok.example:443")
FACTS = TunnelFacts("r-1", Client(), TARGET, ADDRESS, Allow(TARGET, "ok.example", OptIn.NONE), 0.0)


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


# Small messages beside bulk. The test takes each round of the loop itself.


class BulkAndOneSmall:
    """``bulk``: tunnels that have more to move than one turn does; ``small``: one that is silent yet."""

    def __init__(self, sinks_are_small: bool) -> None:
        self._loop = asyncio.new_event_loop()
        self.epoll = EpollReadiness(self._loop)
        self.pairs = [(connected_pair(), connected_pair(small=sinks_are_small)) for _ in range(9)]
        self.small, *self.bulk = [self._tunnel(client, upstream) for client, upstream in self.pairs]
        for client, _ in self.pairs[1:]:
            client.peer.sendall(bytes(6 * TURN_BYTES))
            await_unread(client.ours, 6 * TURN_BYTES)
        for tunnel in (self.small, *self.bulk):
            self.epoll.start(tunnel)

    def _tunnel(self, client: Pair, upstream: Pair) -> Tunnel:
        out, back = Flow(client.ours, upstream.ours), Flow(upstream.ours, client.ours)
        return Tunnel(FACTS, out, back, lambda tunnel, *_: self.epoll.forget(tunnel))

    def carried(self) -> list[int]:
        return [tunnel.out.carried for tunnel in self.bulk]

    def round(self) -> None:
        """The driver polls twice at most: its descriptor is readable, and a poll is due."""
        self._loop.call_soon(self._loop.stop)
        self._loop.run_forever()

    def until_all_are_in_bulk(self) -> None:
        while not all(tunnel.out.in_bulk for tunnel in self.bulk):
            self.round()

    def close(self) -> None:
        for tunnel in (self.small, *self.bulk):
            tunnel.end(EndCause.DRAINED)
        for pair in self.pairs:
            for one in pair:
                one.peer.close()
        self.epoll.close()
        self._loop.close()


@pytest.fixture
def busy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[BulkAndOneSmall]:
    monkeypatch.setattr(epoll_readiness_module, "BULK_AT_ONCE_BYTES", 1)  # a poll after each turn
    made = BulkAndOneSmall(sinks_are_small=getattr(request, "param", False))
    yield made
    made.close()


def test_a_small_message_waits_for_no_more_than_a_turn_or_two_of_bulk(busy: BulkAndOneSmall) -> None:
    busy.until_all_are_in_bulk()
    client, upstream = busy.pairs[0]
    client.peer.sendall(b"token")
    await_unread(client.ours, 5)
    before = sum(busy.carried())
    busy.round()
    assert read_exactly(upstream.peer, 5) == b"token"
    assert 0 < sum(busy.carried()) - before <= 2 * TURN_BYTES


def test_each_flow_in_bulk_has_its_turn_beside_small_messages(busy: BulkAndOneSmall) -> None:
    busy.until_all_are_in_bulk()
    before = busy.carried()
    for _ in busy.bulk:
        busy.pairs[0][0].peer.sendall(b"x")
        busy.round()
    assert all(now - then >= TURN_BYTES for now, then in zip(busy.carried(), before, strict=True))


@pytest.mark.parametrize("busy", [True], indirect=True, ids=["small sinks"])
def test_bulk_that_its_sinks_take_again_is_queued_like_other_bulk(busy: BulkAndOneSmall) -> None:
    """All of them are told of in one batch, ahead of whatever small message is next."""

    def read_all(sink: socket.socket) -> None:
        sink.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while sink.recv(TURN_BYTES):
                pass

    def waits(tunnel: Tunnel) -> bool:
        return tunnel.out.in_bulk and tunnel.out.armed is Wants.WRITE

    while not all(map(waits, busy.bulk)):
        for tunnel, (_, upstream) in zip(busy.bulk, busy.pairs[1:], strict=True):
            if not waits(tunnel):
                read_all(upstream.peer)
        busy.round()
    before = busy.carried()
    for _, upstream in busy.pairs[1:]:
        read_all(upstream.peer)
        await_event(upstream.ours, select.POLLOUT)
    busy.round()
    assert 1 <= sum(now > then for now, then in zip(busy.carried(), before, strict=True)) <= 2


def test_bulk_that_is_told_of_more_than_once_is_queued_once(
    busy: BulkAndOneSmall, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy.until_all_are_in_bulk()
    flow, (client, _) = busy.small.out, busy.pairs[0]
    turns: list[Flow] = []
    advance = Tunnel.advance

    def counted(tunnel: Tunnel, flow: Flow) -> Wants:
        turns.append(flow)
        return advance(tunnel, flow)

    def say(octets: bytes) -> None:
        unread = unread_bytes(client.ours)
        client.peer.sendall(octets)
        await_unread(client.ours, unread + len(octets))

    for _ in range(2):  # short reads, after which it waits for more, that are bulk all the same
        say(bytes(BULK_BYTES))
        busy.round()
    assert (flow.in_bulk, flow.armed) == (True, Wants.READ)
    monkeypatch.setattr(Tunnel, "advance", counted)
    for _ in range(3):
        say(bytes(BULK_BYTES))
        busy.round()
    assert flow not in turns  # there are eight before it
    while flow.carried < 5 * BULK_BYTES:
        busy.round()
    for _ in busy.bulk:
        busy.round()
    assert turns.count(flow) == 1
