"""An injected request: send it on with the credential, bring the answer back. The only caller of vault.

Whether it may be made was decided before (injected.py). A connection to the upstream is claimed, the exchange
started, its end told. Next: exchange.py (moves the bytes), upstream_pool.py, connection.py (who asks).
"""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from egress_proxy.core.access import InjectRoute
from egress_proxy.core.decision import Deny, Reason
from egress_proxy.core.events import EndCause
from egress_proxy.proxy.exchange import Exchange, OnEnd
from egress_proxy.proxy.order import ExchangeEnd, ForwardLimits, Order
from egress_proxy.proxy.recorder import Recorder, Recording
from egress_proxy.proxy.secret_search import Forms
from egress_proxy.proxy.stream import SocketStream
from egress_proxy.proxy.upstream_pool import Lane, Upstream, UpstreamPool
from egress_proxy.vault.injection import Credential, HeldCredential, Rewriter, UpstreamHead, secret_texts
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
    """How an exchange ended. ``deny``: nothing was sent to the client yet, and this is to be.

    ``is_repeatable``: a kept connection had died under the request, before the upstream said a word to it.
    """

    after: ClientAfter
    cause: EndCause
    status: int | None = None
    bytes_out: int = 0
    bytes_in: int = 0
    deny: Deny | None = None
    is_repeatable: bool = False
    fault: Exception | None = None  # an error of ours ended it, or kept it from being recorded


@dataclass(frozen=True, slots=True)
class Claim:
    """A connection to the upstream and what is to be sent on it. It is for `exchange`, or to be put back."""

    order: Order
    lane: Lane
    upstream: Upstream
    head: UpstreamHead
    forms: Forms
    held: HeldCredential | None  # what it is sent with


@dataclass(frozen=True, slots=True)
class _Rule:
    """An inject rule with the credential that it had last, and what was made of the two."""

    route: InjectRoute
    lane: Lane
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

    async def claim(self, order: Order, *, fresh: bool = False) -> Claim | Deny:
        """A connection for one exchange, opened if need be; ``fresh``: not a kept one.

        That takes time: the credential is the one of its end. Whether the order still stands is not asked.
        """
        try:
            upstream = await self._rule(order).lane.acquire(order.allow, fresh=fresh)
            return upstream if isinstance(upstream, Deny) else self._claim(order, upstream)
        except SecretUnavailable as error:
            return Deny(Reason.SECRET_UNAVAILABLE, order.allow.target, order.allow.rule, str(error))

    def claim_kept(self, order: Order) -> Claim | None:
        """The same where nothing has to be waited for; None changes nothing."""
        try:
            rule = self._rule(order)
        except SecretUnavailable:
            return None
        upstream = rule.lane.take_kept(order.allow)
        return None if upstream is None else self._claim(order, upstream, rule)

    def _claim(self, order: Order, upstream: Upstream, rule: _Rule | None = None) -> Claim:
        """Raises SecretUnavailable. When it raises, the connection is closed."""
        try:
            rule = rule or self._rule(order)
            return Claim(
                order,
                rule.lane,
                upstream,
                rule.rewriter.rewrite(order.head, order.path),
                rule.forms,
                rule.held,
            )
        except BaseException:
            upstream.stream.close()
            raise

    def put_back(self, claim: Claim) -> None:
        """Undo `claim_kept`."""
        claim.lane.put_back(claim.upstream)

    def forget(self) -> None:
        """The settings are new: keep nothing that was made of the secrets before."""
        self._rules.clear()

    def exchange(self, claim: Claim, client: SocketStream, on_end: OnEnd) -> Exchange:
        """To be started. Whatever happens to it then, ``on_end`` is told once, and calls `ended`."""
        recording = Recording() if self._recorder else None
        exchange = Exchange(
            client, claim.upstream, claim.order, claim.head, claim.forms, self._limits, recording, on_end
        )
        exchange.held = claim.held
        return exchange

    def holds_still(self, order: Order, held: HeldCredential | None) -> bool:
        """Whether a request would get the same credential now; False where none can be read."""
        credential = self._credentials().get(order.route.name)
        try:
            now = credential.current() if credential else None
        except SecretUnavailable:
            return False
        if now is None or held is None:
            return now is held
        return bool(held.is_same(now))

    def ended(self, claim: Claim, exchange: Exchange, end: ExchangeEnd) -> Forwarded:
        """Keep the upstream or close it, and say what is to become of the client."""
        try:
            return self._ended(claim, exchange, end)
        except BaseException:
            claim.upstream.stream.abort()
            raise

    def _rule(self, order: Order) -> _Rule:
        """Raises SecretUnavailable."""
        credential = self._credentials().get(order.route.name)
        held = credential.current() if credential else None
        rule = self._rules.get(order.route.name)
        if rule is None or rule.route is not order.route or rule.held != held:
            forms = Forms(secret_texts(held) if held else ())
            rule = _Rule(order.route, self._pool.lane(order.route), held, Rewriter(order.route, held), forms)
            self._rules[order.route.name] = rule
        return rule

    def _ended(self, claim: Claim, exchange: Exchange, end: ExchangeEnd) -> Forwarded:
        upstream = claim.upstream
        is_repeatable = self._is_repeatable(claim, end)
        if end.is_whole:
            claim.lane.release(upstream)
        else:
            upstream.stream.abort()
        after = ClientAfter.GONE
        if end.deny is not None:
            after = ClientAfter.CLOSE
        elif end.is_answered:
            after = ClientAfter.KEPT if exchange.side.is_reusable() else ClientAfter.CLOSE
        return Forwarded(
            after,
            end.cause,
            exchange.status,
            exchange.sent_bytes,
            exchange.received_bytes,
            end.deny,
            is_repeatable,
            end.fault or self._record(claim.order, exchange.recording),
        )

    def _is_repeatable(self, claim: Claim, end: ExchangeEnd) -> bool:
        died = end.deny is not None and end.deny.reason is Reason.UPSTREAM_PROTOCOL
        unsaid = not claim.upstream.is_fresh and not claim.upstream.http.has_answered
        order = claim.order
        return died and unsaid and order.body_bytes == 0 and order.head.method in _REPEATABLE

    def _record(self, order: Order, recording: Recording | None) -> OSError | None:
        """What kept the request from being recorded."""
        if self._recorder is None or recording is None:
            return None
        try:
            host = str(order.allow.target.host)
            self._recorder.write(order.request_id, order.head.method, host, order.path, recording)
        except OSError as error:
            return error
        return None
