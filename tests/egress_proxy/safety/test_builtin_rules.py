"""Each rule's own examples: what it must find, and what it must leave alone."""

import pytest

from egress_proxy.safety.builtin_rules import BUILTIN_RULES, LIMIT_RULES
from egress_proxy.safety.classify import classify_shell_command
from egress_proxy.safety.pattern import Rule

RULES = [rule for rule in BUILTIN_RULES if rule.id not in LIMIT_RULES]
HITS = [(rule, line) for rule in RULES for line in rule.hits]
MISSES = [(rule, line) for rule in RULES for line in rule.misses]


def found(rule: Rule, line: str) -> bool:
    platform = "windows" if rule.pattern.platform == "windows" else "unix"
    return rule.id in classify_shell_command(line, platform).matched_rules


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_has_reasons_and_examples(rule: Rule) -> None:
    assert len(rule.hits) >= 2
    assert len(rule.misses) >= 2
    assert len(rule.pattern.description) > 15


@pytest.mark.parametrize(("rule", "line"), HITS, ids=lambda x: getattr(x, "id", None) or repr(x))
def test_a_rule_finds_what_it_is_for(rule: Rule, line: str) -> None:
    assert found(rule, line)


@pytest.mark.parametrize(("rule", "line"), MISSES, ids=lambda x: getattr(x, "id", None) or repr(x))
def test_a_rule_leaves_the_rest_alone(rule: Rule, line: str) -> None:
    assert not found(rule, line)


def test_ids_are_told_apart() -> None:
    ids = [rule.id for rule in BUILTIN_RULES]
    assert len(ids) == len(set(ids))
