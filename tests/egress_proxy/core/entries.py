"""Text to core values, as the product's callers make them: with the real public-suffix list.

No expectations here. Used by the tests beside this file, by tests/properties and by tests/fuzz.
"""

from egress_proxy.core.access import Access, Client, Door, InjectRoute
from egress_proxy.core.decision import Allow, Decision, Deny, OptIn, Reason
from egress_proxy.core.grants import Grant, Grants, Limits, make_grant
from egress_proxy.core.host import parse_authority
from egress_proxy.core.policy import OnMiss, Policy, decide, rule_index
from egress_proxy.core.rules import Ports, Rule, parse_rule
from egress_proxy.suffixes import suffix_of

NOW = 1_000_000.0


def allow_entry(text: str, **extra: str | bool | None) -> Rule:
    """An entry as the flags and the file read it; ``extra`` as in `parse_rule`."""
    return parse_rule(text, suffix_of, **extra)  # type: ignore[arg-type]


def deny_entry(text: str, client: str | None = None) -> Rule:
    return parse_rule(text, suffix_of, bare_ports=Ports.ANY, client=client)


def policy(
    allow: tuple[str | Rule, ...] = (),
    deny: tuple[str | Rule, ...] = (),
    routes: tuple[InjectRoute, ...] = (),
    on_miss: OnMiss = OnMiss.DENY,
) -> Policy:
    allowed = [allow_entry(entry) if isinstance(entry, str) else entry for entry in allow]
    denied = [deny_entry(entry) if isinstance(entry, str) else entry for entry in deny]
    return Policy(rule_index(allowed), rule_index(denied), routes, on_miss)


def granted(*entries: str | Rule, **limits: float) -> Grants:
    """Grants g0, g1, … made at NOW, all with the same limits."""
    grants = Grants()
    for number, entry in enumerate(entries):
        rule = allow_entry(entry) if isinstance(entry, str) else entry
        grants = grants.add(grant(f"g{number}", rule, **limits))
    return grants


def grant(grant_id: str, rule: str | Rule, **limits: float) -> Grant:
    rule = allow_entry(rule) if isinstance(rule, str) else rule
    return make_grant(grant_id, rule, Limits(**limits), NOW, NOW)  # type: ignore[arg-type]


def connect(authority: str, client: str = "anonymous") -> Access:
    """The question that `CONNECT authority` asks."""
    return Access(Client(client), parse_authority(authority), Door.TUNNEL)


def request(
    authority: str,
    method: str = "GET",
    path: bytes = b"/",
    door: Door = Door.ABSOLUTE,
    client: str = "anonymous",
) -> Access:
    """The question that one plain-HTTP request at an inject door asks."""
    return Access(Client(client), parse_authority(authority), door, method, path)


def tunnel(
    authority: str, rules: Policy, grants: Grants | None = None, client: str = "anonymous"
) -> Decision:
    """What becomes of `CONNECT authority` at NOW."""
    return decide(connect(authority, client), rules, grants or Grants(), NOW)


def refused(authority: str, reason: Reason, rule: str | None = None) -> Deny:
    return Deny(reason, parse_authority(authority), rule)


def allowed(authority: str, rule: str, opt_in: OptIn = OptIn.NONE, grant_id: str | None = None) -> Allow:
    return Allow(parse_authority(authority), rule, opt_in, grant_id)
