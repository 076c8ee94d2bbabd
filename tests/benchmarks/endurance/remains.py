"""What a service holds: descriptors by kind, open tunnels, and what it complained of. Read from outside.

Next: check.py and tests/end_to_end/test_endurance.py, which compare before and after.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tests.benchmarks.endurance.leaving import WORKERS
from tests.support import proc_figures
from tests.support.deadline import eventually
from tests.support.service import Service

AUDIT_FILE = "audit.jsonl"  # in the service's folder
_SETTLE_S = 10.0
_SHOWN_FAULTS = 3
# What asyncio says of a task that nobody awaited, and of a callback that raised.
_ORPHANS = ("Task was destroyed", "was never retrieved", "was never awaited", "Exception in callback")


# Two directions, two ends each; and a tunnel may outlive its client by a moment.
KEPT_PIPE_ENDS = 2 * 2 * 2 * WORKERS


@dataclass(frozen=True, slots=True)
class Held:
    """``pipes``: their ends, None for a caller who may see no more than how many descriptors there are."""

    tunnels: int
    pipes: int | None
    others: int

    def left(self, before: Held, kept_pipe_ends: int = KEPT_PIPE_ENDS) -> list[str]:
        """What is there now and was not ``before``. Pipes stay for the next bulk, as many as it needed."""
        faults = []
        if self.tunnels != before.tunnels:
            faults.append(f"{self.tunnels} tunnels, before {before.tunnels}")
        unseen = kept_pipe_ends if self.pipes is None else 0
        if self.others > before.others + unseen:
            faults.append(f"{self.others} descriptors that are no pipes, before {before.others}")
        most_pipes = max(before.pipes or 0, kept_pipe_ends)
        if (self.pipes or 0) > most_pipes:
            faults.append(f"{self.pipes} ends of pipes, at most {most_pipes} may be kept")
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


def held_at_rest(service: Service, before: Held, kept_pipe_ends: int = KEPT_PIPE_ENDS) -> Held:
    """What is held once nothing is left, or after a while what still is."""
    seen = held(service)

    def is_clean() -> bool:
        nonlocal seen
        seen = held(service)
        return not seen.left(before, kept_pipe_ends)

    with suppress(TimeoutError):
        eventually(is_clean, _SETTLE_S)
    return seen


def complaints(service: Service) -> list[str]:
    """Lines that tell of a task without an owner, or of a fault of the service's own."""
    lines = service.stderr.text.splitlines()
    found = [line for line in lines if any(mark in line for mark in _ORPHANS)]
    return found + [str(event) for event in _audited(service) if event["kind"] == "fault"]


def unpaired(service: Service) -> list[str]:
    """Of all that was allowed, what did not end exactly once. To be asked at rest."""
    begun: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    for event in _audited(service):
        match event:
            case {"kind": "end", "request_id": number}:
                ended[number] += 1
            case {"verdict": "allow", "request_id": number}:
                begun[number] += 1
    odd = [number for number in begun | ended if begun[number] != ended[number]]
    return [f"{len(odd)} allowed requests did not end once each, for example {odd[:3]}"] if odd else []


def audit_faults(service: Service, reloads: int) -> list[str]:
    """What the audit file should not say, or does not: to be asked at rest.

    Its chain is whole, every allowed decision has one end line, every reload is told of and was good.
    """
    begun: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    faults, reloaded, previous = [], 0, "0" * 64
    with (service.folder / AUDIT_FILE).open("rb") as lines:
        for at, line in enumerate(lines):
            event = json.loads(line)
            if (event["seq"], event["prev"]) != (at, previous):
                faults.append(f"the chain of the audit file is broken at line {at + 1}")
            previous = hashlib.sha256(line.rstrip(b"\n")).hexdigest()
            match event:
                case {"kind": "end", "request_id": number}:
                    ended[number] += 1
                case {"verdict": "allow", "request_id": number}:
                    begun[number] += 1
                case {"kind": "reload", "error": ""}:
                    reloaded += 1
                case {"kind": "reload", "error": error}:
                    faults.append(f"a reload failed: {error}")
    if reloaded != reloads:
        faults.append(f"{reloaded} reloads in the audit file, {reloads} were asked for")
    odd = [number for number in begun | ended if begun[number] != 1 or ended[number] != 1]
    if odd:
        faults.append(f"{len(odd)} of {len(begun)} allowed requests have not one end line: {odd[:3]}")
    return faults


def _audited(service: Service) -> Iterator[dict[str, Any]]:
    with (service.folder / AUDIT_FILE).open() as lines:
        yield from map(json.loads, lines)


def shown(faults: list[str]) -> list[str]:
    """The first few of many that are alike."""
    more = len(faults) - _SHOWN_FAULTS
    return [*faults[:_SHOWN_FAULTS], *([f"and {more} more like these"] if more > 0 else [])]
