"""decide(): the whole order of contract section 2 against the naive oracle, and its corner stones one by one.

Tables of cases are in ../egress_proxy/core/test_policy.py.
"""

import dataclasses
from typing import TypeVar

from hypothesis import given
from hypothesis import strategies as st

from egress_proxy.core.access import Access, Client, Door, InjectRoute
from egress_proxy.core.decision import Allow, Ask, Decision, Deny, Reason
from egress_proxy.core.dial_policy import is_metadata, judge_addresses
from egress_proxy.core.grants import Grant, Grants
from egress_proxy.core.host import HostError, Name, Target, parse_authority
from egress_proxy.core.policy import OnMiss, Policy, decide, rule_index
from egress_proxy.core.rules import Rule
from tests.properties.oracle import any_covers, expected
from tests.properties.strategies import (
    NASTY,
    addresses,
    clients,
    few_hosts,
    few_ports,
    hosts,
    mutated,
    ports,
    rules,
    target_texts,
)

NOW = 1000.0
Item = TypeVar("Item")

def several(items: st.SearchStrategy[Item], most: int) -> st.SearchStrategy[list[Item]]:
    """As many as asked for as often as none: plain lists are mostly short."""
    return st.integers(0, most).flatmap(lambda count: st.lists(items, min_size=count, max_size=count))


DOORS = [Door.ABSOLUTE, Door.CONNECT_INJECT, Door.BASE_URL]

grants = several(
    st.builds(
        Grant,
        st.just(""),
        rules(few_hosts),
        st.just(NOW - 10),
        st.sampled_from([None, None, NOW - 1, NOW, NOW + 1]),
        st.sampled_from([None, 0, 0, 1]),
        st.sampled_from([None, None, 0, 1]),
    ),
    3,
).map(lambda made: Grants.of({f"g{n}": dataclasses.replace(one, id=f"g{n}") for n, one in enumerate(made)}))
routes = st.builds(
    InjectRoute,
    st.just("api"),
    st.sampled_from(["a.ok.example", "wild.example", "localhost"]).map(Name),
    st.sampled_from([80, 8080]),
    st.sampled_from([443, 8443]),
    client=st.none() | clients,
)
policies = st.builds(
    Policy,
    several(rules(few_hosts), 5).map(rule_index),
    several(rules(few_hosts, web=False), 2).map(rule_index),
    several(routes, 2).map(tuple),
    st.sampled_from(OnMiss),
)


# What the entries are about, and now and then anything.
listed = st.builds(Target, few_hosts, few_ports)
near = st.one_of(listed, listed, listed, st.builds(Target, hosts, ports))
texts = near.map(str) | mutated(near.map(str), NASTY) | target_texts


def verdict(decision: Decision) -> str:
    match decision:
        case Allow():
            return "allow"
        case Ask():
            return "ask"
        case Deny(reason=reason):
            return reason


@given(near, policies, grants, clients)
def test_a_tunnel_is_decided_as_the_contract_orders(
    target: Target, policy: Policy, made: Grants, client: str
) -> None:
    access = Access(Client(client), target, Door.TUNNEL)
    decision = decide(access, policy, made, NOW)
    assert verdict(decision) == expected(access, policy, list(made.by_id.values()), NOW)
    assert decision.target == target


@given(texts, policies, grants, clients)
def test_no_text_that_is_not_a_canonical_target_is_ever_allowed(
    text: str, policy: Policy, made: Grants, client: str
) -> None:
    try:
        target = parse_authority(text)
    except HostError:
        return
    decision = decide(Access(Client(client), target, Door.TUNNEL), policy, made, NOW)
    if isinstance(decision, Allow):
        assert parse_authority(str(target)) == target == decision.target
        entries = [rule for rule, _ in policy.allow] + [grant.rule for grant in made.by_id.values()]
        assert any_covers(entries, [str(target)], client)
        assert decision.rule in {str(rule) for rule in entries}


