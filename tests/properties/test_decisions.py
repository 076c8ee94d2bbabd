"""decide(): the whole order of contract section 2 against the naive oracle, and its corner stones one by one.

Tables of cases are in ../egress_proxy/core/test_policy.py.
"""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from egress_proxy.core.access import Access, Client, Door, InjectRoute
from egress_proxy.core.decision import Allow, Ask, Decision, Deny, Reason
from egress_proxy.core.dial_policy import is_metadata, judge_addresses
from egress_proxy.core.grants import Grant, Grants
from egress_proxy.core.host import HostError, Target, parse_authority
from egress_proxy.core.policy import OnMiss, Policy, decide, rule_index
from egress_proxy.core.rules import Rule
from tests.properties.oracle import any_covers, expected
from tests.properties.strategies import addresses, clients, hosts, names, rules, target_texts, targets

NOW = 1000.0
DOORS = [Door.ABSOLUTE, Door.CONNECT_INJECT, Door.BASE_URL]

grants = st.lists(
    st.builds(
        Grant,
        st.just(""),
        rules(),
        st.just(NOW - 10),
        st.none() | st.sampled_from([NOW - 1, NOW, NOW + 1]),
        st.none() | st.integers(0, 2),
        st.none() | st.integers(0, 2),
    ),
    max_size=4,
).map(lambda made: Grants.of({f"g{n}": dataclasses.replace(one, id=f"g{n}") for n, one in enumerate(made)}))
routes = st.builds(
    InjectRoute,
    st.just("api"),
    names,
    st.sampled_from([80, 8080]),
    st.sampled_from([443, 8443]),
    client=st.none() | clients,
)
policies = st.builds(
    Policy,
    st.lists(rules(), max_size=5).map(rule_index),
    st.lists(rules(web=False), max_size=3).map(rule_index),
    st.lists(routes, max_size=2).map(tuple),
    st.sampled_from(OnMiss),
)


@st.composite
def near(draw: st.DrawFn, policy: Policy, made: Grants) -> Target:
    """A target that some entry is about, mostly."""
    entries = [*(rule for rule, _ in policy.allow), *(rule for rule, _ in policy.deny)]
    entries += [grant.rule for grant in made.by_id.values()]
    about = [rule.host for rule in entries] + [route.host for route in policy.routes]
    host = draw(st.sampled_from(about)) if about and draw(st.booleans()) else draw(hosts)
    return Target(host, draw(st.sampled_from([80, 443, 8080, 22])))


def verdict(decision: Decision) -> str:
    match decision:
        case Allow():
            return "allow"
        case Ask():
            return "ask"
        case Deny(reason=reason):
            return reason


@given(st.data(), policies, grants, clients)
def test_a_tunnel_is_decided_as_the_contract_orders(
    data: st.DataObject, policy: Policy, made: Grants, client: str
) -> None:
    target = data.draw(near(policy, made))
    access = Access(Client(client), target, Door.TUNNEL)
    decision = decide(access, policy, made, NOW)
    assert verdict(decision) == expected(access, policy, list(made.by_id.values()), NOW)
    assert decision.target == target


@given(target_texts, policies, grants, clients)
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


@given(st.data(), policies, grants, clients, rules(web=False))
def test_deny_always_wins(data: st.DataObject, policy: Policy, made: Grants, client: str, deny: Rule) -> None:
    deny = dataclasses.replace(deny, client=None)
    target = data.draw(near(policy, made) | st.just(Target(deny.host, 443)))
    stricter = dataclasses.replace(policy, deny=rule_index([*(rule for rule, _ in policy.deny), deny]))
    for door in Door:
        decision = decide(Access(Client(client), target, door, "GET", b"/"), stricter, made, NOW)
        if deny.matches(target):
            assert isinstance(decision, Deny)
            assert decision.reason in (Reason.DENIED_BY_RULE, Reason.METADATA)


@given(st.data(), policies, grants, clients)
def test_a_deny_entry_more_never_opens_anything(
    data: st.DataObject, policy: Policy, made: Grants, client: str
) -> None:
    target = data.draw(near(policy, made))
    looser = dataclasses.replace(policy, deny=rule_index([]))
    for door in Door:
        access = Access(Client(client), target, door, "GET", b"/")
        if isinstance(decide(access, policy, made, NOW), Allow):
            assert isinstance(decide(access, looser, made, NOW), Allow)


@given(st.data(), policies, grants, clients)
def test_grants_lift_a_miss_and_nothing_else(
    data: st.DataObject, policy: Policy, made: Grants, client: str
) -> None:
    target = data.draw(near(policy, made))
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


@given(st.data(), policies, grants, clients, st.sampled_from(DOORS), st.sampled_from(["GET", "CONNECT", "TRACE"]))
def test_an_inject_door_leads_to_a_routes_upstream_or_nowhere(
    data: st.DataObject, policy: Policy, made: Grants, client: str, door: Door, method: str
) -> None:
    target = data.draw(near(policy, made))
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


@given(policies, grants, targets, clients)
def test_metadata_is_never_allowed_by_any_door(policy: Policy, made: Grants, target: Target, client: str) -> None:
    for door in Door:
        decision = decide(Access(Client(client), target, door, "GET", b"/"), policy, made, NOW)
        assert not is_metadata(target.host) or decision == Deny(Reason.METADATA, target)
