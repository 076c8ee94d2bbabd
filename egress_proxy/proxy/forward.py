"""An injected request: send it on with the credential, bring the answer back. The only caller of vault.

One exchange at a time; whether it may be made was decided before (connection.py). The answer is watched
for the secret and flushed as it comes. Next: http1.py (framing), upstream_pool.py, reflection.py.
"""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from egress_proxy.core.access import InjectRoute
from egress_proxy.core.decision import Allow, Deny, Reason
from egress_proxy.core.events import EndCause
from egress_proxy.core.request import RequestHead
from egress_proxy.proxy.client_side import ClientSide
from egress_proxy.proxy.client_watch import ClientWatch
from egress_proxy.proxy.exchange import Answering, Exchange, Uploading
from egress_proxy.proxy.recorder import Recorder, Recording
from egress_proxy.proxy.secret_search import Forms
from egress_proxy.proxy.stream import SocketStream
from egress_proxy.proxy.upstream_pool import Upstream, UpstreamPool
from egress_proxy.vault.injection import Credential, HeldCredential, Rewriter, UpstreamHead, secret_forms
from egress_proxy.vault.sources import SecretUnavailable

# Methods that change nothing, or the same once as twice (RFC 9110 9.2.2): may be sent again on a new
# connection when a kept one turns out to be dead.
_REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})


class ClientAfter(enum.Enum):
    """What the client's connection is good for after an exchange."""

    KEPT = enum.auto()
    CLOSE = enum.auto()
    GONE = enum.auto()  # aborted or lost: nothing more can be sent


@dataclass(frozen=True, slots=True)
class Forwarded:
    """How an exchange ended. ``deny``: nothing was sent to the client yet, and this is to be."""

    after: ClientAfter
    cause: EndCause
    status: int | None = None
    bytes_out: int = 0
    bytes_in: int = 0
    deny: Deny | None = None
    recording_error: OSError | None = None  # what was forwarded could not be recorded


@dataclass(frozen=True, slots=True)
class ForwardLimits:
    """Seconds until the upstream's first byte, and between bytes after it."""

    first_byte_s: float
    idle_s: float


@dataclass(frozen=True, slots=True)
class Order:
    """One request to forward, decided and framed: ``body_bytes`` is its Content-Length."""

    request_id: str
    head: RequestHead
    path: bytes
    body_bytes: int
    route: InjectRoute
    allow: Allow


@dataclass(frozen=True, slots=True)
class _Ready:
    head: UpstreamHead
    forms: Forms


@dataclass(frozen=True, slots=True)
class _Rule:
    """An inject rule with the credential that it had last, and what was made of the two."""

    route: InjectRoute
    held: HeldCredential | None
    rewriter: Rewriter
    forms: Forms


class Forwarder:
    """``credentials``: those in force now, by the name of their inject rule. A rule may have none."""

    def __init__(
        self,
        pool: UpstreamPool,
        credentials: Callable[[], Mapping[str, Credential]],
        limits: ForwardLimits,
        recorder: Recorder | None,
    ) -> None:
        self._credentials = credentials
        self._pool = pool
        self._limits = limits
        self._recorder = recorder
        self._rules: dict[str, _Rule] = {}

    async def forward(self, client: SocketStream, order: Order) -> Forwarded:
        """Make one exchange. Whatever happens upstream comes back as a value."""
        try:
            ready = self._prepare(order)
        except SecretUnavailable as error:
            deny = Deny(Reason.SECRET_UNAVAILABLE, order.allow.target, order.allow.rule, str(error))
            return Forwarded(ClientAfter.CLOSE, EndCause.FAULT, deny=deny)
        side = ClientSide(order.head, order.body_bytes)
        side.feed(client.take_unread())
        recording = Recording() if self._recorder else None
        outcome = await self._send(client, order, ready, side, recording)
        client.unread(side.leftover())
        if self._recorder is None or recording is None:
            return outcome
        host = str(order.allow.target.host)
        try:
            self._recorder.write(order.request_id, order.head.method, host, order.path, recording)
        except OSError as error:
            return replace(outcome, recording_error=error)
        return outcome

    def _prepare(self, order: Order) -> _Ready:
        credential = self._credentials().get(order.route.name)
        held = credential.current() if credential else None
        rule = self._rules.get(order.route.name)
        if rule is None or rule.route is not order.route or rule.held != held:
            forms = Forms(secret_forms(held) if held else ())
            rule = _Rule(order.route, held, Rewriter(order.route, held), forms)
            self._rules[order.route.name] = rule
        return _Ready(rule.rewriter.rewrite(order.head, order.path), rule.forms)

    async def _send(
        self, client: SocketStream, order: Order, ready: _Ready, side: ClientSide, recording: Recording | None
    ) -> Forwarded:
        upstream = await self._pool.acquire(order.route, order.allow)
        if isinstance(upstream, Deny):
            return Forwarded(ClientAfter.CLOSE, EndCause.FAULT, deny=upstream)
        exchange = self._exchange(client, order, ready, side, recording, upstream)
        outcome = await self._run(exchange, order, upstream)
        if self._may_repeat(outcome, order, upstream):
            upstream = await self._pool.acquire(order.route, order.allow, fresh=True)
            if isinstance(upstream, Deny):
                return Forwarded(ClientAfter.CLOSE, EndCause.FAULT, deny=upstream)
            exchange = self._exchange(client, order, ready, side, recording, upstream)
            outcome = await self._run(exchange, order, upstream)
        return outcome

    def _may_repeat(self, outcome: Forwarded, order: Order, upstream: Upstream) -> bool:
        """Whether a kept connection had died under the request, before the upstream said a word to it."""
        died = outcome.deny is not None and outcome.deny.reason is Reason.UPSTREAM_PROTOCOL
        unsaid = not upstream.is_fresh and not upstream.http.has_answered
        return died and unsaid and order.body_bytes == 0 and order.head.method in _REPEATABLE

    def _exchange(
        self,
        client: SocketStream,
        order: Order,
        ready: _Ready,
        side: ClientSide,
        recording: Recording | None,
        upstream: Upstream,
    ) -> Exchange:
        up = Uploading(
            client=client,
            side=side,
            upstream=upstream,
            head=ready.head,
            recording=recording,
            expects_continue=bool(order.head.values(b"expect")),
            idle_s=self._limits.idle_s,
        )
        down = Answering(
            client=client,
            watch=ClientWatch(client, upstream.stream),
            side=side,
            upstream=upstream,
            forms=ready.forms,
            allow=order.allow,
            is_head=order.head.method == "HEAD",
            opaque_bodies=order.route.opaque_bodies,
            first_byte_s=self._limits.first_byte_s,
            idle_s=self._limits.idle_s,
            upload_is_done=lambda: up.is_done,
        )
        return Exchange(up, down)

    async def _run(self, exchange: Exchange, order: Order, upstream: Upstream) -> Forwarded:
        is_whole = False
        try:
            end = await exchange.run()
            is_whole = end.is_whole
        finally:
            # Cancelled, too: a connection in the middle of an exchange is nobody's next one.
            if is_whole:
                self._pool.release(order.route, upstream)
            else:
                upstream.stream.abort()
        after = ClientAfter.GONE
        if end.deny is not None:
            after = ClientAfter.CLOSE
        elif end.is_answered:
            after = ClientAfter.KEPT if exchange.down.side.is_reusable() else ClientAfter.CLOSE
        return Forwarded(
            after, end.cause, exchange.down.status, exchange.up.sent_bytes, exchange.down.body_bytes, end.deny
        )
