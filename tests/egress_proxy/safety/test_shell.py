"""Which simple commands a line holds, and with which words."""

import pytest

from egress_proxy.safety.reading import Limit
from egress_proxy.safety.shell import read_line


def commands(line: str) -> list[str]:
    return [command.text for command in read_line(line).commands if command.words]


@pytest.mark.parametrize(
    "line",
    [
        "a; X y",
        "a && X y || b",
        "a | X y",
        "(X y)",
        "{ X y; }",
        "X y &",
        "! X y",
        "if a; then X y; fi",
        "if a; then b; else X y; fi",
        "while X y; do b; done",
        "for i in 1; do X y; done",
        "case a in a) X y;; esac",
        "f() { X y; }",
        "echo $(X y)",
        "echo `X y`",
        'echo "a $(X y) b"',
        "cat <(X y)",
        "a=$(X y)",
        "export a=$(X y)",
        "echo ${a:-$(X y)}",
        "[[ $(X y) == a ]]",
        "cat <<E\n$(X y)\nE",
        "cat <<E\n`X y`\nE",
        "sh <<E\nX y\nE",
        "cat <<E | sh\nX y\nE",
        "sh <<< 'X y'",
        "echo X y | sh",
        "echo 'X y' > f; . ./f",
        "alias q='X y'\nq",
        'f() { "$@"; }; f X y',
        'set -- X y; "$@"',
        "a='X y'; $a",
        'a=(X y); "${a[@]}"',
        "IFS=,; a=X,y; $a",
        "read -r a <<< 'X y'; $a",
        "while read a; do $a; done <<< 'X y'",
        "printf -v a 'X %s' y; $a",
        "LESSOPEN='|X y' less z",
        "unset a; X y",
        "{X,y}",
        "X$IFS''y",
        "a\n\\X y",
        "X \\\n y",
        "a # b\nX y",
        "trap 'X y' EXIT",
    ],
)
def test_a_command_is_found_wherever_it_stands(line: str) -> None:
    assert "X y" in commands(line)


def test_a_home_folder_in_quotes_in_an_inner_text_is_one() -> None:
    assert "X ~/y" in commands('bash -c "X \\"$HOME/y\\""')


def test_what_is_unset_is_told() -> None:
    assert "unset HISTFILE" in commands("unset HISTFILE")


@pytest.mark.parametrize(
    "line",
    [
        "echo 'X y'",
        "a # X y",
        "cat <<'E'\n$(X y)\nE",
        "cat <<E\nX y\nE",
        "git commit -m 'a; X y'",
        "a='X y'",
        'echo "X y"',
    ],
)
def test_what_only_mentions_a_command_is_no_command(line: str) -> None:
    assert "X y" not in commands(line)


def test_a_redirection_of_a_list_is_seen() -> None:
    effects = [effect for c in read_line("true && echo x > /dev/sda").commands for effect in c.effects]
    assert effects == ["write /dev/sda"]


def test_a_subshell_keeps_its_folder_to_itself() -> None:
    folders = {command.text: command.folder for command in read_line("(cd /a && x); y; cd /b; z").commands}
    assert (folders["x"], folders["y"], folders["z"]) == ("/a", ".", "/b")


def test_limits_are_told() -> None:
    assert read_line("(" * 100 + "a" + ")" * 100).limits == {Limit.DEEP}
    assert Limit.BROKEN in read_line("a ) b").limits
    assert read_line("".join(f"c{i} x;" for i in range(3000))).limits == {Limit.MANY}
    assert read_line("a|" * 2000).limits == {Limit.UNPARSED}


@pytest.mark.parametrize("line", ["true\n\\/bin/rm -fr /", "ls\n\\rm -rf ~", "ls\n  \\../bin/rm -rf /"])
def test_a_quoted_first_character_in_a_later_line_hides_no_command(line: str) -> None:
    assert "rm" in commands(line)[-1]


def test_a_group_behind_a_negation_is_read() -> None:
    assert "rm -rf /" in commands("! { ( rm -rf / ); }")
