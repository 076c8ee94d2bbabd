"""A signal for a confined command reaches the command, and leaves its runner to tell how it ended."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from egress_proxy.sandbox.choose import choose
from egress_proxy.sandbox.confinement import Confinement
from egress_proxy.sandbox.delivery import deliver, deliver_from_terminal
from tests.support.confined import ENVIRONMENT, SEARCH_PATH, shell, spec_for
from tests.support.deadline import DEFAULT_S

FOREVER = "while :; do read line; done"
CATCHES = f"trap 'echo caught; exit 7' TERM; echo ready; {FOREVER}"
# A shell that waits for its child, which alone is told when only the shell gets the signal.
INNER = f"trap 'echo child; exit' INT; echo ready; {FOREVER}"
WAITS = f'trap : INT; /bin/sh -c "{INNER}"; echo shell'


@contextmanager
def spawned(backend: str, script: str) -> Iterator[subprocess.Popen[str]]:
    spec = spec_for()
    chosen = choose(spec, SEARCH_PATH, backend=backend)
    with (
        Confinement(chosen, spec, shell(script), ENVIRONMENT) as confinement,
        subprocess.Popen(
            confinement.argv,
            env=confinement.env,
            pass_fds=confinement.pass_fds,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as process,
    ):
        confinement.started()
        try:
            yield process
        finally:
            process.kill()


def ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"


@pytest.mark.parametrize("backend", ["bwrap", "landlock"])
def test_the_command_may_answer_it(backend: str) -> None:
    with spawned(backend, CATCHES) as process:
        ready(process)
        assert deliver(backend, process.pid, signal.SIGTERM)
        out, _ = process.communicate("\n", timeout=DEFAULT_S)  # the trap runs when `read` returns
    assert (process.returncode, out) == (7, "caught\n")
    assert not deliver(backend, process.pid, signal.SIGTERM)  # to nobody any more


@pytest.mark.parametrize("backend", ["bwrap", "landlock"])
def test_what_has_lost_its_parent_inside_is_not_the_command(backend: str) -> None:
    """In bwrap it becomes a child of the reaper, beside the command."""
    script = (
        f"( ( trap 'echo wrong' USR1; sleep 60 ) & ); trap 'echo right; exit 5' USR1; echo ready; {FOREVER}"
    )
    with spawned(backend, script) as process:
        ready(process)
        assert deliver(backend, process.pid, signal.SIGUSR1)
        out, _ = process.communicate("\n", timeout=DEFAULT_S)
    assert (process.returncode, out) == (5, "right\n")


def test_there_is_nobody_until_bwrap_has_started_the_command() -> None:
    with subprocess.Popen(("/bin/cat",), stdin=subprocess.PIPE) as childless:
        assert not deliver("bwrap", childless.pid, signal.SIGTERM)
        childless.communicate()
    assert childless.returncode == 0


def test_a_key_is_for_all_of_the_commands_group_and_not_for_ours() -> None:
    with spawned("bwrap", WAITS) as process:
        ready(process)
        deliver_from_terminal("bwrap", process.pid, signal.SIGINT)
        out, _ = process.communicate("\n", timeout=DEFAULT_S)
    assert (process.returncode, out) == (0, "child\nshell\n")
    deliver_from_terminal("bwrap", process.pid, signal.SIGINT)  # to nobody any more


def test_the_supervisor_has_been_sent_a_key_by_the_terminal_itself() -> None:
    """So that the command hears of it once."""
    script = "trap 'echo caught' INT; /bin/sh -c 'echo ready; read line; exit 4'; echo $?"
    with spawned("landlock", script) as process:
        ready(process)
        deliver_from_terminal("landlock", process.pid, signal.SIGINT)
        out, _ = process.communicate("\n", timeout=DEFAULT_S)
    assert out == "4\n"
