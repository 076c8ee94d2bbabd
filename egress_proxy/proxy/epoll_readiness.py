"""When a flow may take its turn, on Linux: one edge-triggered epoll of our own inside the event loop.

Two `epoll_ctl` in a socket's life and one callback for a batch of events: a third of what a reader and a
writer per socket cost in the loop. Nothing is read or written here. Next: readiness.py, relay.py.
"""

import asyncio
import select
from collections import deque

from egress_proxy.proxy.relay import Flow, Wants
from egress_proxy.proxy.tunnel import Tunnel

# Events taken at once; what is left over is reported again.
BATCH = 256
_WATCHED = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET
_BROKEN = select.EPOLLERR | select.EPOLLHUP
_READABLE = select.EPOLLIN | select.EPOLLRDHUP | _BROKEN
_WRITABLE = select.EPOLLOUT | _BROKEN
_HUNG_UP = select.EPOLLRDHUP | _BROKEN

# One socket's tunnel, the flow that reads from it and the flow that writes to it.
_Watched = tuple[Tunnel, Flow, Flow]


class EpollReadiness:
    """Drives tunnels like LoopReadiness. An edge comes once, so a flow is driven until it blocks."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoll = select.epoll()
        self._watched: dict[int, _Watched] = {}
        self._again: deque[tuple[Tunnel, Flow]] = deque()
        loop.add_reader(self._epoll.fileno(), self._poll)

    def close(self) -> None:
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()

    def start(self, tunnel: Tunnel) -> None:
        for reads, writes in ((tunnel.out, tunnel.back), (tunnel.back, tunnel.out)):
            descriptor = reads.source.fileno()
            self._watched[descriptor] = (tunnel, reads, writes)
            self._epoll.register(descriptor, _WATCHED)
        # What came before the registration is reported as a first edge; early bytes are not.
        for flow in tunnel.flows:
            flow.armed = Wants.READ
            if flow.has_pending and not tunnel.is_over:
                self._advance(tunnel, flow)

    def forget(self, tunnel: Tunnel) -> None:
        """Call before the sockets are closed: closing them takes them out of the epoll."""
        for flow in tunnel.flows:
            self._watched.pop(flow.source.fileno(), None)

    def _poll(self) -> None:
        for descriptor, events in self._epoll.poll(0, BATCH):
            watched = self._watched.get(descriptor)
            if watched is not None:
                self._tell(watched, events)
        # Fresh events went first; each queued flow has one more turn, then the loop goes on.
        for _ in range(len(self._again)):
            tunnel, flow = self._again.popleft()
            if not tunnel.is_over:
                self._advance(tunnel, flow)
        if self._again:
            self._loop.call_soon(self._poll)

    def _tell(self, watched: _Watched, events: int) -> None:
        tunnel, reads, writes = watched
        if events & _HUNG_UP:
            reads.source_hung_up = True
        if events & _READABLE and reads.armed is Wants.READ:
            self._advance(tunnel, reads)
        if events & _WRITABLE and writes.armed is Wants.WRITE and not tunnel.is_over:
            self._advance(tunnel, writes)

    def _advance(self, tunnel: Tunnel, flow: Flow) -> None:
        flow.armed = tunnel.advance(flow)
        if flow.armed is Wants.TURN and not tunnel.is_over:
            self._again.append((tunnel, flow))
