"""decide(): the whole order of contract section 2 against the naive oracle, and its corner stones one by one.

Tables of cases are in ../egress_proxy/core/test_policy.py.
"""

import dataclasses
from typing import TypeVar

from hypothesis import given
from hypothesis import strategies as st

from egress_proxy.core.access import Access, Client, Door, InjectRoute
from egress_proxy.core.address import Address
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


@dataclasses.dataclass(frozen=True)
class Question:
    """A target, who asks, and what is in force. Mostly the target is one that some entry is about."""

    target: Target
    client: str
    policy: Policy
    grants: Grants

    def decided(self, door: Door = Door.TUNNEL, method: str = "GET") -> Decision:
        return decide(self.access(door, method), self.policy, self.grants, NOW)

    def access(self, door: Door = Door.TUNNEL, method: str = "GET") -> Access:
        return Access(Client(self.client), self.target, door, method, b"/x")

    def under(self, policy: Policy) -> "Question":
        return dataclasses.replace(self, policy=policy)


@st.composite
def questions(draw: st.DrawFn) -> Question:
    policy, made = draw(policies), draw(grants)
    entries = [*(rule for rule, _ in policy.allow), *(rule for rule, _ in policy.deny)]
    entries += [grant.rule for grant in made.by_id.values()]
    about = [rule.host for rule in entries] + [route.host for route in policy.routes] * 2
    host = draw(st.one_of(*map(st.sampled_from, [about] * 4 if about else []), hosts))
    if isinstance(host, Name) and not draw(st.integers(0, 3)):
        host = Name(f"x.{host}"[:253])
    return Question(Target(host, draw(few_ports)), draw(clients), policy, made)


def verdict(decision: Decision) -> str:
    match decision:
        case Allow():
            return "allow"
        case Ask():
            return "ask"
        case Deny(reason=reason):
            return reason


@given(questions())
def test_a_tunnel_is_decided_as_the_contract_orders(asked: Question) -> None:
    decision = asked.decided()
    granted = list(asked.grants.by_id.values())
    assert verdict(decision) == expected(asked.access(), asked.policy, granted, NOW)
    assert decision.target == asked.target


@given(questions(), st.data())
def test_no_text_that_is_not_a_canonical_target_is_ever_allowed(asked: Question, data: st.DataObject) -> None:
    text = data.draw(mutated(st.just(str(asked.target)), NASTY) | target_texts)
    try:
        target = parse_authority(text)
    except HostError:
        return
    decision = dataclasses.replace(asked, target=target).decided()
    if isinstance(decision, Allow):
        assert parse_authority(str(target)) == target == decision.target
        assert text.isascii()
        entries = [rule for rule, _ in asked.policy.allow]
        entries += [grant.rule for grant in asked.grants.by_id.values()]
        assert any_covers(entries, [str(target)], asked.client)
        assert decision.rule in {str(rule) for rule in entries}


@given(questions(), rules(few_hosts, web=False))
def test_deny_always_wins(asked: Question, deny: Rule) -> None:
    denied = [*(rule for rule, _ in asked.policy.deny), dataclasses.replace(deny, client=None)]
    stricter = asked.under(dataclasses.replace(asked.policy, deny=rule_index(denied)))
    for door in Door:
        if deny.matches(asked.target):
            decision = stricter.decided(door)
            assert isinstance(decision, Deny)
            assert decision.reason in (Reason.DENIED_BY_RULE, Reason.METADATA)


@given(questions())
def test_a_deny_entry_more_never_opens_anything(asked: Question) -> None:
    looser = asked.under(dataclasses.replace(asked.policy, deny=rule_index([])))
    for door in Door:
        if isinstance(asked.decided(door), Allow):
            assert isinstance(looser.decided(door), Allow)


@given(questions())
def test_grants_lift_a_miss_and_nothing_else(asked: Question) -> None:
    for door in Door:
        without = dataclasses.replace(asked, grants=Grants()).decided(door)
        if not (isinstance(without, Ask) or without == Deny(Reason.NOT_LISTED, asked.target)):
            assert asked.decided(door) == without


@given(rules(), st.lists(addresses, max_size=4), clients)
def test_a_grant_lifts_no_address_refusal(rule: Rule, answers: list[Address], client: str) -> None:
    """What a grant's tunnel may dial is what an allow entry of the same text may, metadata never."""
    rule = dataclasses.replace(rule, client=None)
    asked = Question(Target(rule.host, 443), client, Policy(), Grants.of({"g": Grant("g", rule, NOW)}))
    granted = asked.decided()
    listed = Question(asked.target, client, Policy(allow=rule_index([rule])), Grants()).decided()
    if not isinstance(granted, Allow):
        assert not isinstance(listed, Allow)
        return
    assert isinstance(listed, Allow)
    judged = judge_addresses(granted, answers, (), ())
    assert judged == judge_addresses(listed, answers, (), ())
    assert isinstance(judged, Deny) or not any(map(is_metadata, judged))


@given(questions(), st.sampled_from(DOORS), st.sampled_from(["GET", "GET", "CONNECT", "TRACE"]))
def test_an_inject_door_leads_to_a_routes_upstream_or_nowhere(
    asked: Question, door: Door, method: str
) -> None:
    decision = asked.decided(door, method)
    assert not isinstance(decision, Ask)
    serving = [
        route
        for route in asked.policy.routes
        if (route.host, route.port) == (asked.target.host, asked.target.port)
        and route.client in (None, asked.client)
    ]
    if isinstance(decision, Allow):
        assert decision.grant_id is None
        assert decision.target in [Target(route.host, route.upstream_port) for route in serving]
        assert method == "GET" or (method, door) == ("CONNECT", Door.CONNECT_INJECT)
        denied = [rule for rule, _ in asked.policy.deny if rule.client in (None, asked.client)]
        assert not any(rule.matches(asked.target) or rule.matches(decision.target) for rule in denied)


@given(questions())
def test_metadata_is_never_allowed_by_any_door(asked: Question) -> None:
    for door in Door:
        assert not is_metadata(asked.target.host) or asked.decided(door) == Deny(
            Reason.METADATA, asked.target
        )
