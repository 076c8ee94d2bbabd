"""The terminal is given back as it was: its modes, and its foreground where nobody living has that."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import termios

import pytest

from egress_proxy.cli.run_terminal import kept_flags, kept_terminal
from tests.support.program import REPOSITORY

# As the leader of a session at the terminal that is its stdin; the block is left with the exit code.
START = """
import os, signal, sys, termios
from egress_proxy.cli.run_terminal import kept_terminal
def echoes(): return bool(termios.tcgetattr(0)[3] & termios.ECHO)
def mute():
    modes = termios.tcgetattr(0)
    modes[3] &= ~termios.ECHO
    termios.tcsetattr(0, termios.TCSANOW, modes)
def in_a_group_of_its_own(then):
    start, started = os.pipe()
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        os.tcsetpgrp(0, os.getpgrp())
        mute()
        os.write(started, b"x")
        then()
        os._exit(0)
    os.read(start, 1)
    return child
"""


def at_a_terminal(script: str) -> int:
    screen, line = os.openpty()
    try:
        return subprocess.run(
            ["setsid", "--ctty", "--wait", sys.executable, "-c", START + script],
            stdin=line,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            timeout=30,
            check=False,
        ).returncode
    finally:
        os.close(screen)
        os.close(line)


def test_modes_are_as_before() -> None:
    assert at_a_terminal("with kept_terminal(0): mute()\nassert echoes()") == 0


def test_a_foreground_whose_group_has_ended_is_ours_again() -> None:
    script = """
with kept_terminal(0):
    os.waitpid(in_a_group_of_its_own(lambda: None), 0)
    assert os.tcgetpgrp(0) != os.getpgrp()
assert os.tcgetpgrp(0) == os.getpgrp()
assert echoes()
"""
    assert at_a_terminal(script) == 0


def test_a_job_that_has_the_foreground_and_lives_keeps_it() -> None:
    script = """
with kept_terminal(0):
    child = in_a_group_of_its_own(signal.pause)
assert os.tcgetpgrp(0) == child
assert not echoes()
os.kill(child, signal.SIGKILL)
"""
    assert at_a_terminal(script) == 0


def test_what_fails_inside_is_not_hidden() -> None:
    assert (
        at_a_terminal(
            "try:\n  with kept_terminal(0): mute(); 1 / 0\nexcept ZeroDivisionError: assert echoes()"
        )
        == 0
    )


def test_what_is_no_terminal_is_left_alone() -> None:
    read_end, write_end = os.pipe()
    with kept_terminal(read_end):
        pass
    os.close(read_end)
    os.close(write_end)


def test_a_terminal_of_another_session_is_left_alone() -> None:
    screen, line = os.openpty()
    with kept_terminal(line):
        modes = termios.tcgetattr(line)
        modes[3] &= ~termios.ECHO
        termios.tcsetattr(line, termios.TCSANOW, modes)
    assert not termios.tcgetattr(line)[3] & termios.ECHO
    os.close(screen)
    os.close(line)


@pytest.fixture(autouse=True)
def is_linux() -> None:
    if sys.platform != "linux":
        pytest.skip("Linux: setsid --ctty")


def test_answers_to_queries_of_the_command_are_not_left_for_the_shell() -> None:
    screen, line = os.openpty()
    try:
        modes = termios.tcgetattr(line)
        script = (
            "import os; from egress_proxy.cli.run_terminal import kept_terminal\n"
            "with kept_terminal(0): os.write(1, b'\\x1b[c')\n"
        )
        os.write(screen, b"?62c typed by the terminal\n")
        subprocess.run(
            ["setsid", "--ctty", "--wait", sys.executable, "-c", script],
            stdin=line,
            stdout=line,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            timeout=30,
            check=True,
        )
        os.set_blocking(line, False)
        with pytest.raises(BlockingIOError):
            os.read(line, 100)
        assert termios.tcgetattr(line) == modes
    finally:
        os.close(screen)
        os.close(line)


def test_flags_of_what_is_open_are_as_before() -> None:
    screen, line = os.openpty()
    reader, writer = os.pipe()
    try:
        os.set_blocking(writer, False)  # as it was given
        before = [fcntl.fcntl(one, fcntl.F_GETFL) for one in (line, reader, writer)]
        with kept_flags((line, reader, writer)):
            for one in (line, reader, writer):
                fcntl.fcntl(one, fcntl.F_SETFL, fcntl.fcntl(one, fcntl.F_GETFL) ^ os.O_NONBLOCK ^ os.O_APPEND)
            fcntl.ioctl(line, termios.TIOCEXCL)
        assert [fcntl.fcntl(one, fcntl.F_GETFL) for one in (line, reader, writer)] == before
        assert not any(fcntl.ioctl(line, 0x80045440, bytes(4)))  # TIOCGEXCL
    finally:
        for one in (screen, line, reader, writer):
            os.close(one)


def test_a_terminal_that_was_exclusive_stays_so() -> None:
    screen, line = os.openpty()
    try:
        fcntl.ioctl(line, termios.TIOCEXCL)
        with kept_flags((line,)):
            pass
        assert any(fcntl.ioctl(line, 0x80045440, bytes(4)))
    finally:
        os.close(screen)
        os.close(line)
