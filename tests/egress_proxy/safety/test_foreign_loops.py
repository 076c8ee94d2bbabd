"""Which texts a loop gives to which variable, in any language."""

import pytest

from egress_proxy.safety.foreign_loops import MAX_PAIRS, loop_values
from egress_proxy.safety.foreign_tokens import tokens_of


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("python", 'for r in ["a", "/"]: f(r)'),
        ("python", '[f(r) for r in ("a", "/")]'),
        ("python", 'for r in sorted(["a", "/"]): f(r)'),
        ("python", 'd = [\n"a",\n"/"]\nfor r in d: f(r)'),
        ("node", 'for (const r of ["a", "/"]) f(r)'),
        ("node", '["a", "/"].forEach(r => f(r))'),
        ("node", '["a", "/"].map(async (r) => f(r))'),
        ("node", '["a", "/"].forEach(function (r) { f(r) })'),
        ("node", 'const d = ["a", "/"]; d.forEach(r => f(r))'),
        ("perl", 'for my $r ("a", "/") { f($r) }'),
        ("perl", "foreach $r (qw(a /)) { f($r) }"),
        ("ruby", '["a", "/"].each { |r| f(r) }'),
        ("ruby", "%w[a /].each do |r| f(r) end"),
        ("ruby", 'for r in ["a", "/"] do f(r) end'),
        ("php", 'foreach (["a", "/"] as $r) f($r);'),
        ("php", 'foreach (array("a", "/") as $r) f($r);'),
        ("lua", 'for _, r in ipairs({"a", "/"}) do f(r) end'),
    ],
)
def test_a_loop_goes_through_its_texts(language: str, code: str) -> None:
    assert {("r", "a"), ("r", "/")} <= set(loop_values(tokens_of(code, language)))


def test_a_loop_without_a_name_is_perls() -> None:
    assert loop_values(tokens_of('f($_) for ("/")', "perl")) == [("_", "/")]


@pytest.mark.parametrize(
    "code", ["for r in d: f(r)", 'f("a", "b")', 'x = ["a"]', "for", "in", "as", "each", "x.each"]
)
def test_without_texts_there_is_no_loop(code: str) -> None:
    assert loop_values(tokens_of(code, "python")) == []


def test_more_texts_than_are_of_use_are_told() -> None:
    assert len(loop_values(tokens_of('for r in ["a"]: f(r)\n' * 16, "python"))) == MAX_PAIRS
    assert MAX_PAIRS < len(loop_values(tokens_of('for r in ["a"]: f(r)\n' * 999, "python"))) < 99
