"""What a service holds: descriptors by kind, open tunnels, and what it complained of. Read from outside.

Next: check.py and tests/end_to_end/test_endurance.py, which compare before and after.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass

from tests.benchmarks.endurance.killing import WORKERS
from tests.support import proc_figures
from tests.support.deadline import eventually
from tests.support.service import Service

_SETTLE_S = 10.0
# What asyncio says of a task that nobody awaited.
_ORPHANS = ("Task was destroyed", "was never retrieved", "was never awaited")


# Two directions, two ends each; and a tunnel may outlive its client by a moment.
KEPT_PIPE_ENDS = 2 * 2 * 2 * WORKERS


@dataclass(frozen=True, slots=True)
class Held:
    """``pipes``: their ends, None for a caller who may see no more than how many descriptors there are."""

    tunnels: int
    pipes: int | None
    others: int

    def left(self, before: Held) -> list[str]:
        """What is there now and was not ``before``. Pipes stay for the next bulk, as many as it needed."""
        faults = []
        if self.tunnels != before.tunnels:
            faults.append(f"{self.tunnels} tunnels, before {before.tunnels}")
        unseen = KEPT_PIPE_ENDS if self.pipes is None else 0
        if self.others > before.others + unseen:
            faults.append(f"{self.others} descriptors that are no pipes, before {before.others}")
        if (self.pipes or 0) > KEPT_PIPE_ENDS:
            faults.append(f"{self.pipes} ends of pipes, at most {KEPT_PIPE_ENDS} may be kept")
        return faults


def held(service: Service) -> Held:
    """Descriptors first: the question to the control API opens one, and it closes when it pleases."""
    descriptors, pipes = proc_figures.open_descriptors(service.pid), _pipes(service.pid)
    status = service.control("GET", "/status").json()
    return Held(status["tunnels"]["open"], pipes, descriptors - (pipes or 0))


def _pipes(pid: int) -> int | None:
    folder, count = f"/proc/{pid}/fd", 0
    try:
        for number in os.listdir(folder):
            with suppress(FileNotFoundError):
                count += os.readlink(f"{folder}/{number}").startswith("pipe:")
    except PermissionError:  # it is not dumpable, and we are not root
        return None
    return count


def held_at_rest(service: Service, before: Held) -> Held:
    """What is held once nothing is left, or after a while what still is."""
    seen = held(service)

    def is_clean() -> bool:
        nonlocal seen
        seen = held(service)
        return not seen.left(before)

    with suppress(TimeoutError):
        eventually(is_clean, _SETTLE_S)
    return seen


def orphans(service: Service) -> list[str]:
    """Lines of the service's log that tell of a task without an owner."""
    return [line for line in service.stderr.text.splitlines() if any(mark in line for mark in _ORPHANS)]
