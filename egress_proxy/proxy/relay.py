"""One flow of bytes between two non-blocking sockets, without a task. A tunnel is two of them.

A turn is bounded, one buffer or one splice, so that no tunnel holds up the others; who calls it when is
readiness.py's business. No policy here. Next: tunnel.py (both flows), readiness.py.
"""

import contextlib
import enum
import errno
import os
import socket
import sys
from collections.abc import Callable

from egress_proxy.core.decision import Deny
from egress_proxy.core.events import EndCause
from egress_proxy.core.sni_policy import FlightVerdict, Hello, OtherFlight
from egress_proxy.proxy.client_hello import FirstFlight
from egress_proxy.proxy.pipes import Pipe, PipePool

# Bytes copied for one flow before the others have their turn. What its sink does not take of them is kept,
# so this is also what a stalled tunnel costs in memory.
TURN_BYTES = 65_536
# What a splice takes in at once, under half a millisecond's work. Both peers are woken, and acknowledge, once
# for all of it: half of this costs a third more per gigabyte.
SPLICE_BYTES = 1_048_576
# A flow is in bulk after so many turns in a row that moved so much, and for as long as they do.
BULK_TURNS = 2
BULK_BYTES = 16_384
_SPLICE_FLAGS = os.SPLICE_F_MOVE | os.SPLICE_F_NONBLOCK if sys.platform == "linux" else 0
# Where the kernel, or a filter on system calls, has no splice for these sockets: bytes are copied then.
_NO_SPLICE = frozenset({errno.EINVAL, errno.ENOSYS, errno.EPERM})
# One buffer for all: a turn is synchronous, and what it cannot send it copies out.
_BUFFER = bytearray(TURN_BYTES)
_VIEW = memoryview(_BUFFER)

FlightJudge = Callable[[Hello | OtherFlight], FlightVerdict | Deny]
Meter = Callable[[int], bool]
"""Counts bytes before they go out; False: they may not."""


class Wants(enum.Enum):
    """What a flow waits for after a turn."""

    READ = enum.auto()  # its source was empty
    WRITE = enum.auto()  # its sink took no more
    TURN = enum.auto()  # it may have more at once
    NOTHING = enum.auto()  # its end was passed on


