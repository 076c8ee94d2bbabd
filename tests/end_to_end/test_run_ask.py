"""`run --ask` at a real terminal: the command stands still meanwhile, and cannot have answered."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from shlex import join

import pytest

from tests.support.certificates import CertificateAuthority
from tests.support.confined_run import BACKENDS, UNLISTED, RunGround
from tests.support.deadline import eventually
from tests.support.terminal import CTRL_C, PROMPT, Terminal

ASKED = r"asks for unlisted.example:\d+, which is not listed, and waits.\s+Type `allow (\d{4})` for this run"


@pytest.fixture(scope="module")
def ground(ca: CertificateAuthority) -> Iterator[RunGround]:
    with RunGround(ca) as made:
        yield made


@pytest.fixture(params=BACKENDS)
def flags(request: pytest.FixtureRequest, ground: RunGround) -> tuple[str, ...]:
    return (*ground.flags, "--allow-private", f"x.{UNLISTED}", "--ask", "--backend", request.param)


@pytest.fixture
def terminal(ground: RunGround) -> Iterator[Terminal]:
    with Terminal(ground.environment, str(ground.folder)) as one:
        yield one


def run(ground: RunGround, flags: tuple[str, ...], script: str) -> str:
    return join(ground.argv("sh", "-c", script, flags=flags))


def states(word: str) -> set[str]:
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if word in (process / "cmdline").read_text().split("\0"):
                found.add((process / "stat").read_text().rpartition(") ")[2][0])
        except OSError:
            continue
    return found


def test_an_answer_from_before_does_not_count_and_the_command_stands_still(
    ground: RunGround, flags: tuple[str, ...], terminal: Terminal
) -> None:
    curl, number = join(ground.curl(UNLISTED)), f"6{os.getpid()}"  # that nobody else sleeps for
    # It reads along, and would take the answer.
    script = f"sleep {number} & echo re''ady; sleep 1; {curl}; kill %1; read line; echo got=$line"
    terminal.enter(run(ground, flags, script))
    terminal.expect("ready")
    terminal.enter("y")
    code = terminal.expect(ASKED)[1].decode()
    eventually(lambda: states(number) == {"T"})  # a signal takes effect when its process is next scheduled
    terminal.enter(f"allow {code}")
    # A name's address that is not public stays refused: what was lifted is the list.
    terminal.expect("blocked-by-address|address_not_public|403")
    terminal.enter("later")
    terminal.expect("got=later")
    eventually(lambda: not states(number), what="the end of the command")


def test_whatever_else_is_typed_is_a_no_and_said(
    ground: RunGround, flags: tuple[str, ...], terminal: Terminal
) -> None:
    terminal.enter(run(ground, flags, join(ground.curl(UNLISTED))))
    terminal.expect(ASKED)
    terminal.enter("y")
    terminal.expect("is refused for this run")
    terminal.expect(r"refused +unlisted.example:\d+ +1 time, approval_denied +--allow unlisted")


def test_a_full_screen_program_is_not_drawn_over(
    ground: RunGround, flags: tuple[str, ...], terminal: Terminal
) -> None:
    script = f"stty raw -echo; {join(ground.curl(UNLISTED))}; stty sane; echo after''wards"
    terminal.enter(run(ground, flags, script))
    terminal.expect("afterwards")
    terminal.expect(r"refused +unlisted.example:\d+ +1 time, not_listed +--allow unlisted")
    assert "Type `allow" not in terminal.text


def test_an_interrupt_ends_question_and_command(
    ground: RunGround, flags: tuple[str, ...], terminal: Terminal
) -> None:
    terminal.enter(run(ground, flags, f"{join(ground.curl(UNLISTED))}; exit 9"))
    terminal.expect(ASKED)
    terminal.type(CTRL_C)
    terminal.expect(re.escape(PROMPT))
    terminal.enter("echo code=$?")
    terminal.expect("code=130")
