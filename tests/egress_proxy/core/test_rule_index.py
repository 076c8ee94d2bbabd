"""Rules of core/rule_index.py: the same answer as asking every entry, at a cost that does not grow.

The answer itself is compared with a linear scan in ../../properties/test_rule_index.py.
"""

import itertools
import time

import pytest

from egress_proxy.core.host import Name, Target, parse_authority
from egress_proxy.core.rule_index import RuleIndex
from egress_proxy.core.rules import Rule, Scope
from tests.egress_proxy.core.entries import allow_entry


def index(*entries: str) -> RuleIndex[int]:
    return RuleIndex.of((allow_entry(entry), number) for number, entry in enumerate(entries))


def found(entries: RuleIndex[int], authority: str) -> list[str]:
    return [str(rule) for rule, _ in entries.matching(parse_authority(authority))]


def test_the_closest_pattern_comes_first() -> None:
    entries = index("**.b.example", "*.b.example", "**.a.b.example", "a.b.example", "other.example")
    assert found(entries, "a.b.example:443") == [
        "a.b.example",
        "**.a.b.example",
        "*.b.example",
        "**.b.example",
    ]
    assert found(entries, "b.example:443") == ["**.b.example"]
    assert found(entries, "x.a.b.example:443") == ["**.a.b.example", "*.b.example", "**.b.example"]


def test_entries_for_one_host_stay_apart_and_the_closest_port_comes_first() -> None:
    entries = index("a.example:22", "a.example", "a.example:*", "a.example:22")
    assert list(entries.matching(parse_authority("a.example:22"))) == [
        (allow_entry("a.example:22"), 0),
        (allow_entry("a.example:22"), 3),
        (allow_entry("a.example:*"), 2),
    ]


@pytest.mark.parametrize(
    "authority", ["a.example:25", "example:443", "b.example:443", "1.2.3.4:443", "[::1]:1"]
)
def test_what_no_entry_covers_is_not_found(authority: str) -> None:
    assert found(index("a.example", "*.a.example", "1.2.3.5", "[::2]"), authority) == []


def test_an_empty_index_finds_nothing() -> None:
    nothing: RuleIndex[int] = RuleIndex()
    assert found(nothing, "a.example:443") == []
    assert list(nothing) == []


def test_addresses_are_found_as_addresses() -> None:
    assert found(index("[::1]:80", "127.0.0.1"), "[0:0:0:0:0:0:0:1]:80") == ["[::1]:80"]
    assert found(index("[::1]:80", "127.0.0.1"), "[::ffff:127.0.0.1]:80") == ["127.0.0.1"]


def test_every_pair_can_be_listed() -> None:
    entries = ["a.example", "*.b.example", "a.example:22"]
    assert sorted((number, str(rule)) for rule, number in index(*entries)) == list(enumerate(entries))


def test_a_long_list_costs_no_more_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = RuleIndex.of(
        (allow_entry(f"{kind}h{n}.example"), n) for n in range(2000) for kind in ("", "**.")
    )
    asked: list[Target] = []
    matches = Rule.matches

    def counted(rule: Rule, target: Target) -> bool:
        asked.append(target)
        return matches(rule, target)

    monkeypatch.setattr(Rule, "matches", counted)
    assert found(entries, "a.b.h1999.example:443") == ["**.h1999.example"]
    assert found(entries, "a.b.c.d.unlisted.example:443") == []
    assert len(asked) == 1


def test_one_host_with_thousands_of_ports_is_read_and_searched_in_no_time() -> None:
    """Quadratic reading took three seconds here, and each question looked at all ports."""
    rules = [Rule(Scope.EXACT, Name("a.example"), port) for port in range(1, 20_001)]
    began = time.process_time()
    entries = RuleIndex.of((rule, rule.ports) for rule in rules)
    found = [
        item for port in range(1, 2_001) for _, item in entries.matching(Target(Name("a.example"), port))
    ]
    assert found == list(range(1, 2_001))
    assert time.process_time() - began < 0.5


def test_pairs_come_and_go_as_if_the_index_were_made_anew() -> None:
    texts = ["a.example", "a.example:443", "a.example:*", "*.a.example", "a.example:443", "10.0.0.1:80"]
    rules = [allow_entry(text) for text in texts]
    grown: RuleIndex[int] = RuleIndex()
    for number, rule in enumerate(rules):
        grown = grown.plus(rule, number)
    assert sorted(grown, key=lambda pair: pair[1]) == list(zip(rules, range(6), strict=True))
    for gone in itertools.chain.from_iterable(itertools.combinations(range(6), size) for size in range(7)):
        left = RuleIndex.of((rule, number) for number, rule in enumerate(rules) if number not in gone)
        assert grown.without([(rules[number], number) for number in gone]) == left
    assert len(list(grown)) == 6


def test_what_was_never_there_is_taken_out_without_a_trace() -> None:
    entries = index("a.example")
    assert entries.without([(allow_entry("b.example"), 0), (allow_entry("a.example"), 7)]) == entries


def test_entries_beside_one_have_its_pattern_and_its_ports() -> None:
    entries = index("a.example", "a.example:443", "*.a.example", "a.example:443", "a.example:*")
    assert [item for _, item in entries.beside(allow_entry("a.example:443"))] == [1, 3]
    assert [item for _, item in entries.beside(allow_entry("a.example:*"))] == [4]
    assert list(entries.beside(allow_entry("b.example"))) == []
