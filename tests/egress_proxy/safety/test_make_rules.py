"""Commands in makefiles and crontabs."""

import pytest

from egress_proxy.safety.make_rules import recipes, scheduled


@pytest.mark.parametrize(
    "text",
    ["a:\n\tX y", "a:\n\t@-X y", "a: ; X y", "a: b;X y", "v != X y", "v := $(shell X y)", "a:\n\tX \\\ny"],
)
def test_a_recipe_is_found(text: str) -> None:
    assert [" ".join(found.split()) for found in recipes(text)] == ["X y"]


@pytest.mark.parametrize("text", ["# a: ; X y", "v = X y", "v := a;X", "a: b", "include X"])
def test_other_lines_run_nothing(text: str) -> None:
    assert list(recipes(text)) == []


@pytest.mark.parametrize("text", ["* * * * * X y", "@reboot X y", "*/5 0-3 1,2 jan mon X y"])
def test_a_scheduled_command_is_found(text: str) -> None:
    assert list(scheduled(text)) == ["X y"]


@pytest.mark.parametrize("text", ["# * * * * * X", "MAILTO=me", ""])
def test_other_lines_of_a_crontab_run_nothing(text: str) -> None:
    assert list(scheduled(text)) == []


def test_many_colons_take_linear_time() -> None:
    assert list(recipes(":" * 300_000)) == []
    assert list(recipes("a" + ":" * 300_000)) == []
    assert list(recipes("a: b: c; X")) == ["X"]
