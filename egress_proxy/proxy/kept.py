"""Clients between two requests: without a task, and without one for a common request to an inject rule.

Common: its head comes in one piece, it is allowed, and an upstream is kept for it. Anything else is left to
connection.py, from the request's first byte on. Next: injected.py (the steps), exchange.py (moves the bytes).
"""

import asyncio
import contextlib
import functools
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

from egress_proxy.core.events import EndCause, Ended
from egress_proxy.core.policy import Policy
from egress_proxy.core.request import HEAD_END, RequestError, parse_head
from egress_proxy.core.seams import AuditUnavailable
from egress_proxy.proxy.admission import allowed_event
from egress_proxy.proxy.connection import After, Connection
from egress_proxy.proxy.exchange import Exchange
from egress_proxy.proxy.faults import fault_event
from egress_proxy.proxy.forward import Claim, ClientAfter, Forwarded
from egress_proxy.proxy.injected import Admitted, Refused, admit, ended_event
from egress_proxy.proxy.order import ExchangeEnd
from egress_proxy.proxy.parts import Parts
from egress_proxy.proxy.stream import StreamReset

# Called in the task: a task that is cancelled before its first step leaves no coroutine behind.
Work = Callable[[], Coroutine[None, None, After]]
Start = Callable[[Connection, Work], None]
"""Serve a client in a task of its own, from here on."""


@dataclass(frozen=True, slots=True)
class _Due:
    """A request that is allowed by ``policy`` and goes out once all that came with it are judged."""

    connection: Connection
    raw: bytes  # its head as it came
    admitted: Admitted
    claim: Claim
    policy: Policy


