"""A signal for a confined command reaches the command, and leaves its runner to tell how it ended."""

import signal
import subprocess

import pytest

from egress_proxy.sandbox.choose import choose
from egress_proxy.sandbox.confinement import Confinement
from egress_proxy.sandbox.delivery import deliver
from tests.support.confined import ENVIRONMENT, SEARCH_PATH, shell, spec_for
from tests.support.deadline import DEFAULT_S

SCRIPT = "trap 'echo caught; exit 7' TERM; echo ready; while :; do read line; done"


@pytest.mark.parametrize("backend", ["bwrap", "landlock"])
def test_the_command_may_answer_it(backend: str) -> None:
    spec = spec_for()
    chosen = choose(spec, SEARCH_PATH, backend=backend)
    with Confinement(chosen, spec, shell(SCRIPT), ENVIRONMENT) as confinement:
        with subprocess.Popen(
            confinement.argv,
            env=confinement.env,
            pass_fds=confinement.pass_fds,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            confinement.started()
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            deliver(backend, process.pid, signal.SIGTERM)
            assert process.stdin is not None
            process.stdin.write("\n")  # the trap runs when `read` returns
            out, _ = process.communicate(timeout=DEFAULT_S)
        assert (process.returncode, out) == (7, "caught\n")
        deliver(backend, process.pid, signal.SIGTERM)  # to nobody any more
