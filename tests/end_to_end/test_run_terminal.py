"""`egress-proxy run` at a terminal, started by the user's own bash: job control, keys, modes, size.

Inside, another bash: what a person at the keyboard does with an agent.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator

import pytest

from tests.support.certificates import CertificateAuthority
from tests.support.confined_run import BACKENDS, END_S, RunGround, is_running
from tests.support.deadline import eventually
from tests.support.terminal import CTRL_BACKSLASH, CTRL_C, CTRL_D, CTRL_Z, PROMPT, Terminal

OUTER = re.escape(PROMPT)
INNER = "inner-prompt> "
UNTIL_KILLED = "while :; do sleep 0.05; done"


@pytest.fixture(scope="module")
def ground(ca: CertificateAuthority) -> Iterator[RunGround]:
    with RunGround(ca) as made:
        yield made


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    assert isinstance(request.param, str)
    return request.param


@pytest.fixture
def terminal(ground: RunGround) -> Iterator[Terminal]:
    with Terminal(ground.environment, str(ground.folder)) as opened:
        yield opened


def line(ground: RunGround, backend: str, *command: str) -> str:
    return shlex.join(ground.argv(*command, flags=("-q", "--backend", backend)))


def inner_bash(ground: RunGround, terminal: Terminal, backend: str) -> None:
    # The minus as bash spells it, so that the echo of this line is no prompt.
    bash = ("env", r"PS1=inner\055prompt> ", "bash", "--norc", "--noprofile", "--noediting", "-i")
    terminal.enter(line(ground, backend, *bash))
    terminal.expect(INNER)


def expect_code(terminal: Terminal, code: int) -> None:
    terminal.expect(OUTER)
    terminal.enter("echo code=$?")
    terminal.expect(f"code={code}\r\n")


def is_asleep(terminal: Terminal) -> bool:
    """Whether the foreground is a group of a job inside, and not one of a shell or of `run`."""
    with open(f"/proc/{terminal.foreground()}/comm") as name:
        return name.read() == "sleep\n"


def test_a_shell_inside_has_job_control_and_gives_the_terminal_back(
    ground: RunGround, terminal: Terminal, backend: str
) -> None:
    modes, foreground = terminal.modes(), terminal.foreground()
    inner_bash(ground, terminal, backend)
    terminal.enter("set -o | grep monitor")
    terminal.expect("monitor +\t?on")
    terminal.expect(INNER)
    terminal.enter("sleep 600")
    eventually(lambda: is_asleep(terminal), what="the job to have the foreground")
    terminal.type(CTRL_Z)
    terminal.expect("Stopped")
    terminal.expect(INNER)
    terminal.enter("bg; jobs")
    terminal.expect("Running")
    terminal.expect(INNER)
    terminal.enter("fg")
    eventually(lambda: is_asleep(terminal), what="the job to have the foreground again")
    terminal.type(CTRL_C)
    terminal.expect(INNER)
    terminal.enter("echo inner=$?")
    terminal.expect("inner=130")
    terminal.enter("exit 5")
    expect_code(terminal, 5)
    terminal.expect(OUTER)
    eventually(lambda: (terminal.modes(), terminal.foreground()) == (modes, foreground), what="all as before")


def test_it_can_be_stopped_and_continued_as_a_job(
    ground: RunGround, terminal: Terminal, backend: str
) -> None:
    terminal.enter(line(ground, backend, "sh", "-c", "echo rea''dy; cat; echo en''d"))
    terminal.expect("ready")
    terminal.type(CTRL_Z)
    terminal.expect("Stopped")
    terminal.expect(OUTER)
    terminal.enter("fg")
    terminal.expect("egress_proxy run")
    terminal.enter("typed")
    terminal.expect("typed\r\ntyped")
    terminal.type(CTRL_D)
    terminal.expect("end")
    expect_code(terminal, 0)


@pytest.mark.parametrize(("key", "name"), [(CTRL_C, "INT"), (CTRL_BACKSLASH, "QUIT")])
def test_a_key_is_the_commands_to_answer_once(
    ground: RunGround, terminal: Terminal, backend: str, key: str, name: str
) -> None:
    script = f"trap 'echo ca\"\"ught; exit 7' {name}; echo rea''dy; {UNTIL_KILLED}"
    terminal.enter(line(ground, backend, "bash", "-c", script))
    terminal.expect("ready")
    terminal.type(key)
    terminal.expect("caught")
    expect_code(terminal, 7)
    assert terminal.text.count("caught") == 1


def test_a_key_ends_a_command_that_reads_from_a_pipe(
    ground: RunGround, terminal: Terminal, backend: str
) -> None:
    """Such a command has a session of its own; a shell waits for its child, which must get the key, too."""
    child = f"sleep 6{os.getpid()}"  # a number that nobody else sleeps for
    terminal.enter(f"sleep 600 | {line(ground, backend, 'sh', '-c', f'{child}; echo went on')}")
    # A shell that is about to start its child may lose a key, in a sandbox or not.
    eventually(lambda: is_running(child), END_S, "the shell's child")
    terminal.type(CTRL_C)
    expect_code(terminal, 130)
    assert "\r\nwent on" not in terminal.text


def test_the_window_size_follows(ground: RunGround, terminal: Terminal, backend: str) -> None:
    inner_bash(ground, terminal, backend)
    terminal.resize(40, 90)
    terminal.enter("stty size")
    terminal.expect("40 90\r\n")
    terminal.enter("exit")
    expect_code(terminal, 0)


def test_modes_are_as_before_however_the_command_ends(
    ground: RunGround, terminal: Terminal, backend: str
) -> None:
    before = terminal.modes()
    command = line(ground, backend, "sh", "-c", "stty raw -echo; echo rea''dy; kill -KILL $$")
    # In a shell without job control, which leaves the terminal as it finds it.
    terminal.enter(f"sh -c {shlex.quote(command + '; stty -a | grep -o [-]*icanon')}")
    terminal.expect("ready")
    terminal.expect("[^-]icanon\r\n")
    terminal.expect(OUTER)
    assert terminal.modes()[:4] == before[:4]


def test_nothing_can_be_typed_for_the_user(ground: RunGround, terminal: Terminal, backend: str) -> None:
    script = "import fcntl,termios\nfor n in (0x5412,0x541C,0x5423,1<<32|0x5412):\n" + (
        "  for path in ('/dev/stdin','/dev/tty'):\n"
        "    try: fcntl.ioctl(open(path),n,b'x'); print('un'+'safe')\n"
        "    except (OSError, OverflowError): pass\nprint('tr'+'ied')"
    )
    (ground.folder / "inject.py").write_text(script)
    terminal.enter(line(ground, backend, "/usr/bin/python3", "inject.py"))
    terminal.expect("tried")
    expect_code(terminal, 0)
    assert "unsafe" not in terminal.text


def test_in_the_background_it_waits_for_the_foreground_to_read(
    ground: RunGround, terminal: Terminal, backend: str
) -> None:
    terminal.enter(line(ground, backend, "sh", "-c", "read line; echo go''t $line") + " &")
    terminal.expect(OUTER)
    terminal.enter("wait %1; jobs")
    terminal.expect("Stopped")
    terminal.expect(OUTER)
    terminal.enter("fg")
    terminal.enter("typed")
    terminal.expect("got typed")
    expect_code(terminal, 0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_command_makes_terminals_of_its_own(ca: CertificateAuthority, backend: str) -> None:
    """`script`, and what a test harness of a terminal program does. None of the host's others is opened."""
    host, others = os.openpty()
    path = os.ttyname(others)
    foreign = f"(exec 3<>{path}) 2>/dev/null || echo refused"  # under bwrap no path leads to one
    command = f"tty; {foreign if backend == 'landlock' else 'echo refused'}; echo x > /dev/tty"
    try:
        with RunGround(ca) as ground:
            done = ground.run("script", "-qec", command, "/dev/null", flags=("-q", "--backend", backend))
    finally:
        os.close(host)
        os.close(others)
    lines = done.out.replace("\r", "").splitlines()
    assert (done.code, len(lines)) == (0, 3), done
    assert lines[0].startswith("/dev/pts/")
    assert lines[1:] == ["refused", "x"]
