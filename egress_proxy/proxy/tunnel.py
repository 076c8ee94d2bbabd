"""One tunnel: two flows, what it rests on, and how it ends. It owns both sockets until then.

Who may open one is settled before (connection.py); when its flows take turns is readiness.py's business.
Next: relay.py (a flow), tunnel_table.py (all of them).
"""

import socket
from collections.abc import Callable
from dataclasses import dataclass

from egress_proxy.core.access import Client
from egress_proxy.core.address import Address
from egress_proxy.core.decision import Allow, Deny
from egress_proxy.core.events import EndCause
from egress_proxy.core.host import Target
from egress_proxy.proxy.relay import Flow, FlowRefused, PeerReset, Wants
from egress_proxy.proxy.stream import reset_on_close


@dataclass(frozen=True, slots=True)
class TunnelFacts:
    """What a tunnel rests on, for the log and for judging it again. ``started_at``: the loop's clock."""

    request_id: str
    client: Client
    target: Target
    address: Address
    allow: Allow
    started_at: float


class Tunnel:
    """Made by tunnel_table.py. After `end` both sockets are closed and it is never driven again."""

    __slots__ = ("_on_end", "back", "facts", "fault", "is_over", "moved_at", "out", "seen_bytes")

    def __init__(
        self,
        facts: TunnelFacts,
        out: Flow,
        back: Flow,
        on_end: Callable[["Tunnel", EndCause, Deny | None], None],
    ) -> None:
        self.facts = facts
        self.out = out
        self.back = back
        self.is_over = False
        self.fault: Exception | None = None
        self.moved_at = facts.started_at
        self.seen_bytes = 0
        self._on_end = on_end

    @property
    def flows(self) -> tuple[Flow, Flow]:
        return self.out, self.back

    @property
    def client_socket(self) -> socket.socket:
        return self.out.source

    def offer(self, early: bytes) -> bool:
        """Send on what came with the request head; False when that was refused and the tunnel is over."""
        try:
            self.out.offer(early)
        except FlowRefused as refused:
            self.end(refused.cause, refused.deny)
        return not self.is_over

    def advance(self, flow: Flow) -> Wants:
        """One turn of one flow; ends the tunnel when that was its last, or when something broke."""
        try:
            wants = flow.turn()
        except PeerReset as broken:
            at_client = broken.sock is self.client_socket
            # An answer can stand in front of a reset that we met by sending (a 413, then close).
            (self.out if at_client else self.back).salvage()
            self.end(EndCause.CLIENT_RESET if at_client else EndCause.UPSTREAM_RESET)
            return Wants.NOTHING
        except FlowRefused as refused:
            self.end(refused.cause, refused.deny)
            return Wants.NOTHING
        except Exception as error:
            # An outermost loop, like the listener's: a fault of ours ends this tunnel and no other.
            self.fault = error
            self.end(EndCause.FAULT)
            return Wants.NOTHING
        if wants is Wants.NOTHING:
            other = self.back if flow is self.out else self.out
            if other.is_done():
                self.end(EndCause.DONE)
            else:
                other.ends_by_close = True
        return wants

    @property
    def is_half_closed(self) -> bool:
        return self.out.is_done() or self.back.is_done()

    @property
    def awaits_its_reader(self) -> bool:
        """Whether bytes are under way to somebody who is slow to take them: that is not idle."""
        return any(flow.armed is Wants.WRITE for flow in self.flows)

    def unseen_reset(self) -> EndCause | None:
        """Which peer broke while nobody read from it: its flow has ended, or waits for its sink."""
        for flow, cause in ((self.out, EndCause.CLIENT_RESET), (self.back, EndCause.UPSTREAM_RESET)):
            if flow.armed is not Wants.READ and flow.source.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                return cause
        return None

    def end(self, cause: EndCause, deny: Deny | None = None) -> None:
        """Close both sockets, once. Only what is done ends clean: a cut tunnel must not look complete."""
        if self.is_over:
            return
        self.is_over = True
        try:
            self._on_end(self, cause, deny)
        finally:
            for flow in self.flows:
                flow.release()
            for flow in self.flows:
                # Whoever was told the end of a stream while we drained keeps what is still on its way.
                if cause is not EndCause.DONE and not (cause is EndCause.DRAINED and flow.is_done()):
                    reset_on_close(flow.sink)
                flow.sink.close()
