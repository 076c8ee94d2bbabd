"""When a flow may take its turn, on Linux: one edge-triggered epoll of our own inside the event loop.

Two `epoll_ctl` in a socket's life and one callback for a batch of events: a third of what a reader and a
writer per socket cost in the loop. What is small goes before bulk. Nothing is read or written here. Next:
readiness.py, relay.py.
"""

import asyncio
import select
from collections import deque
from collections.abc import Callable

from egress_proxy.proxy.relay import SPLICE_BYTES, Flow, Wants
from egress_proxy.proxy.tunnel import Tunnel

# Events taken at once; what is left over is reported again.
BATCH = 256
# Bulk that is moved before fresh events are asked for again: however many flows are in bulk, a small message
# waits for so much and one turn more. Metered flows are copied and never bulk: it waits for a turn of each.
BULK_AT_ONCE_BYTES = SPLICE_BYTES
_WATCHED = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET
_BROKEN = select.EPOLLERR | select.EPOLLHUP
_READABLE = select.EPOLLIN | select.EPOLLRDHUP | _BROKEN
_WRITABLE = select.EPOLLOUT | _BROKEN
_HUNG_UP = select.EPOLLRDHUP | _BROKEN

# One socket's tunnel, the flow that reads from it and the flow that writes to it; or who is told.
_OfTunnel = tuple[Tunnel, Flow, Flow]
_Watched = _OfTunnel | Callable[[int], None]


class EpollReadiness:
    """Drives tunnels like LoopReadiness. An edge comes once, so a flow is driven until it blocks."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoll = select.epoll()
        self._watched: dict[int, _Watched] = {}
        # Descriptors given up since the last batch was fetched. The kernel hands a number out again at once:
        # what the batch still tells of it is about its last owner, and no other.
        self._given_up: set[int] = set()
        self._again: deque[tuple[Tunnel, Flow]] = deque()
        self._bulk: deque[tuple[Tunnel, Flow]] = deque()
        self.after_events: Callable[[], None] = lambda: None  # called after each batch
        self._due: asyncio.Handle | None = None  # at most one: each would ask for another
        loop.add_reader(self._epoll.fileno(), self._poll)

    def close(self) -> None:
        if self._due is not None:
            self._due.cancel()
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()

    def watch(self, descriptor: int, tell: Callable[[int], None]) -> None:
        """Report the events of a socket that has no tunnel yet; a tunnel takes the registration over."""
        self._watched[descriptor] = tell
        self._epoll.register(descriptor, _WATCHED)

    def unwatch(self, descriptor: int) -> None:
        """Forget a socket that `watch` was called for. It may be closed or go elsewhere afterwards."""
        if self._watched.pop(descriptor, None) is not None:
            self._given_up.add(descriptor)
            self._epoll.unregister(descriptor)

    def start(self, tunnel: Tunnel, spoke: tuple[bool, bool] = (False, False)) -> None:
        """Drive a tunnel. ``spoke``: whether the client and the upstream, watched before, have sent
        something since they were read from last: that edge has been reported and comes no more."""
        for reads, writes in ((tunnel.out, tunnel.back), (tunnel.back, tunnel.out)):
            descriptor = reads.source.fileno()
            is_new = descriptor not in self._watched
            self._watched[descriptor] = (tunnel, reads, writes)
            if is_new:  # what came before the registration is reported as its first edge
                self._epoll.register(descriptor, _WATCHED)
        for flow, has_input in zip(tunnel.flows, spoke, strict=True):
            flow.armed = Wants.READ
            flow.source_hung_up = has_input  # perhaps: then it is read until it blocks
            if (flow.has_pending or has_input) and not tunnel.is_over:
                self._advance(tunnel, flow)

    def forget(self, tunnel: Tunnel) -> None:
        """Call before the sockets are closed: closing them takes them out of the epoll."""
        for flow in tunnel.flows:
            descriptor = flow.source.fileno()
            self._watched.pop(descriptor, None)
            self._given_up.add(descriptor)

    def _poll(self) -> None:
        self._given_up.clear()
        for descriptor, events in self._epoll.poll(0, BATCH):
            if descriptor in self._given_up:
                continue
            watched = self._watched.get(descriptor)
            if isinstance(watched, tuple):
                self._tell(watched, events)
            elif watched is not None:
                watched(events)
        self.after_events()
        # Fresh events went first; each queued flow has one more turn, and some bulk, then the loop goes on.
        for _ in range(len(self._again)):
            self._take_turn(self._again)
        left_bytes = BULK_AT_ONCE_BYTES
        while self._bulk and left_bytes > 0:
            left_bytes -= self._take_turn(self._bulk)
        if (self._again or self._bulk) and self._due is None:
            self._due = self._loop.call_soon(self._poll_again)

    def _take_turn(self, queue: deque[tuple[Tunnel, Flow]]) -> int:
        """The first in the queue; how many bytes it passed on."""
        tunnel, flow = queue.popleft()
        before = flow.carried
        if not tunnel.is_over:
            self._advance(tunnel, flow)
        return flow.carried - before

    def _poll_again(self) -> None:
        self._due = None
        self._poll()

    def _tell(self, watched: _OfTunnel, events: int) -> None:
        tunnel, reads, writes = watched
        if events & _HUNG_UP:
            reads.source_hung_up = True
        if events & _READABLE and reads.armed is Wants.READ:
            self._wake(tunnel, reads)
        if events & _WRITABLE and writes.armed is Wants.WRITE and not tunnel.is_over:
            self._wake(tunnel, writes)

    def _wake(self, tunnel: Tunnel, flow: Flow) -> None:
        if flow.in_bulk:
            self._queue(tunnel, flow)
        else:
            self._advance(tunnel, flow)

    def _advance(self, tunnel: Tunnel, flow: Flow) -> None:
        flow.armed = tunnel.advance(flow)
        if flow.armed is Wants.TURN and not tunnel.is_over:
            self._queue(tunnel, flow)

    def _queue(self, tunnel: Tunnel, flow: Flow) -> None:
        flow.armed = Wants.TURN  # so that a further event does not queue it a second time
        (self._bulk if flow.in_bulk else self._again).append((tunnel, flow))
