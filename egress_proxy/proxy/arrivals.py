"""New clients on Linux, until their tunnel is open: the common CONNECT without a task and without a wait.

The same steps as connection.py, on the tunnels' own epoll. Whatever is not common (half a head, another
method, a refusal, a lookup, several addresses) goes there. Next: admission.py, epoll_readiness.py.
"""

import asyncio
import contextlib
import select
import socket
from collections.abc import Callable

from egress_proxy.core.access import Access, Client, Door
from egress_proxy.core.address import Address, address_text
from egress_proxy.core.decision import Allow, Deny, Reason
from egress_proxy.core.events import EndCause
from egress_proxy.core.grants import Grants
from egress_proxy.core.policy import Policy, decide
from egress_proxy.core.reply import ESTABLISHED
from egress_proxy.core.request import HEAD_END, RequestError, RequestHead, parse_head
from egress_proxy.core.seams import AuditUnavailable
from egress_proxy.proxy.admission import (
    allowed_event,
    connect_access,
    give_room_back,
    record_unopened,
    take_room,
)
from egress_proxy.proxy.arrival import Arrival, Dial, FallBack, RefuseDial
from egress_proxy.proxy.dialer import begin_dial, dial_error
from egress_proxy.proxy.epoll_readiness import EpollReadiness
from egress_proxy.proxy.faults import fault_event
from egress_proxy.proxy.parts import Parts
from egress_proxy.proxy.peer import Peer
from egress_proxy.proxy.rejudge import no_longer_allowed
from egress_proxy.proxy.stream import READ_BYTES, SocketStream, reset_on_close

_BROKEN = select.EPOLLERR | select.EPOLLHUP
_HUNG_UP = select.EPOLLRDHUP | _BROKEN
_INPUT = select.EPOLLIN | _HUNG_UP
# How late a time limit of an arrival may be noticed.
SWEEP_S = 0.25


