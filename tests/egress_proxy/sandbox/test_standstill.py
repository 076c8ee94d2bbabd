"""All that a command has started stands still for a while, and goes on as it was."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from egress_proxy.sandbox.standstill import standstill
from tests.support.deadline import eventually

# A runner, its child with a child in a session of its own, and one that was stopped before.
TREE = "sh -c 'sleep 600 & setsid sleep 600 & sleep 600 & kill -STOP $!; echo ready; wait' & wait"


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


def below(pid: int) -> list[int]:
    found = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [*found, *(deeper for one in found for deeper in below(one))]


@pytest.fixture
def runner() -> Iterator[int]:
    with subprocess.Popen(("sh", "-c", TREE), stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        eventually(lambda: [state(pid) for pid in below(process.pid)].count("T") == 1, what="the stopped one")
        yield process.pid
        for pid in (*below(process.pid), process.pid):
            os.kill(pid, signal.SIGKILL)


def test_all_stand_still_but_the_runner_and_go_on_as_they_were(runner: int) -> None:
    pids = below(runner)
    before = {pid: state(pid) == "T" for pid in pids}
    assert len(pids) == 4
    with standstill(runner) as groups:
        eventually(lambda: {state(pid) for pid in pids} == {"T"}, what="all to stand still")
        assert state(runner) != "T"
        assert groups == {os.getpgid(pid) for pid in pids if not before[pid]}
    eventually(lambda: {pid: state(pid) == "T" for pid in pids} == before, what="them to go on as they were")


def test_they_go_on_when_the_question_fails(runner: int) -> None:
    with pytest.raises(TimeoutError), standstill(runner):
        raise TimeoutError
    eventually(lambda: [state(pid) for pid in below(runner)].count("T") == 1, what="them to go on")


def test_a_runner_that_has_gone_has_nothing_to_stop() -> None:
    process = subprocess.Popen(("true",))
    process.wait()
    with standstill(process.pid) as groups:
        assert groups == frozenset()
