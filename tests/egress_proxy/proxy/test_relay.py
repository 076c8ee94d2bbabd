"""One flow: what goes in comes out, in order, no sooner than it may, and no more than is allowed.

Real sockets, no event loop: the test takes every turn itself. Who calls turns is in test_readiness.py.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import select
import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egress_proxy.core.decision import Deny, Reason
from egress_proxy.core.events import EndCause
from egress_proxy.core.host import parse_authority
from egress_proxy.core.sni_policy import FlightVerdict, Hello, OtherFlight
from egress_proxy.proxy import client_hello
from egress_proxy.proxy import relay as relay_module
from egress_proxy.proxy.pipes import Pipe, PipePool
from egress_proxy.proxy.relay import BULK_BYTES, TURN_BYTES, Flow, FlowRefused, PeerReset, Wants
from tests.egress_proxy.proxy.hellos import hello, long_hello, long_unfinished_hello
from tests.egress_proxy.proxy.socket_pairs import (
    Pair,
    await_unread,
    two_pairs,
    unread_bytes,
)
from tests.support.byte_stream import read_exactly, read_some
from tests.support.deadline import Deadline
from tests.support.origins import pattern

TARGET = parse_authority("ok.example:443")
MISMATCH = Deny(Reason.SNI_MISMATCH, TARGET)
HELLO = hello()

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


@settings(max_examples=100)
@given(STEPS, STEPS, st.booleans(), st.booleans())
def test_bytes_arrive_as_they_were_sent_in_both_directions_however_they_are_cut(
    out_steps: list[Step], back_steps: list[Step], splice: bool, small: bool
) -> None:
    with two_pairs(small=small) as (client, upstream), contextlib.closing(PipePool()) as pool:
        pipes = pool if splice else None
        out = Line(Flow(client.ours, upstream.ours, pipes=pipes), client.peer, upstream.peer)
        back = Line(Flow(upstream.ours, client.ours, pipes=pipes), upstream.peer, client.peer)
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
        wants = Wants.READ
        while wants is not Wants.WRITE:
            with contextlib.suppress(BlockingIOError):
                client.peer.send(pattern(TURN_BYTES))
            wants = flow.turn()
        taken = client.ours.taken_bytes
        assert 0 < taken - flow.carried <= TURN_BYTES
        for _ in range(3):
            assert flow.turn() is Wants.WRITE
        assert client.ours.taken_bytes == taken


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


def test_the_last_end_is_left_to_the_close_that_follows_it() -> None:
    with two_pairs() as (client, upstream):
        flow = Flow(client.ours, upstream.ours)
        flow.ends_by_close = True
        client.end_by_peer()
        assert flow.turn() is Wants.NOTHING
        assert flow.is_done()
        assert select.select([upstream.peer], [], [], 0)[0] == []


# Bulk, which is spliced.


class CountingPool(PipePool):
    """``lent``: pipes that are out; ``lends``: how often one was asked for."""

    lent = lends = 0

    def __init__(self, pipe_bytes: int = 0) -> None:
        super().__init__()
        self._pipe_bytes = pipe_bytes

    def lend(self) -> Pipe | None:
        pipe = super().lend()
        assert pipe is not None
        if self._pipe_bytes:
            fcntl.fcntl(pipe.writer, fcntl.F_SETPIPE_SZ, self._pipe_bytes)
        self.lent += 1
        self.lends += 1
        return pipe

    def take_back(self, pipe: Pipe) -> None:
        super().take_back(pipe)
        self.lent -= 1


def in_bulk(flow: Flow, source: Pair, octets: bytes) -> None:
    """All of this has arrived, and the flow has had two full turns with it."""
    source.peer.sendall(octets)
    await_unread(source.ours, len(octets))
    for _ in range(2):
        assert flow.turn() is Wants.TURN


@pytest.mark.parametrize("pipe_bytes", [4096, 65_536, 0], ids=["one page", "16 pages", "as made"])
def test_a_burst_is_spliced_and_nothing_of_it_is_forgotten_however_small_the_pipe(pipe_bytes: int) -> None:
    size = 3 * TURN_BYTES + 1234
    with two_pairs() as (client, upstream), contextlib.closing(CountingPool(pipe_bytes)) as pool:
        flow = Flow(client.ours, upstream.ours, pipes=pool)
        in_bulk(flow, client, pattern(size))
        while flow.turn() is not Wants.READ:
            pass
        assert pool.lends > 0
        assert unread_bytes(client.ours) == 0
        assert read_exactly(upstream.peer, size) == pattern(size)
        assert (flow.carried, pool.lent) == (size, 0)


def test_a_turn_of_bulk_moves_at_most_one_splice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_module, "SPLICE_BYTES", BULK_BYTES)
    with two_pairs() as (client, upstream), contextlib.closing(CountingPool()) as pool:
        flow = Flow(client.ours, upstream.ours, pipes=pool)
        in_bulk(flow, client, pattern(3 * TURN_BYTES))
        before = flow.carried
        assert flow.turn() is Wants.TURN
        assert 0 < flow.carried - before <= BULK_BYTES


def test_between_two_turns_of_bulk_the_pipe_is_free_for_others() -> None:
    with two_pairs() as (client, upstream), contextlib.closing(CountingPool()) as pool:
        flow = Flow(client.ours, upstream.ours, pipes=pool)
        in_bulk(flow, client, pattern(3 * TURN_BYTES))
        assert flow.turn() is Wants.TURN
        assert (pool.lends, pool.lent) == (1, 0)


def test_bulk_for_which_there_is_no_pipe_is_copied() -> None:
    with two_pairs() as (client, upstream), contextlib.closing(PipePool(limit=0)) as pool:
        flow = Flow(client.ours, upstream.ours, pipes=pool)
        in_bulk(flow, client, pattern(3 * TURN_BYTES))
        assert flow.turn() is Wants.TURN
        assert flow.carried == 3 * TURN_BYTES


@pytest.mark.parametrize("splice", [True, False], ids=["spliced", "copied"])
def test_a_flow_is_in_bulk_from_its_second_large_turn_until_its_source_is_empty(splice: bool) -> None:
    with two_pairs() as (client, upstream), contextlib.closing(PipePool()) as pool:
        flow = Flow(client.ours, upstream.ours, pipes=pool if splice else None)
        client.peer.sendall(pattern(4 * TURN_BYTES))
        await_unread(client.ours, 4 * TURN_BYTES)
        seen: list[tuple[Wants, bool]] = []
        while (Wants.READ, False) not in seen:
            seen.append((flow.turn(), flow.in_bulk))
        _, *in_bulk = (is_in_bulk for _, is_in_bulk in seen)
        assert seen[0] == (Wants.TURN, False)
        assert in_bulk == [True] * (len(in_bulk) - 1) + [False]
        assert len(in_bulk) >= 3


@pytest.mark.parametrize("splice", [True, False], ids=["spliced", "copied"])
def test_a_turn_that_moves_little_ends_the_burst(splice: bool) -> None:
    with two_pairs() as (client, upstream), contextlib.closing(PipePool()) as pool:
        flow = Flow(client.ours, upstream.ours, pipes=pool if splice else None)
        in_bulk(flow, client, pattern(2 * TURN_BYTES + BULK_BYTES - 1))
        flow.turn()
        assert not flow.in_bulk
        assert flow.carried == 2 * TURN_BYTES + BULK_BYTES - 1


def test_large_turns_with_a_small_one_between_them_are_no_bulk() -> None:
    with two_pairs() as (client, upstream):
        flow = Flow(client.ours, upstream.ours)
        for size in (BULK_BYTES, 1, BULK_BYTES):
            drive(flow, client, pattern(size))
            assert not flow.in_bulk
        drive(flow, client, pattern(BULK_BYTES))
        assert flow.in_bulk


def test_a_spliced_burst_that_ends_is_passed_on_whole_with_its_end() -> None:
    size = 2 * TURN_BYTES + 5000
    with two_pairs() as (client, upstream), contextlib.closing(CountingPool()) as pool:
        flow = Flow(client.ours, upstream.ours, pipes=pool)
        in_bulk(flow, client, pattern(size))
        client.end_by_peer()
        while flow.turn() is not Wants.NOTHING:
            pass
        assert flow.is_done()
        assert read_exactly(upstream.peer, size) == pattern(size)
        assert read_some(upstream.peer) == b""
        assert pool.lent == 0


def test_a_spliced_burst_waits_for_its_sink_and_is_not_done_before_it_is_out() -> None:
    with two_pairs(small=True) as (client, upstream), contextlib.closing(CountingPool()) as pool:
        flow = Flow(client.ours, upstream.ours, pipes=pool)
        line = Line(flow, client.peer, upstream.peer)
        while pool.lent == 0:
            line.run(("say", 500_000))
            line.run(("hear", 500_000))
            flow.turn()
        for _ in range(50):
            line.run(("say", 500_000))
            flow.turn()
        assert flow.turn() is Wants.WRITE
        assert not flow.is_done()
        line.finish()
        assert line.heard == line.said == flow.carried


def test_a_metered_flow_is_never_spliced() -> None:
    with two_pairs() as (client, upstream), contextlib.closing(CountingPool()) as pool:
        flow = Flow(client.ours, upstream.ours, lambda count: True, pool)
        in_bulk(flow, client, pattern(3 * TURN_BYTES))
        assert flow.turn() is Wants.TURN
        assert pool.lends == 0


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOSYS, errno.EPERM])
def test_where_there_is_no_splice_bulk_is_copied(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def refuse(*_: int, **__: int) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "splice", refuse)
    size = 3 * TURN_BYTES
    with two_pairs() as (client, upstream), contextlib.closing(CountingPool()) as pool:
        flow = Flow(client.ours, upstream.ours, pipes=pool)
        in_bulk(flow, client, pattern(size))
        while flow.turn() is not Wants.READ:
            pass
        assert read_exactly(upstream.peer, size) == pattern(size)
        assert (pool.lent, pool.lends) == (0, 1)


@pytest.mark.parametrize("side", ["source", "sink"])
def test_a_reset_within_a_spliced_burst_is_told_with_the_socket_that_broke(side: str) -> None:
    with two_pairs() as (client, upstream), contextlib.closing(CountingPool()) as pool:
        flow = Flow(client.ours, upstream.ours, pipes=pool)
        in_bulk(flow, client, pattern(2 * TURN_BYTES if side == "source" else 3 * TURN_BYTES))
        broken = client if side == "source" else upstream
        broken.reset_by_peer()
        with pytest.raises(PeerReset) as caught:
            flow.turn()
        assert caught.value.sock is broken.ours
        flow.release()
        assert pool.lent == 0


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


def drive(flow: Flow, client: Pair, octets: bytes) -> None:
    """The client sends, and the flow takes its turns until there is no more."""
    client.peer.sendall(octets)
    await_unread(client.ours, 1)
    while flow.turn() is not Wants.READ:
        pass


@pytest.mark.parametrize("flight", [HELLO, long_hello()], ids=["usual", "20 KB"])
def test_a_hello_in_single_bytes_goes_upstream_whole_and_only_once_it_was_judged(flight: bytes) -> None:
    judge = Judge()
    with two_pairs() as (client, upstream):
        flow = Flow(client.ours, upstream.ours)
        flow.hold_until_judged(judge)
        for at in range(len(flight)):
            assert (judge.asked, flow.carried, unread_bytes(upstream.peer)) == ([], 0, 0)
            drive(flow, client, flight[at : at + 1])
        assert judge.asked == [Hello("ok.example")]
        assert read_exactly(upstream.peer, len(flight)) == flight
        assert not flow.is_holding()


def test_after_the_verdict_nothing_is_judged_or_held() -> None:
    judge = Judge()
    with two_pairs() as (client, upstream):
        flow = Flow(client.ours, upstream.ours)
        flow.hold_until_judged(judge)
        flow.offer(HELLO)
        later = hello("evil.test")  # by now these bytes are like any others
        drive(flow, client, later)
        assert read_exactly(upstream.peer, len(HELLO) + len(later)).endswith(later)
        assert judge.asked == [Hello("ok.example")]


@pytest.mark.parametrize("early", [True, False], ids=["with the request head", "later"])
def test_a_refused_hello_ends_the_flow_before_a_byte_went_upstream(early: bool) -> None:
    with two_pairs() as (client, upstream):
        flow = Flow(client.ours, upstream.ours)
        flow.hold_until_judged(Judge(MISMATCH))
        send = flow.offer if early else functools.partial(drive, flow, client)
        with pytest.raises(FlowRefused) as caught:
            send(hello("evil.test"))
        assert caught.value.cause is EndCause.SNI_REFUSED
        assert caught.value.deny is MISMATCH
        assert caught.value.deny.reason is Reason.SNI_MISMATCH
        assert (flow.carried, unread_bytes(upstream.peer)) == (0, 0)


def test_a_hello_that_ends_in_its_middle_is_judged_as_unreadable() -> None:
    judge = Judge(MISMATCH)
    with two_pairs() as (client, upstream):
        flow = Flow(client.ours, upstream.ours)
        flow.hold_until_judged(judge)
        drive(flow, client, HELLO[:100])
        assert flow.is_holding()
        client.end_by_peer()
        with pytest.raises(FlowRefused) as caught:
            flow.turn()
        assert caught.value.deny is MISMATCH
        assert judge.asked == [OtherFlight.UNREADABLE]
        assert flow.carried == 0


def test_a_client_that_ends_without_a_word_needs_no_judgement() -> None:
    judge = Judge(MISMATCH)
    with two_pairs() as (client, upstream):
        flow = Flow(client.ours, upstream.ours)
        flow.hold_until_judged(judge)
        client.end_by_peer()
        assert flow.turn() is Wants.NOTHING
        assert read_some(upstream.peer) == b""
        assert judge.asked == []


def test_a_hello_that_is_as_long_as_bulk_is_held_and_never_spliced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_hello, "HELLO_LIMIT_BYTES", 4 * BULK_BYTES)
    judge = Judge(MISMATCH)
    with two_pairs() as (client, upstream), contextlib.closing(CountingPool()) as pool:
        flow = Flow(client.ours, upstream.ours, pipes=pool)
        flow.hold_until_judged(judge)
        for record in long_unfinished_hello(BULK_BYTES, count=3):
            client.peer.sendall(record)
            await_unread(client.ours, len(record))
            flow.turn()
        assert flow.is_holding()
        assert (judge.asked, flow.in_bulk, pool.lends, unread_bytes(upstream.peer)) == ([], False, 0, 0)
        client.end_by_peer()
        with pytest.raises(FlowRefused):
            flow.turn()
        assert flow.carried == 0


def test_first_bytes_that_are_no_tls_are_judged_at_the_first_of_them() -> None:
    judge = Judge(FlightVerdict.NOT_TLS)
    with two_pairs() as (client, upstream):
        flow = Flow(client.ours, upstream.ours)
        flow.hold_until_judged(judge)
        drive(flow, client, b"S")
        assert judge.asked == [OtherFlight.NOT_TLS]
        assert read_exactly(upstream.peer, 1) == b"S"


def test_the_other_direction_flows_while_a_hello_is_held() -> None:
    with two_pairs() as (client, upstream):
        out, back = Flow(client.ours, upstream.ours), Flow(upstream.ours, client.ours)
        out.hold_until_judged(Judge())
        drive(out, client, HELLO[:50])
        upstream.peer.sendall(b"220 ready")
        await_unread(upstream.ours, 9)
        back.turn()
        assert read_exactly(client.peer, 9) == b"220 ready"
        assert out.is_holding()


# The meter.


class Budget:
    """A meter with so many bytes to spend."""

    def __init__(self, n: int) -> None:
        self.left = n

    def __call__(self, count: int) -> bool:
        enough = count <= self.left
        self.left = self.left - count if enough else 0
        return enough


@settings(max_examples=40)
@given(st.integers(0, 100_000), st.lists(st.integers(1, 60_000), min_size=1, max_size=8))
def test_never_more_bytes_go_out_than_the_meter_grants(limit: int, sizes: list[int]) -> None:
    budget = Budget(limit)
    with two_pairs() as (client, upstream):
        flow = Flow(client.ours, upstream.ours, budget)
        refused = None
        try:
            for size in sizes:
                drive(flow, client, pattern(size))
        except FlowRefused as refusal:
            refused = refusal.cause
        assert refused is (EndCause.GRANT_ENDED if sum(sizes) > limit else None)
        assert flow.carried <= limit
        assert refused is not None or flow.carried == sum(sizes)


def test_early_bytes_are_metered() -> None:
    with two_pairs() as (client, upstream):
        flow = Flow(client.ours, upstream.ours, Budget(4))
        with pytest.raises(FlowRefused) as caught:
            flow.offer(b"HELLO")
        assert caught.value.cause is EndCause.GRANT_ENDED
        assert caught.value.deny is None
        assert not flow.has_pending


def test_a_held_hello_is_metered_once_and_when_it_goes_out() -> None:
    budget = Budget(len(HELLO))
    with two_pairs() as (client, upstream):
        flow = Flow(client.ours, upstream.ours, budget)
        flow.hold_until_judged(Judge())
        drive(flow, client, HELLO[:-1])
        assert budget.left == len(HELLO)
        drive(flow, client, HELLO[-1:])
        assert budget.left == 0
        assert read_exactly(upstream.peer, len(HELLO)) == HELLO
