"""`egress-proxy run` and signals: what it is sent is the command's, and what it leaves behind is nothing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.support.certificates import CertificateAuthority
from tests.support.confined_run import BACKENDS, END_S, RunGround, folders_of, in_place_of_bwrap, is_running
from tests.support.deadline import eventually

UNTIL_KILLED = "while :; do sleep 0.05; done"


@pytest.fixture(scope="module")
def ground(ca: CertificateAuthority) -> Iterator[RunGround]:
    with RunGround(ca) as made:
        yield made


def await_line(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == line + "\n"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "QUIT", "USR1"])
def test_the_commands_trap_runs_and_its_code_is_ours(ground: RunGround, backend: str, name: str) -> None:
    script = f"trap 'echo caught; exit 7' {name}; echo ready; {UNTIL_KILLED}"
    with ground.started("sh", "-c", script, flags=("-q", "--backend", backend)) as process:
        await_line(process, "ready")
        process.send_signal(getattr(signal, f"SIG{name}"))
        out, err = process.communicate(timeout=END_S)
    assert (process.returncode, out, err) == (7, "caught\n", "")


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_in_a_row_are_both_heard(ground: RunGround, backend: str) -> None:
    script = (
        "n=0; trap 'n=$((n+1)); echo \"caught $n\"; [ $n = 2 ] && exit 8' TERM; echo ready; " + UNTIL_KILLED
    )
    with ground.started("sh", "-c", script, flags=("-q", "--backend", backend)) as process:
        await_line(process, "ready")
        process.terminate()
        await_line(process, "caught 1")
        process.terminate()
        await_line(process, "caught 2")
        assert process.wait(END_S) == 8


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_command_without_a_trap_dies_of_it(ground: RunGround, backend: str) -> None:
    with ground.started("sh", "-c", "echo ready; exec sleep 600", flags=("--backend", backend)) as process:
        await_line(process, "ready")
        process.terminate()
        _, err = process.communicate(timeout=END_S)
    assert process.returncode == 143
    assert err.startswith("egress-proxy run: exit 143,")


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_sent_to_the_whole_group_does_not_kill_the_runner(ground: RunGround, backend: str) -> None:
    """As timeout(1) does it."""
    script = f"trap 'echo caught; exit 7' TERM; echo ready; {UNTIL_KILLED}"
    flags = ("-q", "--backend", backend)
    with ground.started("sh", "-c", script, flags=flags, start_new_session=True) as process:
        await_line(process, "ready")
        os.killpg(process.pid, signal.SIGTERM)
        out, _ = process.communicate(timeout=END_S)
    assert (process.returncode, out) == (7, "caught\n")


def test_what_nohup_ignores_stays_ignored(ground: RunGround) -> None:
    script = "echo ready; read line; echo went on"
    with ground.started(
        "sh", "-c", script, flags=("-q",), stdin=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    ) as process:  # fmt: skip
        await_line(process, "ready")
        process.send_signal(signal.SIGHUP)
        out, _ = process.communicate("\n", timeout=END_S)
    assert (process.returncode, out) == (0, "went on\n")


@pytest.fixture
def slow_bwrap(ground: RunGround) -> tuple[str, ...]:
    """On a system whose bwrap does not come to an end: the probe waits for it for seconds."""
    if os.geteuid():
        pytest.skip("cannot be installed here: a bwrap that root owns")
    folder = ground.folder / "bin"
    folder.mkdir(exist_ok=True)
    (folder / "bwrap").write_text("#!/bin/sh\nexec sleep 600\n")
    (folder / "bwrap").chmod(0o755)
    return in_place_of_bwrap(folder / "bwrap")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_before_the_command_is_there_it_ends_all_and_leaves_no_folder(
    ground: RunGround, slow_bwrap: tuple[str, ...], number: signal.Signals
) -> None:
    with ground.started("sh", "-c", "exec sleep 600", flags=("-q",), before=slow_bwrap) as process:
        eventually(lambda: folders_of(process) != [], END_S, "the folder of the attach socket")
        process.send_signal(number)
        out, err = process.communicate(timeout=END_S)
    assert process.returncode == 128 + number
    assert (out, err) == ("", "")
    assert folders_of(process) == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_killed_it_takes_the_command_along_and_leaves_no_folder(ground: RunGround, backend: str) -> None:
    # Numbers that nobody else sleeps for.
    own, other = f"sleep 7{os.getpid()}", f"sleep 8{os.getpid()}"
    leaves = backend == "bwrap"  # the landlock rung loses what is in a session of its own: it has its word
    script = f"{f'setsid {other} &' if leaves else ''} {own} & echo ready; wait"
    with ground.started("sh", "-c", script, flags=("-q", "--backend", backend)) as process:
        await_line(process, "ready")
        eventually(lambda: is_running(own) and (is_running(other) or not leaves), what="the children")
        process.kill()
        process.wait(END_S)
        eventually(lambda: not is_running(own) and not is_running(other), END_S, "nothing to be left")
    assert folders_of(process) == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_the_command_leaves_running_ends_with_it(ground: RunGround, backend: str) -> None:
    words = f"sleep 9{os.getpid()}"
    begun = time.monotonic()
    ran = ground.run("sh", "-c", f"setsid {words} & echo left; exit 3", flags=("-q", "--backend", backend))
    assert (ran.code, ran.out) == (3, "left\n")
    assert not is_running(words)
    assert time.monotonic() - begun < END_S


def test_the_summary_comes_after_a_signal_too(ground: RunGround) -> None:
    script = f"echo x > .envrc; echo ready; {UNTIL_KILLED}"
    root = ground.folder / "root"
    root.mkdir()
    with ground.started("sh", "-c", script, flags=("--rw", "."), cwd=root) as process:
        await_line(process, "ready")
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=END_S)
    assert re.search(r"planted +\S+/\.envrc", err)
