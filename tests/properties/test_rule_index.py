"""RuleIndex: the same answer as asking every entry in turn.

What it costs is held by ../egress_proxy/core/test_rule_index.py.
"""

from hypothesis import given
from hypothesis import strategies as st

from egress_proxy.core.host import Target
from egress_proxy.core.rule_index import RuleIndex
from egress_proxy.core.rules import Rule
from tests.properties.strategies import rules, targets


@given(st.lists(rules(), max_size=30), st.lists(targets, min_size=1, max_size=5))
def test_matching_equals_the_linear_scan(entries: list[Rule], asked: list[Target]) -> None:
    index = RuleIndex.of((rule, place) for place, rule in enumerate(entries))
    for target in [*asked, *(Target(rule.host, 443) for rule in entries)]:
        scanned = {(rule, place) for place, rule in enumerate(entries) if rule.matches(target)}
        found = list(index.matching(target))
        assert len(found) == len(scanned)
        assert set(found) == scanned


@given(st.lists(rules(), max_size=30))
def test_no_entry_is_lost_or_doubled(entries: list[Rule]) -> None:
    index = RuleIndex.of((rule, place) for place, rule in enumerate(entries))
    assert sorted(place for _, place in index) == list(range(len(entries)))
