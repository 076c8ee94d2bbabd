"""The table of refused calls: each stands once, and each is one that the machines have."""

import itertools

import pytest

from egress_proxy.sandbox.syscall_numbers import NAMES
from egress_proxy.sandbox.syscall_rules import Action, Network, Surroundings, rules

EVERYWHERE = [Surroundings(*each) for each in itertools.product(Network, (True, False), (True, False))]


@pytest.mark.parametrize("around", EVERYWHERE, ids=str)
def test_no_call_stands_in_two_rules_since_only_the_first_would_count(around: Surroundings) -> None:
    calls = [call for rule in rules(around) for call in rule.calls]
    assert len(calls) == len(set(calls))


@pytest.mark.parametrize("around", EVERYWHERE, ids=str)
def test_every_call_has_a_number(around: Surroundings) -> None:
    assert {call for rule in rules(around) for call in rule.calls} <= NAMES


@pytest.mark.parametrize("around", EVERYWHERE, ids=str)
def test_what_ends_a_list_of_cases_is_the_only_one_without_conditions(around: Surroundings) -> None:
    for rule in rules(around):
        assert all(case.conditions for case in rule.cases[:-1]), rule


def test_every_number_is_used() -> None:
    assert {call for around in EVERYWHERE for rule in rules(around) for call in rule.calls} == NAMES


def test_only_the_supervisor_is_asked() -> None:
    asking = {
        around.network
        for around in EVERYWHERE
        for rule in rules(around)
        if any(case.action is Action.ASK for case in rule.cases)
    }
    assert asking == {Network.SUPERVISED}
