"""What a variable holds, and whether it certainly does."""

import pytest

from egress_proxy.safety.classify import Severity, classify_shell_command
from egress_proxy.safety.shell import read_line


def last(line: str) -> str:
    return list(read_line(line).commands)[-1].text


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("x=a; x+=b; c $x", "c ab"),
        ("x=(a b); x+=(c); d ${x[@]}", "d a b c"),
        ("x[0]=a; x[1]=b; c ${x[@]}", "c a b"),
        ("export x=a y=b; c $x $y", "c a b"),
        ("x=a; unset x; c $x", "c"),
        ("x='a b'; c \"$x\"", "c a b"),
    ],
)
def test_what_a_variable_holds(line: str, text: str) -> None:
    assert last(line) == text


@pytest.mark.parametrize("name", ["EDITOR", "GIT_SSH_COMMAND"])
def test_what_a_program_will_run_is_read_as_a_text(name: str) -> None:
    assert "rm -rf /" in [command.text for command in read_line(f"{name}='rm -rf /'").commands]


@pytest.mark.parametrize(
    "line",
    [
        "false && x=echo; {}",
        "true || x=echo; {}",
        "if a; then x=echo; fi; {}",
        "while a; do x=echo; done; {}",
        "case a in b) x=echo;; esac; {}",
        "(x=echo); {}",
        "a | x=echo; {}",
        "b=$(x=echo); {}",
        "f() {{ x=echo; }}; {}",
        "x=echo a; {}",
    ],
)
def test_behind_a_branch_its_variables_may_be_empty(line: str) -> None:
    line = line.format("$x git push --force")
    assert classify_shell_command(line, "unix").severity is Severity.CRITICAL


@pytest.mark.parametrize(
    "line",
    [
        "x=echo; $x git push --force",
        "a && x=echo && $x git push --force",
        "if a; then x=echo; $x git push --force; fi",
        "false && x=y; x=echo; $x git push --force",
        "for x in echo; do $x git push --force; done",
        "if a; then d=build; rm -rf $d/*; fi",
    ],
)
def test_what_is_certain_is_not_supposed_to_be_empty(line: str) -> None:
    assert classify_shell_command(line, "unix").severity is Severity.SAFE
