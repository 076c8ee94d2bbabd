"""One client's connection, the story on one screen: read head -> decide -> dial -> act.

Whether is core's (policy.py), how bytes move is tunnel_table.py's and forward.py's. A refusal ends the
connection; every request of a kept one is judged anew. Next: intake.py (text to Access), listener.py.
"""

import asyncio
import contextlib
import enum
from collections.abc import Callable
from dataclasses import replace

from egress_proxy.core.access import Access, Client, Door
from egress_proxy.core.decision import Allow, Ask, Deny, Reason
from egress_proxy.core.events import Ended
from egress_proxy.core.host import Target
from egress_proxy.core.policy import decide
from egress_proxy.core.reply import ESTABLISHED, refusal_status, refuse, unanswered
from egress_proxy.core.request import RequestError, RequestHead, parse_head
from egress_proxy.core.seams import AuditUnavailable
from egress_proxy.proxy.admission import (
    allowed_event,
    changed_meanwhile,
    client_of,
    connect_access,
    give_room_back,
    refused_event,
    take_room,
)
from egress_proxy.proxy.closing import close_politely
from egress_proxy.proxy.faults import fault_event
from egress_proxy.proxy.forward import ClientAfter, Order
from egress_proxy.proxy.head_reader import Silence, await_request, read_head
from egress_proxy.proxy.intake import injected_request
from egress_proxy.proxy.parts import Parts
from egress_proxy.proxy.peer import Peer
from egress_proxy.proxy.rejudge import is_known
from egress_proxy.proxy.stream import SocketStream, StreamReset
from egress_proxy.proxy.tunnel import TunnelFacts


class _After(enum.Enum):
    """What becomes of the connection after a request."""

    NEXT = enum.auto()
    CLOSE = enum.auto()
    HANDED_OVER = enum.auto()  # the socket is the tunnel's now


