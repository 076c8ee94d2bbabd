"""The first moments of a process: signals that come before it is ready, and descriptors that are closed."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.installed import installed

SERVE = ("--allow", "a.example", "--bind", "127.0.0.1:0")
MODULE = (sys.executable, "-P", "-m", "egress_proxy", "serve")


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(tmp_path_factory.mktemp("installed"))


def commands(scripts: Path) -> tuple[tuple[str, ...], ...]:
    return (
        (str(scripts / "egress-proxy"), "serve"),
        (str(scripts / "steerable-egress-proxy"),),
        MODULE,
    )


def started(command: tuple[str, ...], **options: object) -> subprocess.Popen[str]:
    return subprocess.Popen(  # type: ignore[call-overload,no-any-return]
        (*command, *SERVE), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def has(pid: int, field: str, number: signal.Signals) -> bool:
    """Whether the kernel says so: SigIgn, what a process ignores; SigCgt, what it has a handler for."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    mask = next(line for line in lines if line.startswith(f"{field}:")).split()[1]
    return bool(int(mask, 16) & 1 << (number - 1))


def ignores_hangups(pid: int) -> bool:
    return has(pid, "SigIgn", signal.SIGHUP)


def has_begun(pid: int) -> bool:
    """Python is there, which ignores SIGPIPE, and its handler of SIGINT is gone."""
    return has(pid, "SigIgn", signal.SIGPIPE) and not has(pid, "SigCgt", signal.SIGINT)


@pytest.mark.parametrize("which", range(3))
def test_a_reload_during_the_start_does_not_end_it(scripts: Path, which: int) -> None:
    process = started(commands(scripts)[which])
    try:
        output = process.stdout.fileno()  # type: ignore[union-attr]
        said, end = "", time.monotonic() + 20
        # Python itself takes its first moment, and so does a shell: before any line of ours nobody can help.
        while not ignores_hangups(process.pid):
            assert time.monotonic() < end
        reloads = 0
        while "EGRESS_PROXY_PORT=" not in said:
            assert process.poll() is None, process.stderr.read()  # type: ignore[union-attr]
            assert time.monotonic() < end
            process.send_signal(signal.SIGHUP)
            reloads += 1
            if select.select((output,), (), (), 0.01)[0]:
                said += os.read(output, 100).decode()
        assert reloads > 3
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.1, 0.4])
def test_an_interrupt_during_the_start_ends_it_without_a_traceback(scripts: Path, after_s: float) -> None:
    for command in commands(scripts)[:2]:
        process, end = started(command), time.monotonic() + 20
        while not has_begun(process.pid):  # what Python's own start says is Python's
            assert time.monotonic() < end
        time.sleep(after_s)
        process.send_signal(signal.SIGINT)
        _, words = process.communicate(timeout=20)
        if words.startswith("Fatal Python error"):
            continue  # it came before there was an interpreter that could do anything about it
        assert "Traceback" not in words
        assert "KeyboardInterrupt" not in words


@pytest.mark.parametrize("closed", ["2>&-", "<&- 2>&-"])
def test_a_service_whose_stderr_is_closed_starts_and_gives_its_number_to_nothing_else(
    scripts: Path, closed: str
) -> None:
    for command in commands(scripts):
        line = ("/bin/sh", "-c", f'exec "$@" {closed}', "sh", *command)
        with subprocess.Popen((*line, *SERVE), stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline().startswith("EGRESS_PROXY_PORT=")
                assert os.readlink(f"/proc/{process.pid}/fd/2") == os.devnull
                process.send_signal(signal.SIGTERM)
                assert process.wait(20) == 0
            finally:
                process.kill()
