"""One client's request, the story on one screen: read head -> decide -> dial -> act.

Whether is core's (policy.py), how bytes move is tunnel_table.py's and exchange.py's. A refusal ends the
connection; between two requests of a kept one there is no task (kept.py). Next: intake.py, listener.py.
"""

import asyncio
import contextlib
import enum
from collections.abc import Awaitable, Callable
from dataclasses import replace

from egress_proxy.core.access import Access, Door
from egress_proxy.core.decision import Allow, Ask, Deny, Reason
from egress_proxy.core.events import EndCause
from egress_proxy.core.policy import decide
from egress_proxy.core.reply import ESTABLISHED, refusal_status, refuse, unanswered
from egress_proxy.core.request import RequestError, RequestHead, parse_head
from egress_proxy.core.seams import AuditUnavailable
from egress_proxy.proxy.admission import (
    connect_access,
    record_allowed,
    record_unopened,
    refused_event,
)
from egress_proxy.proxy.closing import close_politely
from egress_proxy.proxy.exchange import Exchange
from egress_proxy.proxy.forward import ClientAfter, Forwarded
from egress_proxy.proxy.head_reader import Silence, read_head, with_target
from egress_proxy.proxy.injected import Admitted, Inside, Refused, admit, record_end
from egress_proxy.proxy.intake import is_probe, named_target
from egress_proxy.proxy.opening import Dialled, dial
from egress_proxy.proxy.order import ExchangeEnd, Order
from egress_proxy.proxy.parts import Parts
from egress_proxy.proxy.peer import Peer
from egress_proxy.proxy.rejudge import no_longer_allowed, order_is_void
from egress_proxy.proxy.stream import SocketStream, StreamReset
from egress_proxy.proxy.tunnel import TunnelFacts


class After(enum.Enum):
    """What becomes of the connection after a request."""

    KEPT = enum.auto()  # another may come
    CLOSED = enum.auto()
    HANDED_OVER = enum.auto()  # the socket is the tunnel's now


