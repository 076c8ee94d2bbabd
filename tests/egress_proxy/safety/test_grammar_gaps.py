"""What the grammar would read otherwise than bash."""

import pytest

from egress_proxy.safety.grammar_gaps import parted_subshells, repaired


@pytest.mark.parametrize(
    ("text", "parted"),
    [
        ("$((a) ; b)", "$( (a) ; b)"),
        ("((a); (b))", "( (a); (b))"),
        ("((a) )", "( (a) )"),
        ("$((a; (b)) )", "$( (a; (b)) )"),
        ("$(((1)+2))", "$(( (1)+2))"),  # the same to bash
    ],
)
def test_a_subshell_is_parted(text: str, parted: str) -> None:
    assert parted_subshells(text) == parted


@pytest.mark.parametrize(
    "text", ["$((1+2))", "$(( (1+2)*(3) ))", "((i++))", "for ((i=0; i<(3); i++)); do :; done", "((", "a"]
)
def test_arithmetic_stays_as_it_is(text: str) -> None:
    assert parted_subshells(text) == text


@pytest.mark.parametrize(
    ("text", "as_bash_reads_it"),
    [
        ("a$IFS/b", "a${IFS}/b"),
        ("a - <<E\nb\nE", "a \\- <<E\nb\nE"),
        ("a\n\\b c", "a\nb c"),
        ("a \\\nb", "a b"),
        ("a # b \\\nc", "a # b \\\nc"),
        ("{a,b} c", "command {a,b} c"),
        ("if a; then {b,c}; fi", "if a; then command {b,c}; fi"),
        ("a {b,c}", "a {b,c}"),
    ],
)
def test_gaps_are_closed(text: str, as_bash_reads_it: str) -> None:
    assert repaired(text) == as_bash_reads_it
