"""Stops all of a confined command for a while, as SIGSTOP does, and lets it go on where it was.

While a person is asked, it can neither draw over the question nor read the answer. Next: the cli's
ask_terminal.py (asks), delivery.py (other signals).
"""

import contextlib
import os
import signal
from collections.abc import Iterator

# Of a command that starts processes as fast as they are found. Each pass stops all that it finds, and what is
# stopped starts none.
_PASSES = 100


@contextlib.contextmanager
def standstill(runner_pid: int) -> Iterator[frozenset[int]]:
    """Gives the process groups of what was stopped. The runner itself goes on: on one rung it makes the
    command's connections, and it ends with us. What was stopped before stays so."""
    stopped: list[int] = []
    try:
        _stop_all(runner_pid, stopped)
        yield frozenset(filter(None, map(_group_of, stopped)))
    finally:
        # Children first: a shell that goes on sees none of its jobs as stopped.
        for pid in reversed(stopped):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def _stop_all(runner_pid: int, stopped: list[int]) -> None:
    seen: set[int] = set()
    for _ in range(_PASSES):
        fresh = [pid for pid in _descendants(runner_pid) if pid not in seen]
        if not fresh:
            return
        seen.update(fresh)
        for pid in fresh:  # parents first, as they come: they are not told of a stopped child then
            if _is_stopped(pid):
                continue
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                stopped.append(pid)


def _descendants(pid: int) -> Iterator[int]:
    """Parents before their children. What has lost its parent is the runner's or its reaper's child."""
    generation = [pid]
    while generation:
        generation = [child for parent in generation for child in _children(parent)]
        yield from generation


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):  # it has ended meanwhile
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as listed:
                found += map(int, listed.read().split())
    return found


def _is_stopped(pid: int) -> bool:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as stat:
        return stat.read().rpartition(b") ")[2][:1] == b"T"
    return False


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None