class Connection:
    """One client. Each coroutine serves one request, or its end; what it calls CLOSED has been closed."""

    def __init__(
        self, parts: Parts, stream: SocketStream, peer: Peer, is_draining: Callable[[], bool]
    ) -> None:
        self._parts = parts
        self._is_draining = is_draining
        self._loop = asyncio.get_running_loop()
        self.stream = stream
        self.peer = peer
        self.request_id = ""
        self.head_due_at: float | None = None  # when the first head is due, where its time runs already
        self.inside: Inside | None = None
        self.is_busy = False  # a request is being served: draining waits for it
        self.ended_by: EndCause | None = None  # whoever ended it: the request that is under way is its last
        self.exchange: Exchange | None = None  # while one is under way
        self.unended: tuple[Admitted, float] | None = None  # a request with a place and no end line

    async def serve(self) -> After:
        """The next request, from its head on."""
        return await self._until_end(self._serve())

    async def refuse_dial(self, head: RequestHead, access: Access, deny: Deny, request_id: str) -> After:
        """Tell a client whose request was dialled elsewhere (arrivals.py) that it came to nothing."""
        self.request_id, self.is_busy = request_id, True
        return await self._until_end(self._refuse(deny, head, access))

    async def forward_anew(self) -> After:
        """A kept upstream had died under a request that is ``unended``, before it said a word."""
        assert self.unended is not None  # noqa: S101  narrows the type
        return await self._until_end(self._forward(*self.unended, fresh=True))

    def give_up(self) -> None:
        """It was ended before its task had taken a step."""
        self.end()
        if self.unended is not None:
            self._record_end(Forwarded(ClientAfter.GONE, self.ended_by or EndCause.FAULT))

    async def finish(self, order: Order, done: Forwarded) -> After:
        """Say what is left to be said after an exchange."""
        return await self._until_end(self._finish(order, done))

    async def _until_end(self, steps: Awaitable[After]) -> After:
        after = After.CLOSED
        try:
            after = await steps
            if after is After.KEPT and self.ended_by is not None:
                after = After.CLOSED
        except StreamReset:
            pass  # the client is gone: there is nobody to tell
        finally:
            self.is_busy = False
            if after is After.CLOSED:
                self.end()
        return after

    def end(self) -> None:
        """Close it. The CONNECT to an inject rule's host, if it came by one, ends with it."""
        self.stream.close()
        if self.inside is not None:
            inside, self.inside = self.inside, None
            lasted_s, cause = self._loop.time() - inside.since_s, self.ended_by or EndCause.DONE
            record_unopened(inside.request_id, inside.access, cause, self._parts, lasted_s)

    async def _serve(self) -> After:
        limits = self._parts.limits
        due_at, self.head_due_at = self.head_due_at, None
        timeout_s = limits.head_s if due_at is None else max(0.0, due_at - self._loop.time())
        raw = await read_head(self.stream, limits.head_bytes, timeout_s)
        self.request_id = self._parts.new_id()
        self.is_busy = True
        match raw:
            case Silence.CLOSED:
                return After.CLOSED
            case Silence.BINARY:
                self._record_refusal(Deny(Reason.NOT_HTTP), None, None, status=None)
                return After.CLOSED
            case Deny():
                return await self._refuse(raw, None)
        try:
            return await self._answer(parse_head(raw))
        except RequestError as error:
            return await self._refuse(with_target(Deny(Reason.MALFORMED, detail=str(error)), raw), None)

    async def _answer(self, head: RequestHead) -> After:
        if self._is_draining():
            return await self._refuse(Deny(Reason.DRAINING), head)
        if head.method == "CONNECT" and self.inside is None:
            return await self._connect(head)
        if not self._parts.in_force.policy.routes:
            return await self._refuse(Deny(Reason.METHOD_NOT_ALLOWED), head)
        return await self._inject(head)

    async def _connect(self, head: RequestHead) -> After:
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
        decision = decide(access, parts.in_force.policy, parts.grants.snapshot(), parts.clock())
        match decision:
            case Ask():
                return await parts.asker(access) if parts.asker else unanswered(decision)
            case _:
                return decision

    async def _open_inside(self, head: RequestHead, access: Access, allow: Allow) -> After:
        """The client speaks plain HTTP to a rule's host: we are the other end, nothing is tunnelled."""
        failed = record_allowed(self.request_id, self.peer, access, allow, None, self._parts)
        if failed is not None:
            return await self._refuse(failed, head, access)
        self.inside = Inside(self.request_id, access, self._loop.time())
        await self._say(ESTABLISHED)
        return After.KEPT

    async def _open_tunnel(self, head: RequestHead, access: Access, allow: Allow) -> After:
        dialled = await dial(self.request_id, self.peer, access, allow, self._parts)
        if isinstance(dialled, Deny):
            return await self._refuse(dialled, head, access)
        cause: EndCause | None = EndCause.CLIENT_RESET
        try:
            await self._say(ESTABLISHED)
            # The client may have been slow to take in the 200, and it is void by now.
            void = no_longer_allowed(access, dialled.allow, self._parts)
            cause = None if void is None else EndCause.POLICY_CHANGED
        finally:
            self._parts.tunnels.places.leave(access.client)  # an open tunnel has one of its own
            if cause is not None:
                dialled.upstream.close()
                record_unopened(self.request_id, access, self.ended_by or cause, self._parts)
        return After.CLOSED if cause is not None else self._hand_over(access, dialled)

    def _hand_over(self, access: Access, dialled: Dialled) -> After:
        now_s = self._loop.time()
        facts = TunnelFacts(
            self.request_id, access.client, access.target, dialled.address, dialled.allow, now_s
        )
        early, sni = self.stream.take_unread(), self._parts.in_force.policy.sni
        self._parts.tunnels.open(facts, self.stream.release(), dialled.upstream, early, sni)
        return After.HANDED_OVER

    async def _inject(self, head: RequestHead) -> After:
        admitted = admit(self.request_id, head, self.inside, self.peer, self._parts)
        if isinstance(admitted, Refused):
            return await self._refuse(admitted.deny, head, admitted.access)
        access, allow = admitted.access, admitted.order.allow
        full = self._parts.tunnels.places.refusal(access)
        refusal = full or record_allowed(self.request_id, self.peer, access, allow, None, self._parts)
        if refusal is not None:
            return await self._refuse(refusal, head, access)
        self._parts.tunnels.places.occupy(access.client)
        return await self._forward(admitted, self._loop.time())

    async def _forward(self, admitted: Admitted, started_at: float, *, fresh: bool = False) -> After:
        self.unended = admitted, started_at
        try:
            done = await self._exchanged(admitted, fresh=fresh)
            if done.is_repeatable and self.ended_by is None:
                done = await self._exchanged(admitted, fresh=True)
        except BaseException:
            done = Forwarded(ClientAfter.GONE, self.ended_by or EndCause.FAULT)
            raise
        finally:
            self._record_end(done)
        return await self._finish(admitted.order, done)

    def _record_end(self, done: Forwarded) -> None:
        if self.unended is not None:
            admitted, started_at = self.unended
            self.unended = None
            self._parts.tunnels.places.leave(admitted.access.client)
            record_end(admitted, done, self._loop.time() - started_at, self._parts)

    async def _exchanged(self, admitted: Admitted, *, fresh: bool) -> Forwarded:
        claim = await self._parts.forwarder.claim(admitted.order, fresh=fresh)
        if isinstance(claim, Deny):
            return Forwarded(ClientAfter.CLOSE, EndCause.FAULT, deny=claim)
        ended: asyncio.Future[ExchangeEnd] = self._loop.create_future()

        def settle(_: Exchange, end: ExchangeEnd) -> None:
            if not ended.done():
                ended.set_result(end)

        try:
            void = order_is_void(admitted.access, admitted.order, self.peer, self._parts)
            if void is not None:
                claim.upstream.stream.close()
                return Forwarded(ClientAfter.CLOSE, EndCause.FAULT, deny=void)
            self.exchange = exchange = self._parts.forwarder.exchange(claim, self.stream, settle)
            exchange.start()
            end = await ended
        except BaseException:  # cancelled, as a rule
            self.stream.abort()
            claim.upstream.stream.abort()
            raise
        finally:
            self.exchange = None
        return self._parts.forwarder.ended(claim, exchange, end)

    async def _finish(self, order: Order, done: Forwarded) -> After:
        match done.after:
            case ClientAfter.KEPT:
                return After.KEPT
            case ClientAfter.CLOSE if done.deny is not None:
                return await self._send_refusal(done.deny, order.head)
            case ClientAfter.CLOSE:
                await self._close_politely()
        return After.CLOSED

    async def _refuse(self, deny: Deny, head: RequestHead | None, access: Access | None = None) -> After:
        if deny.target is None and head is not None:
            deny = replace(deny, target=named_target(head.method, head.target))
        if head is None or not is_probe(head):
            self._record_refusal(deny, head, access, refusal_status(deny.reason))
        return await self._send_refusal(deny, head)

    def _record_refusal(
        self, deny: Deny, head: RequestHead | None, access: Access | None, status: int | None
    ) -> None:
        """``status`` is what the client is told; None when nothing is said."""
        event = replace(refused_event(self.request_id, self.peer, deny, head, access), status=status)
        with contextlib.suppress(AuditUnavailable):  # refused already; it cannot be more than that
            self._parts.audit(event)

    async def _send_refusal(self, deny: Deny, head: RequestHead | None) -> After:
        reply = refuse(deny, self.request_id)
        is_head = head is not None and head.method == "HEAD"
        await self._say(reply.head if is_head else reply.head + reply.body)
        await self._close_politely()
        return After.CLOSED

    async def _close_politely(self) -> None:
        self.is_busy = False  # all is said: a client that stays must not hold up the end of the service
        await close_politely(self.stream)

    async def _say(self, words: bytes) -> None:
        """Send what is ours, which is short: a client that does not take it in is as good as gone."""
        try:
            async with asyncio.timeout(self._parts.limits.head_s):
                await self.stream.send(words)
        except TimeoutError:
            raise StreamReset from None
