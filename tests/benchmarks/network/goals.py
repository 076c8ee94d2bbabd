"""What the project wants of these figures, and whether a run reached it. Pure; asserts nothing.

A goal is a ratio to a peer of the same run, or a plain bound. Figures: cases.py. Next: tables.py.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from tests.benchmarks.network.peers import OURS
from tests.benchmarks.network.samples import Medians


class Verdict(enum.StrEnum):
    REACHED = "reached"
    MISSED = "not reached"
    UNKNOWN = "not measured"


@dataclass(frozen=True, slots=True)
class Goal:
    """``figure`` of ``case``: ours by ``peer``'s (or ours alone) is ``bound`` at most, or at least."""

    says: str
    case: str
    figure: str
    peer: str | None
    bound: float
    at_least: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """``value`` is what the bound is compared with: a ratio where the goal names a peer."""

    goal: Goal
    ours: float | None
    theirs: float | None
    value: float | None

    @property
    def verdict(self) -> Verdict:
        if self.value is None:
            return Verdict.UNKNOWN
        is_good = self.value >= self.goal.bound if self.goal.at_least else self.value <= self.goal.bound
        return Verdict.REACHED if is_good else Verdict.MISSED


def _bulk() -> Iterator[Goal]:
    for way in ("down", "up"):
        for count in (1, 16):
            for peer, bound in (("squid", 0.6), ("smokescreen", 1.0)):
                yield Goal(f"CPU s/GB, {count} {way}", f"B{way}{count}", "cpu_s_per_gb", peer, bound)
        yield Goal(f"MB/s, 16 {way}", f"B{way}16", "mb_per_s", "squid", 1.5, at_least=True)


GOALS = (
    Goal("CPU µs per CONNECT, 64 in flight", "A64", "cpu_us", "squid", 0.75),
    Goal("CPU µs per CONNECT, 64 in flight", "A64", "cpu_us", "smokescreen", 0.45),
    Goal("CPU µs per CONNECT, 64 in flight", "A64", "cpu_us", "tinyproxy", 1.15),
    *_bulk(),
    Goal("CPU µs per 100-byte round trip, 64 tunnels", "C64", "cpu_us", "squid", 1.1),
    Goal("KiB per idle tunnel, 5,000 open", "D5000", "kib", None, 2.0),
    Goal("CPU µs per injected request, 16 clients", "E16", "cpu_us", "nginx", 2.0),
    Goal("CPU µs per injected request, 16 clients", "E16", "cpu_us", "envoy", 0.6),
    Goal("delay of an event, 1 stream, p50 µs", "Estream1", "p50_us", "nginx", 1.5),
    Goal("delay of an event, 32 streams, p50 µs", "Estream32", "p50_us", "nginx", 1.5),
    Goal("events held back until the next, of 200", "Estream1", "held", None, 0),
    Goal("round trip beside 32 downloads, p50 ms", "F32", "p50_ms", None, 2.0),
)


def outcomes(medians: Medians) -> list[Outcome]:
    return [_outcome(goal, medians) for goal in GOALS]


def _outcome(goal: Goal, medians: Medians) -> Outcome:
    ours = medians.get(OURS, goal.case, goal.figure)
    if goal.peer is None:
        return Outcome(goal, ours, None, ours)
    theirs = medians.get(goal.peer, goal.case, goal.figure)
    return Outcome(goal, ours, theirs, medians.ratio(OURS, goal.peer, goal.case, goal.figure))
