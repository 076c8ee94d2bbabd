"""One flow: what goes in comes out, in order, no sooner than it may, and no more than is allowed.

Real sockets, no event loop: the test takes every turn itself. Who calls turns is in test_readiness.py.
"""

from __future__ import annotations

import contextlib
import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egress_proxy.core.decision import Deny, Reason
from egress_proxy.core.events import EndCause
from egress_proxy.core.host import parse_authority
from egress_proxy.core.sni_policy import FlightVerdict, Hello, OtherFlight
from egress_proxy.proxy.relay import TURN_BYTES, Flow, FlowRefused, PeerReset, Wants
from tests.egress_proxy.proxy.hellos import hello, long_hello
from tests.egress_proxy.proxy.socket_pairs import await_event, await_unread, two_pairs, unread_bytes
from tests.support.byte_stream import read_exactly, read_some
from tests.support.deadline import Deadline
from tests.support.origins import pattern

TARGET = parse_authority("ok.example:443")
MISMATCH = Deny(Reason.SNI_MISMATCH, TARGET)

Step = tuple[str, int]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.integers(1, 150_000)),
        st.tuples(st.just("turn"), st.integers(1, 4)),
        st.tuples(st.just("hear"), st.integers(1, 150_000)),
    ),
    max_size=25,
)


class Judge:
    """Remembers what it was asked; answers ``verdict``."""

    def __init__(self, verdict: FlightVerdict | Deny = FlightVerdict.MATCHES) -> None:
        self.verdict = verdict
        self.asked: list[Hello | OtherFlight] = []

    def __call__(self, flight: Hello | OtherFlight) -> FlightVerdict | Deny:
        self.asked.append(flight)
        return self.verdict


class Line:
    """A flow with somebody who speaks at one end and somebody who listens at the other."""

    def __init__(self, flow: Flow, speaker: socket.socket, listener: socket.socket) -> None:
        self.flow = flow
        self.said = self.heard = 0
        self._speaker, self._listener = speaker, listener
        for sock in (speaker, listener):
            sock.setblocking(False)

    def run(self, step: Step) -> None:
        match step:
            case ("say", n):
                with contextlib.suppress(BlockingIOError):
                    self.said += self._speaker.send(pattern(self.said + n)[self.said :])
            case ("turn", n):
                for _ in range(n):
                    self.flow.turn()
            case (_, n):
                with contextlib.suppress(BlockingIOError):
                    self.hear(self._listener.recv(n))

    def hear(self, block: bytes) -> None:
        assert block == pattern(self.heard + len(block))[self.heard :]
        self.heard += len(block)

    def finish(self) -> None:
        """The speaker ends; everything must still come, and then the end."""
        self._speaker.shutdown(socket.SHUT_WR)
        deadline = Deadline(10, "the end of the flow")
        while True:
            deadline.remaining_s()
            if not self.flow.is_done():
                self.flow.turn()
            with contextlib.suppress(BlockingIOError):
                block = self._listener.recv(150_000)
                if not block:
                    return
                self.hear(block)


@settings(max_examples=60)
@given(STEPS, STEPS)
def test_bytes_arrive_as_they_were_sent_in_both_directions_however_they_are_cut(
    out_steps: list[Step], back_steps: list[Step]
) -> None:
    with two_pairs(small=True) as (client, upstream):
        out = Line(Flow(client.ours, upstream.ours), client.peer, upstream.peer)
        back = Line(Flow(upstream.ours, client.ours), upstream.peer, client.peer)
        for number in range(max(len(out_steps), len(back_steps))):
            for line, steps in ((out, out_steps), (back, back_steps)):
                for step in steps[number : number + 1]:
                    line.run(step)
        for line in (out, back):
            line.finish()
            assert line.heard == line.said == line.flow.carried


@pytest.mark.parametrize("early", [b"x", pattern(65_536)], ids=["1 byte", "64 KiB"])
def test_early_bytes_go_first_and_once(early: bytes) -> None:
    with two_pairs() as (client, upstream):
        flow = Flow(client.ours, upstream.ours)
        client.peer.sendall(b"later")
        await_unread(client.ours, 5)
        flow.offer(early)
        assert unread_bytes(upstream.peer) == 0  # offering sends nothing by itself
        assert flow.turn() is Wants.READ
        assert read_exactly(upstream.peer, len(early) + 5) == early + b"later"
        assert flow.carried == len(early) + 5


def test_no_early_bytes_are_no_bytes() -> None:
    with two_pairs() as (client, upstream):
        flow = Flow(client.ours, upstream.ours, meter=lambda count: count > 0)
        flow.offer(b"")
        assert flow.turn() is Wants.READ
        assert not flow.has_pending


def test_a_turn_moves_at_most_one_buffer() -> None:
    with two_pairs() as (client, upstream):
        flow = Flow(client.ours, upstream.ours)
        client.peer.sendall(pattern(3 * TURN_BYTES))
        await_unread(client.ours, 3 * TURN_BYTES)
        assert flow.turn() is Wants.TURN
        assert flow.carried == TURN_BYTES


def test_a_silent_source_is_waited_for() -> None:
    with two_pairs() as (client, upstream):
        assert Flow(client.ours, upstream.ours).turn() is Wants.READ