class Arrivals:
    """``fall_back`` serves a client by connection.py from its first byte; ``refuse`` tells one that its
    dial failed."""

    def __init__(
        self,
        parts: Parts,
        readiness: EpollReadiness,
        is_draining: Callable[[], bool],
        fall_back: FallBack,
        refuse: RefuseDial,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._parts = parts
        self._readiness = readiness
        self._is_draining = is_draining
        self._fall_back = fall_back
        self._refuse = refuse
        self._waiting: dict[Arrival, None] = {}  # in the order of their coming
        self._connected: list[Arrival] = []
        self._timer: asyncio.TimerHandle | None = None
        readiness.after_events = self._open_connected

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self, sock: socket.socket, peer: Peer) -> None:
        """A client was accepted."""
        arrival = Arrival(sock, peer, self._loop.time() + self._parts.limits.head_s)
        self._waiting[arrival] = None
        self._readiness.watch(sock.fileno(), lambda events: self._on_client(arrival, events))
        if self._timer is None:
            self._timer = self._loop.call_later(SWEEP_S, self._sweep)

    def close(self) -> None:
        """The service stops: who has asked hears of it, who has said nothing is dropped."""
        for arrival in list(self._waiting):
            if arrival.dial is not None:
                self._refuse_dial(arrival, Deny(Reason.DRAINING, arrival.dial.access.target))
            else:
                self._leave(arrival)
                arrival.sock.close()

    def drop_oldest_silent(self) -> bool:
        """Make way for somebody new; False when all that wait have asked for something."""
        silent = next((one for one in self._waiting if one.dial is None), None)
        if silent is not None:
            self._drop(silent)
        return silent is not None

    def end_client(self, sandbox: Client) -> None:
        """A sandbox is gone: nobody in it is left who could be told."""
        for arrival in [one for one in self._waiting if one.peer.sandbox == sandbox]:
            if arrival.dial is not None:
                give_room_back(arrival.dial.access, arrival.dial.allow, self._parts)
            self._drop(arrival)

    def _on_client(self, arrival: Arrival, events: int) -> None:
        if not events & _INPUT:
            return
        arrival.client_spoke = True
        if arrival.dial is None:
            try:
                self._read(arrival, bool(events & _HUNG_UP))
            except Exception as error:
                self._fault(arrival, error)

    def _read(self, arrival: Arrival, hung_up: bool) -> None:
        try:
            data = arrival.sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:  # a probe that connects and closes, or a client that is gone
            self._leave(arrival)
            arrival.sock.close()
            return
        # A short read has taken all, but for the end: it was told of by the same edge.
        arrival.client_spoke = hung_up or len(data) == READ_BYTES
        if not self._begin(arrival, data):
            self._give_up(arrival, data)

    def _begin(self, arrival: Arrival, data: bytes) -> bool:
        """Start dialling if this is a common CONNECT; False changes nothing."""
        end = data.find(HEAD_END) + len(HEAD_END)
        if not len(HEAD_END) <= end <= self._parts.limits.head_bytes or not data.startswith(b"CONNECT "):
            return False
        try:
            head = parse_head(data[:end])
        except RequestError:
            return False
        admitted = self._admit(head, arrival.peer)
        if admitted is None:
            return False
        access, allow, address = admitted
        try:
            upstream = begin_dial(address, access.target.port, self._parts.outbound.keepalive_s)
        except OSError:
            give_room_back(access, allow, self._parts)
            return False
        request_id, in_force = self._parts.new_id(), self._in_force()
        arrival.dial = Dial(head, data[end:], access, allow, upstream, address, request_id, in_force)
        arrival.due_at = self._loop.time() + self._parts.outbound.timeout_s
        self._readiness.watch(upstream.fileno(), lambda events: self._on_upstream(arrival, events))
        return True

    def _admit(self, head: RequestHead, peer: Peer) -> tuple[Access, Allow, Address] | None:
        parts = self._parts
        access = connect_access(head, peer, parts)
        if isinstance(access, Deny) or access.door is not Door.TUNNEL or self._is_draining():
            return None
        allow = decide(access, parts.in_force.policy, parts.grants.snapshot(), parts.clock())
        if not isinstance(allow, Allow):
            return None
        addresses = parts.outbound.ready(allow)
        if addresses is None or isinstance(addresses, Deny) or len(addresses) != 1:
            return None
        return None if take_room(access, allow, parts) is not None else (access, allow, addresses[0])

    def _on_upstream(self, arrival: Arrival, events: int) -> None:
        arrival.upstream_spoke = arrival.upstream_spoke or bool(events & _INPUT)
        arrival.upstream_broke = bool(events & _BROKEN)
        if arrival in self._waiting and events & (select.EPOLLOUT | _BROKEN):
            self._waiting.pop(arrival, None)
            self._connected.append(arrival)

    def _open_connected(self) -> None:
        """After a batch of events: write down all that connected at once, then say 200 to each."""
        if not self._connected:
            return
        arrivals, self._connected = self._connected, []
        good: list[tuple[Arrival, Dial]] = []
        for arrival in arrivals:
            if arrival.dial is not None and self._stands(arrival):
                good.append((arrival, arrival.dial))
        events = [
            allowed_event(dial.request_id, one.peer, dial.access, dial.allow, address_text(dial.address))
            for one, dial in good
        ]
        try:
            self._parts.audit(*events)
        except AuditUnavailable:
            for arrival, dial in good:
                self._refuse_dial(arrival, Deny(Reason.AUDIT_UNAVAILABLE, dial.access.target))
            return
        except Exception as error:
            for arrival, dial in good:
                give_room_back(dial.access, dial.allow, self._parts)
                self._fault(arrival, error)
            return
        for arrival, dial in good:
            try:
                self._open(arrival, dial)
            except Exception as error:
                self._fault(arrival, error)

    def _fault(self, arrival: Arrival, error: Exception) -> None:
        """An outermost loop, like the listener's: a fault of ours ends this client and no other."""
        request_id = arrival.dial.request_id if arrival.dial else ""
        self._drop(arrival)
        with contextlib.suppress(AuditUnavailable):
            self._parts.audit(fault_event(request_id, error))

    def _stands(self, arrival: Arrival) -> bool:
        """Whether the upstream is connected and the request still allowed; else it has been refused."""
        dial = arrival.dial
        assert dial is not None  # noqa: S101  it was set before the upstream was watched
        # A dial that fails is always told of as broken: no call for the others.
        failure = dial_error(dial.upstream) if arrival.upstream_broke else None
        try:
            deny = self._changed(dial)
        except Exception as error:
            give_room_back(dial.access, dial.allow, self._parts)
            self._fault(arrival, error)
            return False
        if failure is not None:
            deny = Deny(Reason.UPSTREAM_REFUSED, dial.access.target, dial.allow.rule, failure)
        if deny is not None:
            self._refuse_dial(arrival, deny)
        return deny is None

    def _in_force(self) -> tuple[Policy, Grants]:
        return self._parts.in_force.policy, self._parts.grants.snapshot()

    def _changed(self, dial: Dial) -> Deny | None:
        policy, grants = self._in_force()
        was_policy, was_grants = dial.judged_by
        if policy is was_policy and grants is was_grants and dial.allow.grant_id is None:
            return None
        return no_longer_allowed(dial.access, dial.allow, self._parts)

    def _open(self, arrival: Arrival, dial: Dial) -> None:
        try:
            sent = arrival.sock.send(ESTABLISHED)
        except OSError:
            sent = 0
        self._parts.tunnels.places.leave(dial.access.client)  # a tunnel has one of its own
        if sent != len(ESTABLISHED):  # gone; a client that took nothing else in has room for 40 bytes
            self._readiness.unwatch(arrival.sock.fileno())
            self._drop_upstream(arrival)
            arrival.sock.close()
            record_unopened(dial.request_id, dial.access, EndCause.CLIENT_RESET, self._parts)
            return
        self._parts.tunnels.open(
            dial.facts(self._loop.time()),
            arrival.sock,
            dial.upstream,
            dial.early,
            self._parts.in_force.policy.sni,
            spoke=(arrival.client_spoke, arrival.upstream_spoke),
        )

    def _refuse_dial(self, arrival: Arrival, deny: Deny) -> None:
        dial = arrival.dial
        if dial is None:
            return
        self._leave(arrival)
        give_room_back(dial.access, dial.allow, self._parts)
        self._drop_upstream(arrival)
        stream = SocketStream(self._loop, arrival.sock)
        stream.unread(dial.early)
        self._refuse(stream, arrival.peer, dial.head, dial.access, deny, dial.request_id)

    def _give_up(self, arrival: Arrival, data: bytes) -> None:
        self._leave(arrival)
        stream = SocketStream(self._loop, arrival.sock)
        stream.unread(data)
        self._fall_back(stream, arrival.peer, arrival.due_at)

    def _leave(self, arrival: Arrival) -> None:
        self._waiting.pop(arrival, None)
        self._readiness.unwatch(arrival.sock.fileno())

    def _drop(self, arrival: Arrival) -> None:
        self._leave(arrival)
        self._drop_upstream(arrival)
        reset_on_close(arrival.sock)
        arrival.sock.close()

    def _drop_upstream(self, arrival: Arrival) -> None:
        if arrival.dial is not None:
            self._readiness.unwatch(arrival.dial.upstream.fileno())
            arrival.dial.upstream.close()

    def _sweep(self) -> None:
        now = self._loop.time()
        for arrival in [one for one in self._waiting if one.due_at <= now]:
            if arrival.dial is not None:
                target, rule = arrival.dial.access.target, arrival.dial.allow.rule
                self._refuse_dial(arrival, Deny(Reason.UPSTREAM_TIMEOUT, target, rule))
            else:
                self._leave(arrival)
                arrival.sock.close()
        self._timer = self._loop.call_later(SWEEP_S, self._sweep) if self._waiting else None
