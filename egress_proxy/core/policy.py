"""Who says yes: decide(). Two more judges refine it: dial_policy.py (addresses), sni_policy.py (TLS names).

Pure: no lookups, no clock. Order: metadata, deny, then by door: inject route, or allow, grant, miss.
Next: decision.py (the answers), rules.py and grants.py (the lists), access.py (the question).
"""

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from egress_proxy.core.access import Access, Client, Door, InjectRoute, Scheme
from egress_proxy.core.address import reached
from egress_proxy.core.decision import Allow, Ask, Decision, Deny, OptIn, Reason
from egress_proxy.core.dial_policy import is_metadata
from egress_proxy.core.grants import Grant, Grants
from egress_proxy.core.host import Host, Name, Target
from egress_proxy.core.rule_index import RuleIndex
from egress_proxy.core.rules import WEB_PORTS, Ports, Rule, Scope
from egress_proxy.core.sni_policy import SniPolicy


class OnMiss(enum.StrEnum):
    """What happens to a target that nobody has said anything about."""

    DENY = "deny"
    HOLD = "hold"


@dataclass(frozen=True, slots=True)
class Policy:
    """Everything that was settled before the request came. Swapped whole by a reload."""

    allow: RuleIndex[str] = field(default_factory=RuleIndex)
    deny: RuleIndex[str] = field(default_factory=RuleIndex)
    routes: tuple[InjectRoute, ...] = ()
    on_miss: OnMiss = OnMiss.DENY
    sni: SniPolicy = field(default_factory=SniPolicy)
    _routes_at: Mapping[Target, tuple[InjectRoute, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_target: dict[Target, list[InjectRoute]] = {}
        for route in self.routes:
            by_target.setdefault(route.named, []).append(route)
        at = {target: tuple(routes) for target, routes in by_target.items()}
        object.__setattr__(self, "_routes_at", at)

    def route_for(self, target: Target, client: Client) -> InjectRoute | None:
        """The inject rule whose plain-HTTP address this is; None when it is no rule's."""
        routes = self._routes_at.get(target, ())
        return next((route for route in routes if route.serves(target, client)), None)

    def is_route(self, target: Target) -> bool:
        """Whether any client's inject rule names the target: it is never tunnelled then."""
        return bool(self._routes_at) and target in self._routes_at


def rule_index(rules: Collection[Rule]) -> RuleIndex[str]:
    """Rules with their text, which every decision names."""
    return RuleIndex.of((rule, str(rule)) for rule in rules)


def decide(access: Access, policy: Policy, grants: Grants, now: float) -> Decision:
    """Answer one request. ``now`` is by the clock that grants end by.

    A deny entry wins over everything; a grant lifts a miss and nothing else.
    """
    target = access.target
    if is_metadata(target.host):
        return Deny(Reason.METADATA, target)
    denial = _denied(target, access.client, policy)
    if denial is not None:
        return denial
    if access.door is not Door.TUNNEL:
        return _decide_route(access, policy)
    if policy.is_route(target):
        # Never a blind tunnel: it would carry the request to the real server without the credential.
        return Deny(Reason.INJECT_OTHER_TARGET, target)
    return _decide_listed(access, policy) or _decide_granted(access, policy, grants, now)


def _denied(target: Target, client: Client, policy: Policy) -> Deny | None:
    if policy.deny.is_empty:
        return None
    # A literal like 64:ff9b::c000:201 leads to an IPv4 host as well: denied is denied.
    hosts = (target.host,) if isinstance(target.host, Name) else reached(target.host)
    for host in hosts:
        for rule, text in policy.deny.matching(Target(host, target.port)):
            if rule.client in (None, client.id):
                return Deny(Reason.DENIED_BY_RULE, target, text)
    return None


def denial_of(rule: Rule, deny: RuleIndex[str]) -> str | None:
    """The deny entry that covers all hosts of another entry on one of its ports: then a grant is in vain.

    An entry for every port is covered by one for every port alone, one for all clients likewise.
    """
    ports = (rule.ports,) if isinstance(rule.ports, int) else sorted(WEB_PORTS)
    for host in _like(rule):
        for port in ports:
            for denied, text in deny.matching(Target(host, port)):
                whole = denied.ports is Ports.ANY or rule.ports is not Ports.ANY
                mine = denied.client in (None, rule.client)
                if whole and mine and (rule.scope is Scope.EXACT or denied.covers_hosts_of(rule)):
                    return text
    return None


def _like(rule: Rule) -> tuple[Host, ...]:
    """What the entry stands for in a look-up: its host, what that reaches, or a name below a wildcard's."""
    if not isinstance(rule.host, Name):
        return reached(rule.host)
    return (rule.host if rule.scope is Scope.EXACT else Name(f"_.{rule.host}"),)


def _decide_route(access: Access, policy: Policy) -> Decision:
    target, route = access.target, policy.route_for(access.target, access.client)
    if route is None:
        return Deny(Reason.INJECT_OTHER_TARGET, target)
    rule = f"inject:{route.name}"
    # Door two opens with a CONNECT that carries no request yet; each one inside is judged by itself.
    opens = access.door is Door.CONNECT_INJECT and access.method == "CONNECT"
    if not opens and not route.admits_method(access.method):
        return Deny(Reason.INJECT_METHOD, target, rule)
    if not opens and not route.admits_path(access.path):
        return Deny(Reason.INJECT_PATH, target, rule)
    # What is dialled is what the rule's author wrote, so it opts in to what that entry would.
    # The client names port 80, the proxy dials another: a deny entry for either holds.
    upstream_denial = _denied(route.upstream, access.client, policy)
    opt_in = _route_opt_in(route, access.client, policy)
    return upstream_denial or Allow(route.upstream, rule, opt_in, route=route)


def _decide_listed(access: Access, policy: Policy) -> Allow | None:
    listed: Allow | None = None
    for rule, text in policy.allow.matching(access.target):
        if rule.client not in (None, access.client.id):
            continue
        # Of two entries for one target the private one opts in; without it, the closest one names itself.
        if listed is None or rule.private:
            listed = Allow(access.target, text, _opt_in(rule))
    return listed


def _decide_granted(access: Access, policy: Policy, grants: Grants, now: float) -> Decision:
    spent: Grant | None = None
    for grant in grants.matching(access.target):
        if grant.rule.client not in (None, access.client.id) or not grant.is_live(now):
            continue
        if grant.can_admit(now):
            return Allow(access.target, str(grant.rule), _opt_in(grant.rule), grant.id)
        spent = grant
    match policy.on_miss:
        case OnMiss.HOLD:  # a spent grant lifts nothing, so a person is asked again
            return Ask(access.target)
        case OnMiss.DENY if spent is not None:
            return Deny(Reason.GRANT_EXHAUSTED, access.target, str(spent.rule))
        case OnMiss.DENY:
            return Deny(Reason.NOT_LISTED, access.target)


def _opt_in(rule: Rule) -> OptIn:
    if not isinstance(rule.host, Name):
        return OptIn.LITERAL
    if rule.private:
        return OptIn.INWARD
    return OptIn.LOOPBACK if rule.host.text == "localhost" else OptIn.NONE


def _route_opt_in(route: InjectRoute, client: Client, policy: Policy) -> OptIn:
    if route.scheme is Scheme.HTTP:  # a literal address is no exception: the credential goes in clear
        return OptIn.ONLY_LOOPBACK
    if not isinstance(route.host, Name):
        return OptIn.LITERAL
    # A private entry for the rule's host, under either of its ports, says that the name may lie inside.
    for target in (route.upstream, route.named):
        for rule, _ in policy.allow.matching(target):
            if rule.private and rule.client in (None, client.id):
                return OptIn.INWARD
    return OptIn.LOOPBACK if route.host.text == "localhost" else OptIn.NONE
