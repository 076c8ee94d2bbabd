"""Signals for a confined command, which is not the process that was spawned: how they get to it.

Next: run_child.py of the cli (who forwards them), supervisor.py (forwards them itself).
"""

import contextlib
import os

from egress_proxy.sandbox import bwrap

# bwrap, then its reaper as pid 1 of the namespace, then the command.
_BWRAP_GENERATIONS = 2


def deliver(backend: str, runner_pid: int, number: int) -> bool:
    """Send a signal to the command behind a runner; False where there is none, not yet or no more.

    bwrap would die of it and take the command along without asking; the supervisor passes it on.
    """
    pid = runner_pid if backend != bwrap.NAME else _command_of(runner_pid)
    if pid is None:
        return False
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def deliver_from_terminal(backend: str, runner_pid: int, number: int) -> None:
    """For a command in a session of its own, whose runner is in the terminal's foreground group: to all of
    the command's group, as the terminal would do it. A shell waits for its child to obey."""
    if backend != bwrap.NAME:
        return  # the supervisor has been sent it as well, and does just that
    pid = _command_of(runner_pid)
    with contextlib.suppress(ProcessLookupError):
        if pid is not None and (group := os.getpgid(pid)) != os.getpgrp():
            os.killpg(group, number)


def _command_of(runner_pid: int) -> int | None:
    pid: int | None = runner_pid
    for _ in range(_BWRAP_GENERATIONS):
        pid = None if pid is None else _first_child(pid)
    return pid


def _first_child(pid: int) -> int | None:
    """The eldest: what has lost its parent inside becomes the reaper's child, but a later one."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as listed:
            words = listed.read().split()
    except OSError:
        return None
    return int(words[0]) if words else None
