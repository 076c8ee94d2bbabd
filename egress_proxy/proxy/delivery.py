"""An answer on its way from the upstream's stream to the client's: when it is read, and when it is sent.

Without a task. What the client gets is answering.py's; what an end means is exchange.py's, which starts this.
Next: answering.py, reflection.py (why some of it waits).
"""

import asyncio
from collections.abc import Callable

from egress_proxy.core.decision import Reason
from egress_proxy.proxy.answering import Answering, UpstreamLost
from egress_proxy.proxy.stream import SocketStream, Stream, StreamReset, StreamTruncated

# How long text without a line end waits after the last arrival, whatever it is: longer than the gaps between
# the segments of one write, too short to be felt. Events end in line ends and wait for nothing.
HOLD_S = 0.002

Step = Callable[[], None]


class ClientLost(Exception):
    """The client reset its connection, ended in the middle of its body, or does not take its answer in."""


def _unheard(*_: object) -> None:
    """After the end."""


class Delivery:
    """``drive`` runs a step and takes its errors; ``on_step`` hears of each and whether it sent something;
    ``on_over``: the client has it all.

    Steps raise ClientLost, and what `Answering.take_in` does.
    """

    __slots__ = (
        *("_client", "_down", "_drive", "_heard_at", "_holding", "_is_stopped", "_loop", "_on_over"),
        *("_on_step", "_upstream", "has_sent"),
    )

    def __init__(
        self,
        client: SocketStream,
        upstream: Stream,
        down: Answering,
        *,
        drive: Callable[[Step], None],
        on_step: Callable[[bool], None],
        on_over: Step,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._client = client
        self._upstream = upstream
        self._down = down
        self._drive = drive
        self._on_step = on_step
        self._on_over = on_over
        self._holding: asyncio.TimerHandle | None = None
        self._heard_at = 0.0
        self._is_stopped = False
        self.has_sent = False

    def start(self) -> None:
        self._upstream.look_on(self._on_upstream)

    def stop(self) -> None:
        """Nothing more happens by itself. Its owner is let go: the two know one another."""
        self._is_stopped = True
        self._drive = self._on_step = self._on_over = _unheard
        if self._holding is not None:
            self._holding.cancel()

    def go_on(self) -> None:
        """A step: the client has room again, or it is our turn."""
        if self._client.is_broken():
            raise ClientLost
        if self._is_stopped or self._client.is_clogged():
            return
        if self._pass_on(self._down.go_on()):
            self._upstream.look_on(self._on_upstream)
            if self._upstream.has_more():
                self._answer()

    def _on_upstream(self) -> None:
        self._drive(self._answer)

    def _on_turn(self) -> None:
        self._drive(self.go_on)

    def _on_held(self) -> None:
        # From the last arrival on: counted from an earlier byte, the time could run out between two pieces of
        # a form that come right after one another, and the first would be out before the whole is seen.
        due_at = self._heard_at + HOLD_S
        if self._loop.time() < due_at:
            self._holding = self._loop.call_at(due_at, self._on_held)
            return
        self._holding = None
        self._drive(self._let_go)

    def _answer(self) -> None:
        """One read of the upstream's, to the client at once: an event must not wait for the next."""
        while (data := self._take()) is not None:
            if not self._pass_on(self._down.take_in(data)) or not self._upstream.has_more():
                return

    def _take(self) -> bytes | None:
        try:
            return self._upstream.take(self._down.read_limit_bytes)
        except StreamReset:
            raise UpstreamLost(Reason.UPSTREAM_PROTOCOL, "the upstream reset the connection") from None
        except StreamTruncated:
            raise UpstreamLost(Reason.UPSTREAM_PROTOCOL, "the upstream broke off the connection") from None

    def _let_go(self) -> None:
        # A clogged client gets it when it has room; what has not been looked at yet comes before.
        if not self._client.is_clogged() and not self._down.is_behind:
            self._pass_on(self._down.let_go())

    def _pass_on(self, ready: bytes) -> bool:
        """Send it; whether more may be read after that."""
        down, client = self._down, self._client
        if ready:
            self.has_sent = True
            self._send(ready)
        is_clogged = client.is_clogged()
        if down.is_over and not is_clogged:
            self._on_over()
            return False
        self._on_step(bool(ready))
        if is_clogged or down.is_behind:
            self._upstream.look_on(None)
            if not is_clogged:
                self._loop.call_soon(self._on_turn)
            return False
        if down.holds:
            self._heard_at = self._loop.time()
            if self._holding is None:
                self._holding = self._loop.call_at(self._heard_at + HOLD_S, self._on_held)
        return True

    def _send(self, data: bytes) -> None:
        try:
            self._client.give(data)
        except StreamReset as error:
            raise ClientLost from error