class Connection:
    """`run` ends with the connection, or when a tunnel has taken it over."""

    def __init__(
        self, parts: Parts, stream: SocketStream, peer: Peer, is_draining: Callable[[], bool]
    ) -> None:
        self._parts = parts
        self._stream = stream
        self.peer = peer
        self._is_draining = is_draining
        self._loop = asyncio.get_running_loop()
        self.request_id = ""
        self.head_due_at: float | None = None  # when the first head is due, where its time runs already
        # Set once a CONNECT to an inject rule's host was answered: we are the other end of it.
        self._inside: Target | None = None
        self._inside_client: Client | None = None
        self.is_busy = False  # a request is being served: draining waits for it

    async def run(self) -> None:
        after, is_first = _After.NEXT, True
        try:
            while after is _After.NEXT:
                after = await self._serve_next(is_first)
                is_first = self.is_busy = False
        except StreamReset:
            pass  # the client is gone: there is nobody to tell
        finally:
            if after is not _After.HANDED_OVER:
                self._stream.close()

    async def refuse_dial(self, head: RequestHead, access: Access, deny: Deny, request_id: str) -> None:
        """Tell a client whose request was dialled elsewhere (arrivals.py) that it came to nothing."""
        self.request_id, self.is_busy = request_id, True
        with contextlib.suppress(StreamReset):
            await self._refuse(deny, head, access)
        self._stream.close()

    async def _serve_next(self, is_first: bool) -> _After:
        limits = self._parts.limits
        if not is_first and await await_request(self._stream, limits.keep_alive_s) is not None:
            return _After.CLOSE
        due_at, self.head_due_at = self.head_due_at, None
        timeout_s = limits.head_s if due_at is None else max(0.0, due_at - self._loop.time())
        raw = await read_head(self._stream, limits.head_bytes, timeout_s)
        self.request_id = self._parts.new_id()
        self.is_busy = True
        match raw:
            case Silence.CLOSED:
                return _After.CLOSE
            case Silence.BINARY:
                self._record_refusal(Deny(Reason.NOT_HTTP), None, None, status=None)
                return _After.CLOSE
            case Deny():
                return await self._refuse(raw, None)
        try:
            return await self._answer(parse_head(raw))
        except RequestError as error:
            return await self._refuse(Deny(Reason.MALFORMED, detail=str(error)), None)

    async def _answer(self, head: RequestHead) -> _After:
        if self._is_draining():
            return await self._refuse(Deny(Reason.DRAINING), head)
        if head.method == "CONNECT" and self._inside is None:
            return await self._connect(head)
        if not self._parts.in_force.policy.routes:
            return await self._refuse(Deny(Reason.METHOD_NOT_ALLOWED), head)
        return await self._inject(head)

    async def _connect(self, head: RequestHead) -> _After:
        access = connect_access(head, self.peer, self._parts)
        if isinstance(access, Deny):
            return await self._refuse(access, head)
        decision = await self._decide(access)
        if isinstance(decision, Deny):
            return await self._refuse(decision, head, access)
        is_route = access.door is Door.CONNECT_INJECT
        return await (self._open_inside if is_route else self._open_tunnel)(head, access, decision)

    async def _decide(self, access: Access) -> Allow | Deny:
        parts = self._parts
        decision = decide(access, parts.in_force.policy, parts.grants.snapshot(), parts.now())
        match decision:
            case Ask():
                return await parts.asker(access) if parts.asker else unanswered(decision)
            case _:
                return decision

    async def _open_inside(self, head: RequestHead, access: Access, allow: Allow) -> _After:
        """The client speaks plain HTTP to a rule's host: we are the other end, nothing is tunnelled."""
        failed = self._recorded(access, allow, None)
        if failed is not None:
            return await self._refuse(failed, head, access)
        await self._say(ESTABLISHED)
        self._inside, self._inside_client = access.target, access.client
        return _After.NEXT

    async def _open_tunnel(self, head: RequestHead, access: Access, allow: Allow) -> _After:
        refusal = take_room(access, allow, self._parts)
        if refusal is not None:
            return await self._refuse(refusal, head, access)
        is_open = False
        try:
            refusal = await self._dial_and_hand_over(access, allow)
            is_open = refusal is None
        finally:
            if not is_open:
                give_room_back(allow, self._parts)
        return _After.HANDED_OVER if refusal is None else await self._refuse(refusal, head, access)

    async def _dial_and_hand_over(self, access: Access, allow: Allow) -> Deny | None:
        """None once the tunnel is open; until then no 200 was sent."""
        connected = await self._parts.outbound.connect(allow)
        if isinstance(connected, Deny):
            return connected
        upstream, address = connected
        try:
            refusal = changed_meanwhile(access, allow, self._parts) or self._recorded(
                access, allow, str(address)
            )
            if refusal is None:
                await self._say(ESTABLISHED)
                if changed_meanwhile(access, allow, self._parts) is not None:
                    raise StreamReset  # the client was slow to take in the 200, and it is void by now
        except BaseException:
            upstream.close()
            raise
        if refusal is not None:
            upstream.close()
            return refusal
        now_s = asyncio.get_running_loop().time()
        facts = TunnelFacts(self.request_id, access.client, access.target, address, allow, now_s)
        early = self._stream.take_unread()
        sni = self._parts.in_force.policy.sni
        self._parts.tunnels.open(facts, self._stream.release(), upstream, early, sni)
        return None

    async def _inject(self, head: RequestHead) -> _After:
        request = injected_request(head, self._inside)
        if isinstance(request, Deny):
            return await self._refuse(request, head)
        client = self._client_of(head)
        if isinstance(client, Deny):
            return await self._refuse(client, head)
        door = Door.ABSOLUTE if self._inside is None else Door.CONNECT_INJECT
        access = Access(client, request.target, door, head.method, request.path)
        policy = self._parts.in_force.policy
        decision = decide(access, policy, self._parts.grants.snapshot(), self._parts.now())
        route = policy.route_for(access.target, client)
        if not isinstance(decision, Allow) or route is None:
            deny = decision if isinstance(decision, Deny) else Deny(Reason.INJECT_OTHER_TARGET, access.target)
            return await self._refuse(deny, head, access)
        failed = self._recorded(access, decision, None)
        if failed is not None:
            return await self._refuse(failed, head, access)
        order = Order(self.request_id, head, request.path, request.body_bytes, route, decision)
        return await self._forward(access, order)

    def _client_of(self, head: RequestHead) -> Client | Deny:
        """Who sends this request; inside a CONNECT whoever sent that, as long as there is such a client."""
        inside = self._inside_client
        if inside is None:
            return client_of(head, self.peer, self._parts)
        return inside if is_known(inside, self._parts) else Deny(Reason.CLIENT_UNKNOWN)

    async def _forward(self, access: Access, order: Order) -> _After:
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        done = await self._parts.forwarder.forward(self._stream, order)
        ended = Ended(
            request_id=order.request_id,
            client=access.client,
            target=order.allow.target,
            door=access.door,
            cause=done.cause,
            bytes_out=done.bytes_out,
            bytes_in=done.bytes_in,
            duration_s=round(loop.time() - started_s, 3),
            status=refusal_status(done.deny.reason) if done.deny else done.status,
            reason=done.deny.reason if done.deny else None,
            detail=done.deny.detail if done.deny else "",
        )
        with contextlib.suppress(AuditUnavailable):  # it has happened; the next request is refused
            if done.recording_error is not None:
                self._parts.audit(fault_event(order.request_id, done.recording_error))
            self._parts.audit(ended)
        match done.after:
            case ClientAfter.KEPT:
                return _After.NEXT
            case ClientAfter.CLOSE if done.deny is not None:
                return await self._send_refusal(done.deny, order.head)
            case ClientAfter.CLOSE:
                await self._close_politely()
        return _After.CLOSE

    async def _refuse(self, deny: Deny, head: RequestHead | None, access: Access | None = None) -> _After:
        self._record_refusal(deny, head, access, refusal_status(deny.reason))
        return await self._send_refusal(deny, head)

    def _record_refusal(
        self, deny: Deny, head: RequestHead | None, access: Access | None, status: int | None
    ) -> None:
        """``status`` is what the client is told; None when nothing is said."""
        event = replace(refused_event(self.request_id, self.peer, deny, head, access), status=status)
        with contextlib.suppress(AuditUnavailable):  # refused already; it cannot be more than that
            self._parts.audit(event)

    async def _send_refusal(self, deny: Deny, head: RequestHead | None) -> _After:
        reply = refuse(deny, self.request_id)
        is_head = head is not None and head.method == "HEAD"
        await self._say(reply.head if is_head else reply.head + reply.body)
        await self._close_politely()
        return _After.CLOSE

    async def _close_politely(self) -> None:
        self.is_busy = False  # all is said: a client that stays must not hold up the end of the service
        await close_politely(self._stream)

    async def _say(self, words: bytes) -> None:
        """Send what is ours, which is short: a client that does not take it in is as good as gone."""
        try:
            async with asyncio.timeout(self._parts.limits.head_s):
                await self._stream.send(words)
        except TimeoutError:
            raise StreamReset from None

    def _recorded(self, access: Access, allow: Allow, address: str | None) -> Deny | None:
        """Write an allowed request down; what cannot be written down may not pass."""
        event = allowed_event(self.request_id, self.peer, access, allow, address)
        try:
            self._parts.audit(event)
        except AuditUnavailable:
            return Deny(Reason.AUDIT_UNAVAILABLE, access.target)
        return None
