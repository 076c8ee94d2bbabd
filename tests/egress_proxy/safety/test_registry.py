"""Rules that a host adds, takes away and switches off."""

from collections.abc import Iterator

import pytest

from egress_proxy.safety.classify import classify_shell_command
from egress_proxy.safety.pattern import CommandSafetyPattern, RuleError
from egress_proxy.safety.registry import Registry, disable_rules, register_rule, registry, unregister_rule


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    registry.cache_clear()
    yield
    registry.cache_clear()


def a_rule(
    rule_id: str = "no-prod-db", pattern: str = r"(psql|mysql).*--host.*prod-db"
) -> CommandSafetyPattern:
    return CommandSafetyPattern(
        id=rule_id,
        label="No direct prod DB",
        description="Block any psql/mysql against the prod hostname.",
        pattern=pattern,
        category="data",
        severity="critical",
        platform="all",
    )


def matched(line: str) -> list[str]:
    return classify_shell_command(line, "unix").matched_rules


def test_the_example_of_the_documents() -> None:
    register_rule(a_rule())
    result = classify_shell_command("psql --host prod-db -U admin")
    assert (result["severity"], result["matchedRules"]) == ("critical", ["no-prod-db"])


def test_a_rule_is_searched_in_each_simple_command_too() -> None:
    register_rule(a_rule(pattern="^deploy --prod$"))
    assert matched("true && 'deploy'  --prod") == ["no-prod-db"]


def test_a_rule_can_be_taken_back() -> None:
    register_rule(a_rule(pattern="zzz"))
    unregister_rule("no-prod-db")
    assert matched("zzz") == []


def test_an_id_is_taken_once() -> None:
    register_rule(a_rule())
    for rule_id in ("no-prod-db", "sudo"):
        with pytest.raises(RuleError, match="already"):
            register_rule(a_rule(rule_id))


def test_what_is_not_there_or_built_in_cannot_be_taken_back() -> None:
    with pytest.raises(RuleError, match="no rule"):
        unregister_rule("nothing")
    with pytest.raises(RuleError, match="disable"):
        unregister_rule("sudo")


def test_a_built_in_rule_can_be_switched_off_and_on() -> None:
    disable_rules(["sudo"])
    assert matched("sudo ls") == []
    assert registry().disabled == {"sudo"}
    disable_rules([])
    assert matched("sudo ls") == ["sudo"]
    with pytest.raises(RuleError, match="no rule"):
        disable_rules(["nothing"])


def test_a_rule_is_a_pattern_and_nothing_else() -> None:
    with pytest.raises(RuleError, match="dict"):
        Registry().register({"id": "x"})  # type: ignore[arg-type]
