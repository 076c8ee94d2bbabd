"""The calls: which path and method does what. POST /allow, the grants, status, reload, healthz.

No token and no header is looked at here: server.py has done that before. Next: bodies.py (what POST /allow
takes), core/rules.py (the grammar of entries), core/seams.py (the grant store).
"""

import enum
import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from aiohttp import web

from control_api.answers import Refusal, answer
from control_api.bodies import parse_allow, read_body
from control_api.deps import ControlDeps
from control_api.models import (
    AllowAnswer,
    AllowRequest,
    AuditView,
    GrantList,
    GrantView,
    HealthView,
    ReloadAnswer,
    RevokeAnswer,
    RuleCounts,
    StatusView,
    TunnelView,
)
from egress_proxy.core.decision import Reason
from egress_proxy.core.dial_policy import may_ever_dial
from egress_proxy.core.events import EndCause, Event, Granted, GrantEnded
from egress_proxy.core.grants import Grant, Limits
from egress_proxy.core.host import Target
from egress_proxy.core.reply import refusal_code
from egress_proxy.core.rules import WEB_PORTS, Ports, Rule, RuleError, parse_rule
from egress_proxy.core.seams import AuditUnavailable, ReloadRefused

# Every new grant copies the list: beyond this a loop that never revokes would slow the proxy down.
GRANT_LIMIT = 10_000
_NAMES_SHOWN = 10

_NOT_FOUND = Refusal(404, "not-found", "there is no such call")
_NO_GRANT = Refusal(404, "unknown-grant", "there is no grant of that id; it may have ended")
_UNRECORDED = {"recorded": False}
_TOO_MANY = Refusal(409, "too-many-grants", f"{GRANT_LIMIT} grants are held; revoke some first")
_NEVER = {
    Reason.METADATA: "is cloud metadata, which is never reachable from here",
    Reason.OWN_LISTENER: "is a port of the proxy, which does not connect to itself",
}


class Admission(enum.Enum):
    """Whether a path needs the token. What is found nowhere needs it, too."""

    TOKEN = enum.auto()
    OPEN = enum.auto()


Outcome = web.Response | Refusal
Call = Callable[[web.BaseRequest, str], Awaitable[Outcome]]
"""Answers one request; the text is the part of the path that varies, as sent."""


@dataclass(frozen=True, slots=True)
class Route:
    """One path. ``calls`` by method; GET answers HEAD, too. No calls: nothing is there."""

    admission: Admission = Admission.TOKEN
    calls: Mapping[str, Call] = field(default_factory=dict)
    part: str = ""

    def call_for(self, method: str) -> Call | Refusal:
        if not self.calls:
            return _NOT_FOUND
        call = self.calls.get("GET" if method == "HEAD" else method)
        return call or _wrong_method(self.calls)


def _wrong_method(calls: Collection[str]) -> Refusal:
    allowed = ", ".join(sorted({*calls, *(["HEAD"] if "GET" in calls else [])}))
    return Refusal(405, "method-not-allowed", f"this path answers to {allowed}", (("Allow", allowed),))


