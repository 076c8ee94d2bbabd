"""Rules of core/decision.py: no value means yes by default, none is a bool, every reason has a use.

How a reason is worded is in test_reply.py; who decides is in test_policy.py.
"""

import dataclasses
import enum
import re
import typing
from collections.abc import Callable

import pytest

from egress_proxy.core.decision import Allow, Ask, Decision, Deny, OptIn, Reason
from egress_proxy.core.host import parse_authority
from egress_proxy.core.reply import hint_for, refusal_code, refusal_status, refuse

TARGET = parse_authority("ok.example:443")
KINDS = typing.get_args(Decision)


def test_a_decision_is_one_of_three_kinds() -> None:
    assert set(KINDS) == {Allow, Ask, Deny}


@pytest.mark.parametrize("kind", KINDS)
def test_no_decision_can_be_made_out_of_nothing(kind: Callable[[], Decision]) -> None:
    with pytest.raises(TypeError):
        kind()


def test_a_yes_says_to_what_by_which_entry_and_how_far() -> None:
    without_default = {part.name for part in dataclasses.fields(Allow) if part.default is dataclasses.MISSING}
    assert without_default == {"target", "rule", "opt_in"}


@pytest.mark.parametrize("kind", KINDS)
def test_no_part_of_a_decision_is_a_bool(kind: type[Decision]) -> None:
    assert all(bool not in (hint, *typing.get_args(hint)) for hint in typing.get_type_hints(kind).values())


@pytest.mark.parametrize(
    "decision", [Allow(TARGET, "ok.example", OptIn.NONE), Ask(TARGET), Deny(Reason.NOT_LISTED)]
)
def test_a_decision_cannot_be_changed_or_extended(decision: Decision) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        decision.target = None  # type: ignore[misc]
    assert not hasattr(decision, "__dict__")


def test_kinds_are_told_apart_by_type_alone() -> None:
    """A refusal is as truthy as a yes, so that nobody is tempted to write `if decision`."""
    made: list[Decision] = [Allow(TARGET, "x", OptIn.NONE), Ask(TARGET), Deny(Reason.NOT_LISTED, TARGET)]
    assert all(map(bool, made))
    assert len(set(made)) == len(made)


@pytest.mark.parametrize("member", [*Reason, *OptIn])
def test_no_code_is_falsy(member: enum.Enum) -> None:
    assert bool(member) is True
    assert member.value


@pytest.mark.parametrize("reason", Reason)
def test_a_reason_is_a_stable_lower_case_word(reason: Reason) -> None:
    assert re.fullmatch(r"[a-z]+(_[a-z0-9]+)*", reason)
    assert str(reason) == reason.value == reason.name.lower()


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_an_answer_that_is_no_success(reason: Reason) -> None:
    assert 400 <= refusal_status(reason) <= 599
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", refusal_code(reason))
    assert hint_for(Deny(reason, TARGET, "ok.example"))
    assert refuse(Deny(reason, TARGET), "r1").status == refusal_status(reason)
