"""The command of `run` as a child: how it ended, what it said, and that signals for us reach it once.

Confined by real rungs, without a proxy; the whole verb is in end_to_end/test_run_*.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from egress_proxy.cli.run_child import Ended
from tests.support.program import REPOSITORY

BACKENDS = ["bwrap", "landlock"]
# A process of its own, whose streams and signals can be played with. Prints the tail of stderr at last.
START = """
import asyncio, sys
from egress_proxy.cli.run_child import run_child
from egress_proxy.sandbox.choose import choose
from egress_proxy.sandbox.confinement import Confinement
from egress_proxy.sandbox.spec import OpenNetwork, SandboxSpec
spec = SandboxSpec((), OpenNetwork(), cwd="/")
environ = {"PATH": "/usr/bin:/bin"}
chosen = choose(spec, "/usr/bin", backend=sys.argv[1])
async def main():
    with Confinement(chosen, spec, ("/bin/sh", "-c", sys.argv[2]), environ) as confinement:
        return await run_child(confinement, interactive=False)
print(asyncio.run(main()), flush=True)
"""


def start(backend: str, script: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        (sys.executable, "-c", START, backend, script),
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def ended(backend: str, script: str) -> tuple[str, str]:
    with start(backend, script) as process:
        out, err = process.communicate(timeout=30)
    return out, err


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_code_and_what_was_said_on_stderr_come_back(backend: str) -> None:
    out, err = ended(backend, "echo out; echo err >&2; exit 42")
    assert (out, err) == (f"out\n{Ended(42, b'err' + bytes([10]))}\n", "err\n")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["TERM", "HUP", "USR1", "USR2", "INT", "QUIT"])
def test_a_signal_for_us_is_the_commands(backend: str, name: str) -> None:
    script = f"trap 'echo caught; exit 7' {name}; echo ready; while :; do sleep 0.05; done"
    with start(backend, script) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(getattr(signal, f"SIG{name}"))
        out, _ = process.communicate(timeout=30)
    assert out == f"caught\n{Ended(7, b'')}\n"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_signal_for_the_whole_group_does_not_take_the_runner(backend: str) -> None:
    """As timeout(1) sends it, and a terminal; bwrap would die of it, and the command with bwrap."""
    script = "trap 'echo caught; exit 7' TERM; echo ready; while :; do sleep 0.05; done"
    with start(backend, script) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGTERM)
        out, _ = process.communicate(timeout=30)
    assert out == f"caught\n{Ended(7, b'')}\n"


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_command_starts_with_no_signal_blocked_or_ignored(backend: str) -> None:
    out, _ = ended(backend, "grep -E 'Sig(Blk|Ign)' /proc/self/status")
    assert out.split()[:4] == ["SigBlk:", "0" * 16, "SigIgn:", "0" * 16]