class Routes:
    """``own`` is where the control API itself listens."""

    def __init__(self, deps: ControlDeps, own: Target) -> None:
        self._deps = deps
        self._own = own
        self._paths: tuple[tuple[re.Pattern[str], Admission, Mapping[str, Call]], ...] = (
            (re.compile("/healthz"), Admission.OPEN, {"GET": self._healthz}),
            (re.compile("/allow"), Admission.TOKEN, {"POST": self._allow}),
            (re.compile("/grants"), Admission.TOKEN, {"GET": self._grants}),
            (re.compile("/grants/([^/]+)"), Admission.TOKEN, {"DELETE": self._revoke}),
            (re.compile("/status"), Admission.TOKEN, {"GET": self._status}),
            (re.compile("/reload"), Admission.TOKEN, {"POST": self._reload}),
        )

    def find(self, path: str) -> Route:
        """``path`` without its query, as sent: another spelling of a path is another path."""
        for pattern, admission, calls in self._paths:
            if found := pattern.fullmatch(path):
                return Route(admission, calls, found[1] if found.groups() else "")
        return Route()

    async def _healthz(self, request: web.BaseRequest, part: str) -> Outcome:
        # Still alive, and still 200: what reads the status code must not restart it for a full disk.
        return answer(HealthView(status=self._deps.health()))

    async def _allow(self, request: web.BaseRequest, part: str) -> Outcome:
        body = await read_body(request)
        asked = body if isinstance(body, Refusal) else parse_allow(body)
        return asked if isinstance(asked, Refusal) else self._allow_asked(asked)

    def _allow_asked(self, asked: AllowRequest) -> Outcome:
        rule = self._rule(asked)
        if isinstance(rule, Refusal):
            return rule
        grant = self._add(rule, Limits(asked.ttl_s, asked.max_uses, asked.max_bytes_out))
        return grant if isinstance(grant, Refusal) else answer(_allow_answer(asked, grant))

    def _rule(self, asked: AllowRequest) -> Rule | Refusal:
        """The entry, if it is one that a grant can be made for."""
        known = self._deps.client_ids()
        if asked.client is not None and asked.client not in known:
            names = ", ".join(sorted(known)[:_NAMES_SHOWN]) or "none"
            return Refusal(400, "unknown-client", f"there is no client of that name; known: {names}")
        try:
            rule = parse_rule(asked.host, self._deps.suffix_of, client=asked.client, reason=asked.reason)
        except RuleError as error:
            return Refusal(400, "bad-entry", str(error))
        return self._void(rule) or rule

    def _void(self, rule: Rule) -> Refusal | None:
        """Why a grant of the entry would open nothing, or less than its caller was told."""
        own = (*self._deps.own_listeners(), self._own)
        for target in _targets(rule):
            # `127.0.0.1:*` is meant for other programs' ports: our own ones are refused when they are used.
            if reason := may_ever_dial(target, () if rule.ports is Ports.ANY else own):
                detail = f"{target} {_NEVER.get(reason, 'is no address of a host')}"
                return Refusal(403, refusal_code(reason), detail)
        denial = self._deps.denial_of(rule)
        if denial is None:
            return None
        detail = f"the deny entry {denial} covers it and wins; take it out of the settings, then reload"
        return Refusal(403, refusal_code(Reason.DENIED_BY_RULE), detail)

    def _add(self, rule: Rule, limits: Limits) -> Grant | Refusal:
        before = self._deps.grants.snapshot().by_id
        if len(before) >= GRANT_LIMIT:
            return _TOO_MANY
        grant = self._deps.grants.add(rule, limits)
        if grant.id not in before:
            self._record(grant)
        return grant

    def _record(self, grant: Grant) -> None:
        rule = grant.rule
        try:
            self._deps.audit(
                Granted(grant.id, str(rule), rule.client, grant.expires_at, grant.uses_left, rule.reason)
            )
        except AuditUnavailable:
            self._deps.grants.revoke(grant.id)  # nothing may pass unrecorded
            raise

    async def _grants(self, request: web.BaseRequest, part: str) -> Outcome:
        return answer(GrantList(grants=tuple(map(_grant_view, self._live()))))

    def _live(self) -> list[Grant]:
        now = self._deps.clock()
        return [grant for grant in self._deps.grants.snapshot().by_id.values() if grant.is_live(now)]

    async def _revoke(self, request: web.BaseRequest, part: str) -> Outcome:
        grant = self._deps.grants.revoke(part)
        if grant is None:
            return _NO_GRANT
        closed = self._deps.tunnels.close_grant(grant.id, EndCause.GRANT_ENDED)
        done = RevokeAnswer(revoked=grant.id, tunnels_closed=closed)
        # Taking away works all the same: a full disk must not keep a host open.
        if not self._is_recorded(GrantEnded(grant.id, str(grant.rule), "revoked", closed)):
            done = done.model_copy(update=_UNRECORDED)
        return answer(done)

    def _is_recorded(self, event: Event) -> bool:
        """Write down what has happened; a log that may lose lines does not raise, but counts them."""
        before = self._deps.status().lost_lines
        try:
            self._deps.audit(event)
        except AuditUnavailable:
            return False
        return self._deps.status().lost_lines == before

    async def _reload(self, request: web.BaseRequest, part: str) -> Outcome:
        try:
            outcome = await self._deps.reload()
        except ReloadRefused as error:
            return Refusal(422, "reload-refused", str(error))
        done = ReloadAnswer(tunnels_closed=outcome.tunnels)
        if outcome.requests:
            done = done.model_copy(update={"requests_closed": outcome.requests})
        if not outcome.is_recorded:
            done = done.model_copy(update=_UNRECORDED)
        return answer(done)

    async def _status(self, request: web.BaseRequest, part: str) -> Outcome:
        status, tunnels = self._deps.status(), self._deps.tunnels.count()
        view = StatusView(
            version=status.version,
            phase=status.phase,
            started_at=status.started_at,
            uptime_s=max(0.0, round(self._deps.now() - status.started_at, 3)),
            listeners=tuple(map(str, status.listeners)),
            on_miss=status.on_miss,
            rules=RuleCounts(allow=status.allow_rules, deny=status.deny_rules, inject=status.inject_rules),
            tunnels=TunnelView(open=tunnels.open, limit=tunnels.limit),
            grants=len(self._live()),
            audit=AuditView(
                lost_lines=status.lost_lines,
                lost_since=status.lost_since,
                counting_refusals=status.is_counting,
            ),
        )
        return answer(view)


def _targets(rule: Rule) -> Iterator[Target]:
    """What the entry would open; of all ports those that an entry without a port would."""
    ports = (rule.ports,) if isinstance(rule.ports, int) else sorted(WEB_PORTS)
    for port in ports:
        yield Target(rule.host, port)


def _allow_answer(asked: AllowRequest, grant: Grant) -> AllowAnswer:
    """Two fields for the drop-in request of `host` alone, four for any other."""
    allowed, ports = grant.rule.entry_host, grant.rule.port_text
    if asked.model_fields_set == {"host"}:
        return AllowAnswer(allowed=allowed, ports=ports)
    return AllowAnswer(allowed=allowed, ports=ports, id=grant.id, expires_at=grant.expires_at)


def _grant_view(grant: Grant) -> GrantView:
    rule = grant.rule
    return GrantView(
        id=grant.id,
        allowed=rule.entry_host,
        ports=rule.port_text,
        client=rule.client,
        reason=rule.reason,
        created_at=grant.created_at,
        expires_at=grant.expires_at,
        uses_left=grant.uses_left,
        bytes_left=grant.bytes_left,
    )
