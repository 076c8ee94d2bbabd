"""Clients between two requests: without a task, and without one for a common request to an inject rule.

Common: its head comes in one piece, it is allowed, and an upstream is kept for it. Anything else is left to
connection.py, from the request's first byte on. Next: injected.py (the steps), exchange.py (moves the bytes).
"""

import contextlib
import functools
from collections.abc import Callable, Coroutine

from egress_proxy.core.events import EndCause
from egress_proxy.core.request import HEAD_END, RequestError, parse_head
from egress_proxy.core.seams import AuditUnavailable
from egress_proxy.proxy.admission import allowed_event
from egress_proxy.proxy.connection import After, Connection
from egress_proxy.proxy.faults import fault_event
from egress_proxy.proxy.forward import Claim, ClientAfter, Forwarded
from egress_proxy.proxy.injected import Admitted, Refused, admit, record_end
from egress_proxy.proxy.parts import Parts
from egress_proxy.proxy.stream import StreamReset

# Called in the task: a task that is cancelled before its first step leaves no coroutine behind.
Work = Callable[[], Coroutine[None, None, After]]
Start = Callable[[Connection, Work], None]
"""Serve a client in a task of its own, from here on."""


class KeptClients:
    """They are here until they leave, are idle for too long, or need a task."""

    def __init__(
        self, parts: Parts, is_draining: Callable[[], bool], clock: Callable[[], float], start: Start
    ) -> None:
        """``clock``: of the event loop."""
        self._parts = parts
        self._is_draining = is_draining
        self._clock = clock
        self._start = start
        self._clients: set[Connection] = set()

    def __len__(self) -> int:
        return len(self._clients)

    def keep(self, connection: Connection) -> None:
        """Wait for its next request."""
        self._clients.add(connection)
        connection.is_busy = False
        stream = connection.stream
        stream.look_on(functools.partial(self._on_input, connection))
        stream.deadline.set(self._parts.limits.keep_alive_s, functools.partial(self._drop, connection))
        if stream.has_more():
            self._on_input(connection)

    def end_where(self, chosen: Callable[[Connection], bool], cause: EndCause) -> None:
        for connection in [one for one in self._clients if chosen(one)]:
            if connection.exchange is not None:
                connection.exchange.cut(cause)
            self._drop(connection)

    def _on_input(self, connection: Connection) -> None:
        try:
            self._begin(connection)
        except StreamReset:
            self._drop(connection)
        except Exception as error:
            self._fail(connection, error)

    def _fail(self, connection: Connection, error: Exception) -> None:
        """An outermost loop, like the listener's: a fault of ours ends this client and no other."""
        self._drop(connection)
        with contextlib.suppress(AuditUnavailable):
            self._parts.audit(fault_event(connection.request_id, error))

    def _begin(self, connection: Connection) -> None:
        stream = connection.stream
        data = stream.take()
        if data is None:
            return
        if not data:
            self._drop(connection)
            return
        end = data.find(HEAD_END) + len(HEAD_END)
        admitted = self._admitted(connection, data[:end]) if end >= len(HEAD_END) else None
        claim = None if admitted is None else self._parts.forwarder.claim_kept(admitted.order)
        if admitted is None or claim is None or not self._is_recorded(connection, admitted, claim):
            stream.unread(data)
            self._leave(connection)
            self._start(connection, connection.serve)
            return
        stream.unread(data[end:])
        self._exchange(connection, admitted, claim)

    def _admitted(self, connection: Connection, raw: bytes) -> Admitted | None:
        """The request, if it is a common one that is allowed. None changes nothing."""
        if len(raw) > self._parts.limits.head_bytes or self._is_draining():
            return None
        try:
            head = parse_head(raw)
        except RequestError:
            return None
        connection.request_id = self._parts.new_id()
        admitted = admit(connection.request_id, head, connection.inside, connection.peer, self._parts)
        return None if isinstance(admitted, Refused) else admitted

    def _is_recorded(self, connection: Connection, admitted: Admitted, claim: Claim) -> bool:
        access, order = admitted.access, admitted.order
        try:
            self._parts.audit(allowed_event(order.request_id, connection.peer, access, order.allow, None))
        except AuditUnavailable:
            self._parts.forwarder.put_back(claim)
            return False
        except BaseException:
            self._parts.forwarder.put_back(claim)
            raise
        return True

    def _exchange(self, connection: Connection, admitted: Admitted, claim: Claim) -> None:
        connection.is_busy = True
        on_end = functools.partial(self._on_end, connection, admitted, self._clock())
        connection.exchange = self._parts.forwarder.exchange(claim, connection.stream, on_end)
        connection.exchange.start()

    def _on_end(self, connection: Connection, admitted: Admitted, started_at: float, done: Forwarded) -> None:
        connection.exchange = None
        try:
            self._go_on(connection, admitted, started_at, done)
        except Exception as error:
            self._fail(connection, error)

    def _go_on(self, connection: Connection, admitted: Admitted, started_at: float, done: Forwarded) -> None:
        if done.is_repeatable:
            self._leave(connection)
            self._start(connection, functools.partial(connection.forward_anew, admitted, started_at))
            return
        record_end(admitted, done, self._clock() - started_at, self._parts)
        match done.after:
            case ClientAfter.KEPT:
                self.keep(connection)
            case ClientAfter.CLOSE:
                self._leave(connection)
                self._start(connection, functools.partial(connection.finish, admitted.order, done))
            case ClientAfter.GONE:
                self._drop(connection)

    def _leave(self, connection: Connection) -> None:
        self._clients.discard(connection)
        connection.stream.look_on(None)
        connection.stream.deadline.clear()

    def _drop(self, connection: Connection) -> None:
        self._leave(connection)
        connection.stream.close()