class KeptClients:
    """They are here until they leave, are idle for too long, or need a task.

    What comes in one round of the loop is written down at once and then sent: a write for each line, and
    waking the upstream for each request, would be a fifth of what they cost.
    """

    def __init__(self, parts: Parts, is_draining: Callable[[], bool], start: Start) -> None:
        self._parts = parts
        self._places = parts.tunnels.places
        self._is_draining = is_draining
        self._start = start
        self._loop = asyncio.get_running_loop()
        self._clients: dict[Connection, None] = {}  # who has been quiet for the longest comes first
        self._due: list[_Due] = []
        self._ended: list[Ended] = []
        self._round: asyncio.Handle | None = None

    def __len__(self) -> int:
        return len(self._clients)

    def keep(self, connection: Connection) -> None:
        """Wait for its next request."""
        self._clients.pop(connection, None)
        self._clients[connection] = None
        connection.is_busy = False
        stream = connection.stream
        stream.look_on(functools.partial(self._on_input, connection))
        stream.deadline.set(self._parts.limits.keep_alive_s, functools.partial(self._drop, connection))
        if stream.has_more():
            self._on_input(connection)

    def end_where(self, chosen: Callable[[Connection], bool], cause: EndCause) -> int:
        """End those at once, and write down what that ended; how many there were."""
        ended = [one for one in self._clients if chosen(one)]
        for connection in ended:
            connection.ended_by = cause
            if connection.exchange is not None:
                connection.exchange.cut(cause)
            self._drop(connection)
        self._end_round()
        return len(ended)

    def drop_oldest_idle(self) -> bool:
        """Make way for somebody new; False when all have a request under way."""
        idle = next((one for one in self._clients if not one.is_busy), None)
        if idle is not None:
            self._drop(idle)
        return idle is not None

    def _on_input(self, connection: Connection) -> None:
        try:
            self._begin(connection)
        except StreamReset:
            self._drop(connection)
        except Exception as error:
            self._fail(connection, error)

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
        if admitted is None or claim is None:
            self._serve(connection, data)
            return
        if self._places.take(admitted.access) is not None:
            self._parts.forwarder.put_back(claim)
            self._serve(connection, data)  # it is refused there
            return
        connection.is_busy = True
        stream.look_on(None)
        stream.unread(data[end:])
        self._due.append(_Due(connection, data[:end], admitted, claim, self._parts.in_force.policy))
        self._await_end_of_round()

    def _admitted(self, connection: Connection, raw: bytes) -> Admitted | None:
        """The request, if it is a common one that is allowed. None changes nothing."""
        if len(raw) > self._parts.limits.head_bytes or self._is_draining():
            return None
        connection.request_id = self._parts.new_id()
        try:
            head = parse_head(raw)
        except RequestError:
            return None
        admitted = admit(connection.request_id, head, connection.inside, connection.peer, self._parts)
        return None if isinstance(admitted, Refused) else admitted

    def _await_end_of_round(self) -> None:
        if self._round is None:
            self._round = self._loop.call_soon(self._end_round)

    def _end_round(self) -> None:
        """Write down what has ended and what is due, all in one write; then send what is due."""
        if self._round is not None:
            self._round.cancel()
            self._round = None
        ended, self._ended = self._ended, []
        due, self._due = [one for one in self._due if self._stands(one)], []
        if not ended and not due:
            return
        allowed = [
            allowed_event(
                one.admitted.order.request_id,
                one.connection.peer,
                one.admitted.access,
                one.admitted.order.allow,
                None,
            )
            for one in due
        ]
        try:
            self._parts.audit(*ended, *allowed)
        except AuditUnavailable:
            for one in due:
                self._take_back(one)  # it is refused there, for the same reason
        except Exception as error:
            self._fail_all(due, error)
        else:
            for one in due:
                self._send(one)

    def _stands(self, due: _Due) -> bool:
        """Whether its client is still here and nothing was swapped since; else it is dealt with."""
        if due.connection in self._clients and due.policy is self._parts.in_force.policy:
            return True
        self._take_back(due)
        return False

    def _take_back(self, due: _Due) -> None:
        self._places.leave(due.admitted.access.client)
        self._parts.forwarder.put_back(due.claim)
        if due.connection in self._clients:
            self._serve(due.connection, due.raw)

    def _send(self, due: _Due) -> None:
        connection, started_at = due.connection, self._loop.time()
        on_end = functools.partial(self._on_end, due, started_at)
        connection.unended = due.admitted, started_at
        try:
            connection.exchange = self._parts.forwarder.exchange(due.claim, connection.stream, on_end)
            connection.exchange.start()
        except Exception as error:
            due.claim.upstream.stream.abort()
            self._go_on(due, started_at, Forwarded(ClientAfter.GONE, EndCause.FAULT, fault=error))

    def _on_end(self, due: _Due, started_at: float, exchange: Exchange, end: ExchangeEnd) -> None:
        due.connection.exchange = None
        try:
            done = self._parts.forwarder.ended(due.claim, exchange, end)
        except Exception as error:
            done = Forwarded(ClientAfter.GONE, EndCause.FAULT, fault=error)
        try:
            self._go_on(due, started_at, done)
        except Exception as error:
            self._fail(due.connection, error)

    def _go_on(self, due: _Due, started_at: float, done: Forwarded) -> None:
        connection, admitted = due.connection, due.admitted
        connection.unended = None
        if done.is_repeatable:
            self._leave(connection)
            connection.unended = admitted, started_at
            self._start(connection, connection.forward_anew)
            return
        self._places.leave(admitted.access.client)
        if done.fault is not None:
            self._record_fault(connection, done.fault)
        self._ended.append(ended_event(admitted, done, self._loop.time() - started_at))
        self._await_end_of_round()
        match done.after:
            case ClientAfter.KEPT:
                self.keep(connection)
            case ClientAfter.CLOSE:
                self._leave(connection)
                self._start(connection, functools.partial(connection.finish, admitted.order, done))
            case ClientAfter.GONE:
                self._drop(connection)

    def _serve(self, connection: Connection, data: bytes) -> None:
        """Leave it to a task, from these bytes on."""
        self._leave(connection)
        connection.stream.unread(data)
        self._start(connection, connection.serve)

    def _fail_all(self, due: list[_Due], error: Exception) -> None:
        if not due:
            self._record_fault(None, error)
        for one in due:
            self._places.leave(one.admitted.access.client)
            self._parts.forwarder.put_back(one.claim)
            self._fail(one.connection, error)

    def _fail(self, connection: Connection, error: Exception) -> None:
        """An outermost loop, like the listener's: a fault of ours ends this client and no other."""
        self._drop(connection)
        self._record_fault(connection, error)

    def _record_fault(self, connection: Connection | None, error: Exception) -> None:
        with contextlib.suppress(AuditUnavailable):
            self._parts.audit(fault_event(connection.request_id if connection else "", error))

    def _leave(self, connection: Connection) -> None:
        self._clients.pop(connection, None)
        connection.stream.look_on(None)
        connection.stream.deadline.clear()

    def _drop(self, connection: Connection) -> None:
        self._leave(connection)
        connection.end()