def test_a_flow_with_a_full_sink_reads_no_further_and_holds_at_most_one_buffer() -> None:
    with two_pairs(small=True) as (client, upstream):
        flow = Flow(client.ours, upstream.ours)
        client.peer.setblocking(False)
        sent, wants = 0, Wants.READ
        for _ in range(1000):
            with contextlib.suppress(BlockingIOError):
                sent += client.peer.send(pattern(TURN_BYTES))
            wants = flow.turn()
        assert wants is Wants.WRITE
        waiting = unread_bytes(client.ours)
        assert flow.turn() is Wants.WRITE
        assert unread_bytes(client.ours) == waiting
        assert sent - flow.carried - waiting <= TURN_BYTES + unread_bytes(client.peer) + _in_flight(client.peer)


def _in_flight(sock: socket.socket) -> int:
    """What the kernel still holds for sending."""
    import fcntl
    import struct
    import termios

    return int(struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4)))[0])


def test_the_end_is_passed_on_only_after_what_came_before_it() -> None:
    with two_pairs(small=True) as (client, upstream):
        flow = Flow(client.ours, upstream.ours)
        flow.offer(pattern(300_000))
        client.end_by_peer()
        while flow.turn() is not Wants.WRITE:
            pass
        assert not flow.ended
        received = bytearray()
        while block := read_some(upstream.peer):
            received += block
            if not flow.is_done():
                flow.turn()
        assert received == pattern(300_000)
        assert flow.is_done()


def test_an_ended_flow_leaves_the_other_direction_open() -> None:
    with two_pairs() as (client, upstream):
        out, back = Flow(client.ours, upstream.ours), Flow(upstream.ours, client.ours)
        client.end_by_peer()
        assert out.turn() is Wants.NOTHING
        assert read_some(upstream.peer) == b""
        upstream.peer.sendall(b"answer")
        await_unread(upstream.ours, 6)
        assert back.turn() is Wants.READ
        assert read_exactly(client.peer, 6) == b"answer"
        assert not back.is_done()


# Resets.


def test_a_reset_of_the_source_is_told_with_the_socket_that_broke() -> None:
    with two_pairs() as (client, upstream):
        client.reset_by_peer()
        with pytest.raises(PeerReset) as caught:
            Flow(client.ours, upstream.ours).turn()
        assert caught.value.sock is client.ours


def test_a_reset_of_the_sink_is_told_with_the_socket_that_broke() -> None:
    with two_pairs() as (client, upstream):
        upstream.reset_by_peer()
        client.peer.sendall(b"x")
        await_unread(client.ours, 1)
        with pytest.raises(PeerReset) as caught:
            Flow(client.ours, upstream.ours).turn()
        assert caught.value.sock is upstream.ours


def test_what_came_before_a_reset_can_be_salvaged_and_no_end_is_made_of_it() -> None:
    with two_pairs() as (client, upstream):
        upstream.peer.sendall(pattern(200_000))
        await_unread(upstream.ours, 200_000)
        upstream.reset_by_peer()
        with contextlib.suppress(OSError):  # a send that failed has taken the reset's report
            upstream.ours.send(b"x")
        back = Flow(upstream.ours, client.ours)
        back.salvage()
        assert read_exactly(client.peer, 200_000) == pattern(200_000)
        assert not back.ended
        client.peer.settimeout(0)
        with pytest.raises(BlockingIOError):
            client.peer.recv(1)


def test_salvaging_never_passes_a_gate() -> None:
    with two_pairs() as (client, upstream):
        flow = Flow(client.ours, upstream.ours)
        flow.hold_until_judged(Judge(MISMATCH))
        client.peer.sendall(hello("evil.test"))
        await_unread(client.ours, 1)
        client.reset_by_peer()
        flow.salvage()
        assert flow.carried == 0


# The gate.


@pytest.mark.parametrize("flight", [hello(), long_hello()], ids=["usual", "20 KB"])
def test_nothing_of_a_hello_goes_upstream_before_it_was_judged(flight: bytes) -> None:
    judge = Judge()
    with two_pairs() as (client, upstream):
        flow = Flow(client.ours, upstream.ours)
        flow.hold_until_judged(judge)
        for at in range(len(flight)):
            assert flow.carried == 0
            client.peer.send(flight[at : at + 1])
            await_event(client.ours, 1)
            while flow.turn() is not Wants.READ:
                pass
        assert judge.asked == [Hello("ok.example")]
        assert read_exactly(upstream.peer, len(flight)) == flight
        assert not flow.is_holding()


def test_after_the_verdict_nothing_is_judged_or_held() -> None:
    judge = Judge()
    with two_pairs() as (client, upstream):
        flow = Flow(client.ours, upstream.ours)
        flow.hold_until_judged(judge)
        flow.offer(hello())
        client.peer.sendall(hello("evil.test"))  # by now it is application data like any other
        await_unread(client.ours, 1)
        while flow.turn() is not Wants.READ:
            pass
        assert read_exactly(upstream.peer, flow.carried).endswith(hello("evil.test")[-20:]) is False
        assert len(judge.asked) == 1