class PeerReset(Exception):
    """A socket of the flow broke: the one it reads from, or the one it writes to."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__()
        self.sock = sock


class FlowRefused(Exception):
    """Bytes were held back by the gate or the meter, for good."""

    def __init__(self, cause: EndCause, deny: Deny | None = None) -> None:
        super().__init__(cause)
        self.cause = cause
        self.deny = deny


class Flow:
    """One direction. `turn` is the only thing that moves bytes."""

    __slots__ = (
        "_full_turns",
        "_gate",
        "_judge",
        "_meter",
        "_pending",
        "_pipe",
        "_pipes",
        "armed",
        "carried",
        "ended",
        "ends_by_close",
        "in_bulk",
        "sink",
        "source",
        "source_hung_up",
    )

    def __init__(
        self,
        source: socket.socket,
        sink: socket.socket,
        meter: Meter | None = None,
        pipes: PipePool | None = None,
    ) -> None:
        """``pipes`` where bulk may be spliced; a metered flow is always copied, it must see its bytes."""
        self.source = source
        self.sink = sink
        self.carried = 0
        self.ended = False
        self.ends_by_close = False  # the other flow has ended: closing both sockets tells the sink
        self.in_bulk = False  # it moves much, and can wait for those that move little
        self.armed: Wants = Wants.NOTHING  # what readiness.py watches for this flow
        # Set by an edge-triggered driver: the end was signalled once, so a short read is not the last one.
        self.source_hung_up = False
        self._pending = b""
        self._full_turns = 0
        self._pipe: Pipe | None = None
        self._pipes = pipes if meter is None else None
        self._meter = meter
        self._gate: FirstFlight | None = None
        self._judge: FlightJudge | None = None

    def hold_until_judged(self, judge: FlightJudge) -> None:
        """Keep the first bytes back until ``judge`` has said that they may pass."""
        self._gate, self._judge = FirstFlight(), judge

    def is_holding(self) -> bool:
        """Whether bytes came and are held back for judgement."""
        return self._gate is not None and bool(self._gate.held)

    @property
    def has_pending(self) -> bool:
        return bool(self._pending)

    def is_done(self) -> bool:
        """Whether its source ended and everything was passed on."""
        return self.ended and not self._pending and self._pipe is None

    def offer(self, early: bytes) -> None:
        """Bytes that were read with the request head; they go first. Call before the first turn."""
        if early:
            self._admit(early)

    def turn(self) -> Wants:
        """Move up to one buffer, or one splice, from source to sink. Raises PeerReset, FlowRefused."""
        if self._pending and not self._send_pending():
            return Wants.WRITE
        if self.in_bulk and self._pipe is None and self._pipes is not None:
            self._pipe = self._pipes.lend()
        if self._pipe is not None:
            return self._splice(self._pipe)
        if self.ended:
            return self._pass_end_on()
        try:
            count = self.source.recv_into(_BUFFER)
        except BlockingIOError:
            self._end_burst()
            return Wants.READ
        except OSError as error:
            raise PeerReset(self.source) from error
        return self._forward(count) if count else self._end()

    def salvage(self) -> None:
        """Pass on what a source that broke had received before, as far as the sink takes it; not its end."""
        with contextlib.suppress(OSError, PeerReset, FlowRefused):
            if self._pipe is not None and not self._drain(self._pipe):
                return
            while not self._pending or self._send_pending():
                count = self.source.recv_into(_BUFFER)
                if count == 0:  # the reset, once somebody else has been told of it
                    return
                self._forward(count)

    def _forward(self, count: int) -> Wants:
        if self._gate is not None or self._meter is not None:
            # Never in bulk: what is spliced is seen by neither, and a hello can be long.
            self._admit(bytes(_VIEW[:count]))
            if self._pending:
                self._send_pending()
        else:
            sent = self._send(_VIEW[:count])
            self._note_turn(count)
            if sent < count:
                self._pending = bytes(_VIEW[sent:count])
        if self._pending:
            return Wants.WRITE
        # A short read has emptied the source: this saves a failing read for every message.
        return Wants.TURN if count == TURN_BYTES or self.source_hung_up else Wants.READ

    def _note_turn(self, count: int) -> None:
        if count >= BULK_BYTES:
            self._full_turns += 1
            self.in_bulk = self._full_turns >= BULK_TURNS
        elif self._full_turns:
            self._end_burst()

    def _end_burst(self) -> None:
        self._full_turns = 0
        self.in_bulk = False

    def _splice(self, pipe: Pipe) -> Wants:
        """A turn of bulk: from socket to socket inside the kernel."""
        if not self._drain(pipe):
            return Wants.WRITE
        try:
            pipe.held = os.splice(self.source.fileno(), pipe.writer, SPLICE_BYTES, flags=_SPLICE_FLAGS)
        except BlockingIOError:
            self.release()
            self._end_burst()
            return Wants.READ
        except OSError as error:
            self.release()
            if error.errno not in _NO_SPLICE:
                raise PeerReset(self.source) from error
            self._pipes = None
            return Wants.TURN
        if pipe.held == 0:
            self.release()
            return self._end()
        if pipe.held < BULK_BYTES:
            self._end_burst()
        if not self._drain(pipe):
            return Wants.WRITE
        self.release()
        # Even a short splice says nothing of the source: the pipe may be small, or cut up by small segments.
        return Wants.TURN

    def _drain(self, pipe: Pipe) -> bool:
        """Empty the pipe into the sink; False when the sink takes no more."""
        while pipe.held:
            try:
                sent = os.splice(pipe.reader, self.sink.fileno(), pipe.held, flags=_SPLICE_FLAGS)
            except BlockingIOError:
                return False
            except OSError as error:
                raise PeerReset(self.sink) from error
            pipe.held -= sent
            self.carried += sent
        return True

    def release(self) -> None:
        """Give the pipe back: it is empty, or the tunnel is over."""
        if self._pipe is not None and self._pipes is not None:
            self._pipes.take_back(self._pipe)
            self._pipe = None

    def _admit(self, data: bytes) -> None:
        """Queue bytes once the gate and the meter have let them pass."""
        if self._gate is not None and self._judge is not None:
            flight = self._gate.feed(data)
            if flight is None:
                return
            data = self._judged(flight, bytes(self._gate.held), self._judge)
        if self._meter is not None and not self._meter(len(data)):
            raise FlowRefused(EndCause.GRANT_ENDED)
        self._pending += data

    def _judged(self, flight: Hello | OtherFlight, held: bytes, judge: FlightJudge) -> bytes:
        verdict = judge(flight)
        if isinstance(verdict, Deny):
            raise FlowRefused(EndCause.SNI_REFUSED, verdict)
        self._gate = self._judge = None
        return held

    def _send_pending(self) -> bool:
        sent = self._send(self._pending)
        self._pending = self._pending[sent:]
        return not self._pending

    def _send(self, data: bytes | memoryview) -> int:
        try:
            sent = self.sink.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise PeerReset(self.sink) from error
        self.carried += sent
        return sent

    def _end(self) -> Wants:
        self.ended = True
        if self._gate is not None and self._judge is not None and self._gate.held:
            # The client stopped in the middle of its hello.
            self._pending += self._judged(OtherFlight.UNREADABLE, bytes(self._gate.held), self._judge)
        return Wants.WRITE if self._pending else self._pass_end_on()

    def _pass_end_on(self) -> Wants:
        """Everything is out: the sink hears that there will be no more (half-close)."""
        if not self.ends_by_close:
            with contextlib.suppress(OSError):  # the other flow reads the reset that this would be
                self.sink.shutdown(socket.SHUT_WR)
        return Wants.NOTHING
