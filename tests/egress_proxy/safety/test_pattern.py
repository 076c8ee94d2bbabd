"""A bad rule fails when it is made, and says why."""

import pytest
from pydantic import ValidationError

from egress_proxy.safety.pattern import CommandSafetyPattern, Rule, RuleSet, View

GOOD = {
    "id": "x",
    "label": "x",
    "description": "x",
    "pattern": "prod-db",
    "category": "data",
    "severity": "critical",
    "platform": "all",
}


def test_a_rule_of_the_documents_is_taken() -> None:
    assert CommandSafetyPattern.model_validate(GOOD).id == "x"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"extra": 1}, "[Ee]xtra"),
        ({"severity": "safe"}, "severity"),
        ({"platform": "mac"}, "platform"),
        ({"pattern": "("}, "missing"),
        ({"pattern": "(?=a)b"}, "look-around"),
        ({"pattern": r"(a)\1"}, "back-references"),
        ({"pattern": ""}, "pattern"),
        ({"id": ""}, "id"),
    ],
)
def test_a_bad_rule_is_refused_with_the_reason(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        CommandSafetyPattern.model_validate({**GOOD, **change})


@pytest.mark.parametrize("field", GOOD)
def test_every_field_is_needed(field: str) -> None:
    with pytest.raises(ValidationError, match=field):
        CommandSafetyPattern.model_validate({key: value for key, value in GOOD.items() if key != field})


def test_many_patterns_are_searched_at_once() -> None:
    rules = [Rule(CommandSafetyPattern.model_validate({**GOOD, "id": name})) for name in ("a", "b")]
    found = RuleSet([("foo", rules[0]), ("ba+r", rules[1])])
    assert [rule.id for rule in found.matching("x baar foo \udcff")] == ["a", "b"]
    assert found.matching("nothing") == []
    assert RuleSet([]).matching("a") == []


def test_a_rule_knows_its_platforms() -> None:
    rule = Rule(CommandSafetyPattern.model_validate({**GOOD, "platform": "windows"}), View.LINE)
    assert rule.applies_to("windows")
    assert not rule.applies_to("unix")
