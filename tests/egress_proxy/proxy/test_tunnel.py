"""How one tunnel ends: cleanly when it is done, with a reset for whatever else, and its sockets with it.

The test takes the turns itself. Tunnels that are driven by the loop are in test_readiness.py.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from ipaddress import ip_address

import pytest

from egress_proxy.core.access import Client
from egress_proxy.core.decision import Allow, Deny, OptIn, Reason
from egress_proxy.core.events import EndCause
from egress_proxy.core.host import parse_authority
from egress_proxy.core.sni_policy import Hello, OtherFlight
from egress_proxy.proxy.relay import Flow, Meter, Wants
from egress_proxy.proxy.tunnel import Tunnel, TunnelFacts
from tests.egress_proxy.proxy.socket_pairs import Pair, await_unread, connected_pair, unread_bytes
from tests.support.byte_stream import End, read_end, read_exactly, read_until_end
from tests.support.origins import pattern

TARGET = parse_authority("ok.example:443")
FACTS = TunnelFacts(
    "r-1", Client(), TARGET, ip_address("192.0.2.7"), Allow(TARGET, "ok.example", OptIn.NONE), 0.0
)
MISMATCH = Deny(Reason.SNI_MISMATCH, TARGET)
CUT = sorted(set(EndCause) - {EndCause.DONE})


class Ends:
    """What ``on_end`` was told, and whether the sockets were still open then."""

    def __init__(self) -> None:
        self.told: list[tuple[EndCause, Deny | None]] = []
        self.sockets_were_open = False

    def __call__(self, tunnel: Tunnel, cause: EndCause, deny: Deny | None) -> None:
        self.told.append((cause, deny))
        self.sockets_were_open = all(flow.source.fileno() >= 0 for flow in tunnel.flows)


class Bench:
    """A tunnel over two real connections."""

    def __init__(self, meter: Meter | None = None) -> None:
        self.client: Pair = connected_pair()
        self.upstream: Pair = connected_pair()
        self.ends = Ends()
        out = Flow(self.client.ours, self.upstream.ours, meter)
        self.tunnel = Tunnel(FACTS, out, Flow(self.upstream.ours, self.client.ours), self.ends)

    @property
    def causes(self) -> list[EndCause]:
        return [cause for cause, _ in self.ends.told]

    def close(self) -> None:
        for pair in (self.client, self.upstream):
            pair.ours.close()
            pair.peer.close()


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


def test_a_tunnel_whose_two_directions_ended_is_done_and_ends_clean(bench: Bench) -> None:
    tunnel = bench.tunnel
    bench.client.peer.sendall(b"question")
    bench.client.end_by_peer()
    for _ in range(2):
        tunnel.advance(tunnel.out)
    assert tunnel.is_half_closed
    assert not tunnel.is_over
    assert tunnel.back.ends_by_close
    bench.upstream.peer.sendall(b"answer")
    bench.upstream.end_by_peer()
    for _ in range(2):
        tunnel.advance(tunnel.back)
    assert bench.ends.told == [(EndCause.DONE, None)]
    assert read_until_end(bench.upstream.peer) == (b"question", End.EOF)
    assert read_until_end(bench.client.peer) == (b"answer", End.EOF)


@pytest.mark.parametrize("cause", CUT)
def test_a_tunnel_that_is_cut_resets_both_sides_so_that_neither_looks_complete(
    bench: Bench, cause: EndCause
) -> None:
    bench.tunnel.end(cause)
    assert read_end(bench.client.peer) is End.RESET
    assert read_end(bench.upstream.peer) is End.RESET


@pytest.mark.parametrize("side", ["client", "upstream"])
def test_a_drain_does_not_take_back_an_end_that_was_passed_on(bench: Bench, side: str) -> None:
    ended, told = (bench.client, bench.upstream)[:: 1 if side == "client" else -1]
    ended.peer.sendall(b"all of it")
    ended.end_by_peer()
    flow = bench.tunnel.out if side == "client" else bench.tunnel.back
    while not flow.is_done():
        bench.tunnel.advance(flow)
    bench.tunnel.end(EndCause.DRAINED)
    assert read_until_end(told.peer) == (b"all of it", End.EOF)
    assert told.peer.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    assert read_end(ended.peer) is End.RESET  # what it was still to hear is cut


def test_what_a_slow_client_has_not_read_when_all_is_done_still_reaches_it() -> None:
    client, upstream = connected_pair(slow_peer=True), connected_pair()
    tunnel = Tunnel(FACTS, Flow(client.ours, upstream.ours), Flow(upstream.ours, client.ours), Ends())
    client.end_by_peer()
    tunnel.advance(tunnel.out)
    upstream.peer.sendall(pattern(200_000))
    await_unread(upstream.ours, 200_000)
    upstream.end_by_peer()
    while not tunnel.is_over:
        assert tunnel.advance(tunnel.back) is not Wants.WRITE
    assert read_until_end(client.peer) == (pattern(200_000), End.EOF)
    client.peer.close()
    upstream.peer.close()


def test_an_end_is_told_once_while_the_sockets_are_open_and_closes_them(bench: Bench) -> None:
    bench.tunnel.end(EndCause.IDLE, MISMATCH)
    bench.tunnel.end(EndCause.DRAINED)
    assert bench.ends.told == [(EndCause.IDLE, MISMATCH)]
    assert bench.ends.sockets_were_open
    assert bench.tunnel.is_over
    assert {flow.source.fileno() for flow in bench.tunnel.flows} == {-1}


def test_sockets_are_closed_even_when_the_end_cannot_be_told() -> None:
    bench = Bench()

    def fail(*_: object) -> None:
        raise RuntimeError("the sink is broken")

    tunnel = Tunnel(FACTS, bench.tunnel.out, bench.tunnel.back, fail)
    with pytest.raises(RuntimeError):
        tunnel.end(EndCause.IDLE)
    assert {flow.source.fileno() for flow in tunnel.flows} == {-1}
    bench.close()


@pytest.mark.parametrize(("side", "cause"), [("client", "client_reset"), ("upstream", "upstream_reset")])
def test_a_reset_that_is_read_is_passed_on_as_a_reset(bench: Bench, side: str, cause: str) -> None:
    broken, other = (bench.client, bench.upstream)[:: 1 if side == "client" else -1]
    broken.reset_by_peer()
    flow = bench.tunnel.out if side == "client" else bench.tunnel.back
    assert bench.tunnel.advance(flow) is Wants.NOTHING
    assert bench.causes == [cause]
    assert read_end(other.peer) is End.RESET


@pytest.mark.parametrize(("side", "cause"), [("client", "client_reset"), ("upstream", "upstream_reset")])
def test_an_answer_in_front_of_a_reset_is_delivered_when_the_reset_is_met_by_sending(
    bench: Bench, side: str, cause: str
) -> None:
    broken, other = (bench.client, bench.upstream)[:: 1 if side == "client" else -1]
    broken.peer.sendall(b"HTTP/1.1 413 Too Large\r\n\r\n")
    await_unread(broken.ours, 26)
    broken.reset_by_peer()
    other.peer.sendall(b"more of the upload")
    await_unread(other.ours, 18)
    bench.tunnel.advance(bench.tunnel.back if side == "client" else bench.tunnel.out)
    assert bench.causes == [cause]
    assert read_until_end(other.peer) == (b"HTTP/1.1 413 Too Large\r\n\r\n", End.RESET)


@pytest.mark.parametrize("side", ["client", "upstream"])
def test_a_reset_is_seen_although_nobody_reads_from_who_ended_its_direction(bench: Bench, side: str) -> None:
    flow = bench.tunnel.out if side == "client" else bench.tunnel.back
    broken = bench.client if side == "client" else bench.upstream
    broken.end_by_peer()
    flow.armed = bench.tunnel.advance(flow)
    assert bench.tunnel.unseen_reset() is None
    broken.reset_by_peer()
    assert bench.tunnel.unseen_reset() == f"{side}_reset"


def test_a_reset_is_left_to_the_flow_that_reads_from_the_socket(bench: Bench) -> None:
    for flow in bench.tunnel.flows:
        flow.armed = bench.tunnel.advance(flow)
    bench.client.reset_by_peer()
    assert bench.tunnel.unseen_reset() is None  # asking the socket would take the report away
    bench.tunnel.advance(bench.tunnel.out)
    assert bench.causes == [EndCause.CLIENT_RESET]


def test_early_bytes_that_are_refused_end_the_tunnel_with_what_refused_them(bench: Bench) -> None:
    bench.tunnel.out.hold_until_judged(lambda flight: MISMATCH)
    assert not bench.tunnel.offer(b"not TLS")
    assert bench.ends.told == [(EndCause.SNI_REFUSED, MISMATCH)]
    assert MISMATCH.reason is Reason.SNI_MISMATCH
    assert read_end(bench.upstream.peer) is End.RESET


def test_bytes_that_are_refused_later_end_the_tunnel_with_what_refused_them(bench: Bench) -> None:
    asked: list[Hello | OtherFlight] = []

    def judge(flight: Hello | OtherFlight) -> Deny:
        asked.append(flight)
        return MISMATCH

    bench.tunnel.out.hold_until_judged(judge)
    assert bench.tunnel.offer(b"")
    bench.client.peer.sendall(b"not TLS")
    await_unread(bench.client.ours, 7)
    assert bench.tunnel.advance(bench.tunnel.out) is Wants.NOTHING
    assert asked == [OtherFlight.NOT_TLS]
    assert bench.ends.told == [(EndCause.SNI_REFUSED, MISMATCH)]
    assert MISMATCH.reason is Reason.SNI_MISMATCH


def test_bytes_beyond_a_grant_end_the_tunnel() -> None:
    bench = Bench(meter=lambda count: False)
    bench.client.peer.sendall(b"x")
    await_unread(bench.client.ours, 1)
    bench.tunnel.advance(bench.tunnel.out)
    assert bench.causes == [EndCause.GRANT_ENDED]
    assert unread_bytes(bench.upstream.peer) == 0
    bench.close()


def test_a_fault_in_a_turn_ends_the_tunnel_and_is_kept_for_the_log() -> None:
    def fail(count: int) -> bool:
        raise RuntimeError("a fault of ours")

    bench = Bench(meter=fail)
    bench.client.peer.sendall(b"x")
    await_unread(bench.client.ours, 1)
    assert bench.tunnel.advance(bench.tunnel.out) is Wants.NOTHING
    assert bench.causes == [EndCause.FAULT]
    assert isinstance(bench.tunnel.fault, RuntimeError)
    assert read_end(bench.client.peer) is End.RESET
    bench.close()


def test_bytes_may_still_flow_to_a_client_that_ended_its_direction(bench: Bench) -> None:
    bench.client.end_by_peer()
    bench.tunnel.advance(bench.tunnel.out)
    bench.upstream.peer.sendall(b"answer")
    await_unread(bench.upstream.ours, 6)
    assert bench.tunnel.advance(bench.tunnel.back) is Wants.READ
    assert read_exactly(bench.client.peer, 6) == b"answer"
