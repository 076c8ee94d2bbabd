"""Case C69: who shares a terminal cannot type into it, and what is killed is killed with all that it started.

Commands of a program have no terminal at all; at a person's, test_run_terminal.py tries the same.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from tests.support.certificates import CertificateAuthority
from tests.support.confined_run import BACKENDS, END_S, RunGround
from tests.support.deadline import eventually
from tests.support.terminal import Terminal

INJECT = """
import fcntl, os, sys
attempts = [("stdout", 1), ("stderr", 2)]
try: attempts.append(("tty", os.open("/dev/tty", os.O_RDWR)))
except OSError: pass
for name, descriptor in attempts:
    for request in (0x5412, 0x541C, 0x5423):
        try: fcntl.ioctl(descriptor, request, b"x"); print("injected by", name, hex(request))
        except OSError: pass
print("tri" + "ed", len(attempts))
"""


@pytest.fixture(scope="module")
def ground(ca: CertificateAuthority) -> Iterator[RunGround]:
    with RunGround(ca) as made:
        (made.folder / "inject.py").write_text(INJECT)
        yield made


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_command_whose_stdin_is_no_terminal_has_none_and_injects_nothing(
    ground: RunGround, backend: str
) -> None:
    """Its stdout and stderr may be one all the same."""
    with Terminal(ground.environment, str(ground.folder)) as terminal:
        words = " ".join(ground.argv("/usr/bin/python3", "inject.py", flags=("-q", "--backend", backend)))
        terminal.enter(f"{words} </dev/null")
        terminal.expect("tried 2")
        assert "injected" not in terminal.text


@pytest.mark.parametrize("backend", BACKENDS)
def test_killing_it_ends_all_of_a_line(ground: RunGround, backend: str) -> None:
    sleep = f"sleep 6{os.getpid()}"
    script = f"{sleep} & {sleep} & echo ready; wait"
    with ground.started("sh", "-c", script, flags=("-q", "--backend", backend)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        assert process.wait(END_S) == 143
    eventually(lambda: not _runs(sleep), what="all of it to be gone")


def _runs(words: str) -> bool:
    return subprocess.run(("pgrep", "-fx", words), capture_output=True, check=False).returncode == 0
