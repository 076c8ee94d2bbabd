"""What the grammar would read otherwise than bash."""

import pytest

from egress_proxy.safety.grammar_gaps import parted_subshells, repaired, with_home


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


@pytest.mark.parametrize(
    ("text", "as_bash_reads_it"),
    [
        ("a > >(sh)", "a | sh"),
        ("a 2> >(sh)", "a 2> >(sh)"),
        ("sh 0< f", "sh < f"),
        ("sh 0<f", "sh <f"),
        ("echo 10<f", "echo 10<f"),
        (r"echo `a \`b\``", "echo $(a `b`)"),
        (r"echo `a` \`b\` `c`", r"echo `a` \`b\` `c`"),
    ],
)
def test_numbers_of_inputs_and_nested_backquotes(text: str, as_bash_reads_it: str) -> None:
    assert repaired(text) == as_bash_reads_it


@pytest.mark.parametrize(
    ("text", "as_bash_reads_it"),
    [
        ("bash <<'EOF'e\nx", "bash <<'EOFe'\nx"),
        ('bash <<- E"O"\\F', "bash <<- 'EOF'"),
        ("cat <<'EOF' > f", "cat <<'EOF' > f"),
        ("cat <<EOF", "cat <<EOF"),
        ("cat <<\\EOF", "cat <<'EOF'"),
        ("cat <<<'a'b", "cat <<<'a'b"),
        ('cat <<"a\'b"c', 'cat <<"a\'b"c'),
    ],
)
def test_the_delimiter_of_a_here_document_is_one_word(text: str, as_bash_reads_it: str) -> None:
    assert repaired(text) == as_bash_reads_it


def test_a_home_folder_in_quotes_is_still_one() -> None:
    assert with_home("rm -rf \"~\" '~/x'") == "rm -rf ~\"\" ~'/x'"
    assert with_home("echo 'a~b'") == "echo 'a~b'"


@pytest.mark.parametrize("unit", ["|{,", "({,", "`{,", ";{,", "{", "((", "<<'", "<<a", "<<\"a'", "<<\\"])
def test_many_openings_take_linear_time(unit: str) -> None:
    assert len(repaired(unit * 100_000)) >= 100_000
