"""Entries: printing and reading are inverse, and matching is what the naive oracle says.

Tables of cases are in ../egress_proxy/core/test_rules.py.
"""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from egress_proxy.core.host import Name, Target
from egress_proxy.core.rules import Ports, Rule, RuleError, Scope, Suffix, parse_rule
from tests.properties.oracle import entry_covers
from tests.properties.strategies import entry_texts, names, rules, targets


def no_suffix(_: str) -> Suffix:
    return Suffix.NONE


def read(text: str, ports: Ports = Ports.WEB) -> Rule:
    return parse_rule(text, no_suffix, bare_ports=ports)


def rule_or_refusal(text: str, ports: Ports) -> Rule | str:
    try:
        return read(text, ports)
    except RuleError as refusal:
        return str(refusal)


@given(rules())
def test_printing_and_reading_an_entry_is_the_identity(rule: Rule) -> None:
    again = read(str(rule))
    assert dataclasses.replace(again, private=rule.private, client=rule.client) == rule


@given(rules(web=False))
def test_a_deny_entry_is_read_back_as_what_it_was(rule: Rule) -> None:
    assert read(str(rule), Ports.ANY).ports == read(str(rule)).ports == rule.ports


@given(entry_texts)
def test_any_text_is_an_entry_that_can_be_written_again_or_refused(text: str) -> None:
    for ports in Ports:
        rule = rule_or_refusal(text, ports)
        if isinstance(rule, str):
            assert repr(text) in rule
            assert rule.isprintable()
            continue
        assert read(str(rule)) == rule
        assert text.isascii()
        assert text.startswith(rule.scope.value)
        assert "*" not in str(rule.host)


@given(rules(), targets)
def test_an_entry_covers_what_its_text_says(rule: Rule, target: Target) -> None:
    assert rule.matches(target) is entry_covers(str(rule), str(target))


@given(st.sampled_from([Scope.BELOW, Scope.APEX_AND_BELOW]), names, names)
def test_a_wildcard_covers_whole_labels(scope: Scope, host: Name, apex: Name) -> None:
    covered = Rule(scope, apex, Ports.ANY).matches(Target(host, 443))
    labels, below = host.text.split("."), apex.text.split(".")
    extra = len(labels) - len(below)
    assert covered is (
        labels[-len(below) :] == below and (extra > 0 or (extra == 0 and scope != Scope.BELOW))
    )