@given(near, policies, grants, clients, rules(few_hosts, web=False))
def test_deny_always_wins(target: Target, policy: Policy, made: Grants, client: str, deny: Rule) -> None:
    deny = dataclasses.replace(deny, client=None)
    stricter = dataclasses.replace(policy, deny=rule_index([*(rule for rule, _ in policy.deny), deny]))
    for door in Door:
        decision = decide(Access(Client(client), target, door, "GET", b"/"), stricter, made, NOW)
        if deny.matches(target):
            assert isinstance(decision, Deny)
            assert decision.reason in (Reason.DENIED_BY_RULE, Reason.METADATA)


@given(near, policies, grants, clients)
def test_a_deny_entry_more_never_opens_anything(
    target: Target, policy: Policy, made: Grants, client: str
) -> None:
    looser = dataclasses.replace(policy, deny=rule_index([]))
    for door in Door:
        access = Access(Client(client), target, door, "GET", b"/")
        if isinstance(decide(access, policy, made, NOW), Allow):
            assert isinstance(decide(access, looser, made, NOW), Allow)


@given(near, policies, grants, clients)
def test_grants_lift_a_miss_and_nothing_else(
    target: Target, policy: Policy, made: Grants, client: str
) -> None:
    for door in Door:
        access = Access(Client(client), target, door, "GET", b"/")
        without = decide(access, policy, Grants(), NOW)
        with_grants = decide(access, policy, made, NOW)
        if not (isinstance(without, Ask) or without == Deny(Reason.NOT_LISTED, target)):
            assert with_grants == without


@given(rules(), st.lists(addresses, max_size=4), clients)
def test_a_grant_lifts_no_address_refusal(rule: Rule, answers: list[object], client: str) -> None:
    """What a grant's tunnel may dial is what an allow entry of the same text may, metadata never."""
    rule = dataclasses.replace(rule, client=None)
    target = Target(rule.host, 443)
    access = Access(Client(client), target, Door.TUNNEL)
    granted = decide(access, Policy(), Grants.of({"g": Grant("g", rule, NOW)}), NOW)
    listed = decide(access, Policy(allow=rule_index([rule])), Grants(), NOW)
    if not isinstance(granted, Allow):
        assert not isinstance(listed, Allow)
        return
    assert isinstance(listed, Allow)
    judged = judge_addresses(granted, answers, (), ())  # type: ignore[arg-type]
    assert judged == judge_addresses(listed, answers, (), ())  # type: ignore[arg-type]
    assert isinstance(judged, Deny) or not any(map(is_metadata, judged))


@given(near, policies, grants, clients, st.sampled_from(DOORS), st.sampled_from(["GET", "CONNECT", "TRACE"]))
def test_an_inject_door_leads_to_a_routes_upstream_or_nowhere(
    target: Target, policy: Policy, made: Grants, client: str, door: Door, method: str
) -> None:
    decision = decide(Access(Client(client), target, door, method, b"/x"), policy, made, NOW)
    assert not isinstance(decision, Ask)
    serving = [
        route
        for route in policy.routes
        if (route.host, route.port) == (target.host, target.port) and route.client in (None, client)
    ]
    if isinstance(decision, Allow):
        assert decision.grant_id is None
        assert decision.target in [Target(route.host, route.upstream_port) for route in serving]
        assert method == "GET" or (method, door) == ("CONNECT", Door.CONNECT_INJECT)
        denied = [rule for rule, _ in policy.deny if rule.client in (None, client)]
        assert not any(rule.matches(target) or rule.matches(decision.target) for rule in denied)


@given(policies, grants, near, clients)
def test_metadata_is_never_allowed_by_any_door(policy: Policy, made: Grants, target: Target, client: str) -> None:
    for door in Door:
        decision = decide(Access(Client(client), target, door, "GET", b"/"), policy, made, NOW)
        assert not is_metadata(target.host) or decision == Deny(Reason.METADATA, target)
