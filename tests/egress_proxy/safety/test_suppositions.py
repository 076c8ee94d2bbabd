"""Expansions that may be empty: the next word is the name, parts of words are words."""

import pytest

from egress_proxy.safety.classify import Severity, classify_shell_command
from egress_proxy.safety.shell import read_line

# Each may expand to nothing, not even to an empty word.
NOTHING = [
    "$x",
    "$*",
    "$1",
    '"$@"',
    '"${@}"',
    '"${@:2}"',
    '"${a[@]}"',
    "${a[*]}",
    "${x:+echo}",
    "${x+echo}",
    "${x-}",
    "${x:-$y}",
    "$(quietly)",
    "`quietly`",
    "$(true)",
    "$x$(true)",
    "$(true)$(true)",
]
PARTS = [*NOTHING, '"$x"', '"$(quietly)"', '"$x$y"']
# A name that many programs have a say in, so that no rule for unknown names can help.
DANGER = "git push --force"


def grade(line: str) -> Severity:
    return classify_shell_command(line, "unix").severity


@pytest.mark.parametrize("nothing", NOTHING)
@pytest.mark.parametrize(
    "form",
    ["{} X y", "{0} {0} X y", "z=1 {} X y", "! {} X y", "a && {} X y", ">f {} X y", "bash -c '{} X y'"],
)
def test_behind_what_may_be_nothing_stands_a_name(nothing: str, form: str) -> None:
    assert grade(form.format(nothing).replace("X y", DANGER)) is Severity.CRITICAL


@pytest.mark.parametrize("part", PARTS)
def test_a_name_is_what_is_left_of_it(part: str) -> None:
    assert grade(f"{part}''{DANGER}") is Severity.CRITICAL
    assert grade(f"g{part}''it push --force") is Severity.CRITICAL


@pytest.mark.parametrize(
    "line",
    [
        '"$@"set -- git push --force; "$@"',
        "$x alias q='git push --force'\nq",
        "$x cd /\nrm -rf *",
        "$x echo 'git push --force' | sh",
        "y=$x'git push --force'; $y",
        "eval $x git push --force",
        "eval \"$x\"'git push --force'",
        'set --; "$@" git push --force',
        'set -- x y git push --force; "${@:3}"',
    ],
)
def test_later_commands_see_what_it_did(line: str) -> None:
    assert grade(line) is Severity.CRITICAL


@pytest.mark.parametrize(
    "line",
    [
        "git $x push --force",
        "git push $x--force",
        "git pu$x'sh' --force",
        "env $x git push --force",
        "timeout 5 $x git push --force",
        "bash $x -c 'git push --force'",
        "rm -rf $x/etc",
        'rm -rf "$x"/usr',
        "cd $x/etc; rm -rf .",
        "echo y > $x/dev/sda",
        "{ echo y; } > $x/dev/sda",
    ],
)
def test_arguments_that_may_be_nothing_are_a_warning(line: str) -> None:
    assert grade(line) is Severity.WARNING


@pytest.mark.parametrize(
    "line",
    [
        '"$@"',
        'exec "$@"',
        "$CC -o x x.c",
        "$SUDO apt list",
        "${DOCKER:-docker} ps",
        '"$ADB" reboot',  # an empty word is no name
        '"${GIT}" push --force',
        'cd "$dir" && make',
        "cd $dir; rm -f *.o",
        'rm -rf "$BUILD/dist"',
        "rm -rf $TMPDIR/work",
        'bash -c "cd $dir && rm -rf build"',
        "find $dir -name '*.pyc' -delete",
        'find "$dir" -name x -delete',
        'git commit -m "$message"',
        'git push "$remote" "$branch"',
        "git checkout $branch",
        'cp -r "$src"/. "$dst"/',
        "tar -C $root -xf a.tar",
        "kill $pid",
        '"$VENV"/bin/pip install x',
        "${V:+echo} make",
        "make ${V:+-s} all",
        "docker run -v $root:/app ${opts[@]} img",
        "echo $x/etc/passwd",
        'for f in "$@"; do cat "$f"; done',
        'rm -rf "${root:?}/usr"',  # ends the shell
        "${x:?} git push --force",
    ],
)
def test_everyday_lines_with_expansions_stay_safe(line: str) -> None:
    assert grade(line) is Severity.SAFE


def test_what_is_supposed_leaves_nothing_behind() -> None:
    reading = read_line("cd $x/a; cd $y; b")
    assert [command.folder for command in reading.commands if command.text == "b"] == ["\ue000/a/\ue000"]
    assert not reading.limits
    assert not read_line("sh $x -c 'a ) b'").limits


def test_the_reason_says_that_it_is_supposed() -> None:
    assert "is empty" in classify_shell_command("rm -rf $x/etc", "unix").explain()
    assert "is empty" not in classify_shell_command("rm -rf /etc", "unix").explain()
