"""What was measured, as numbers: one sample for each peer, case and round, and their medians. Pure.

Next: cases.py (makes samples), tables.py and goals.py (read medians).
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sample:
    """``figures`` by the names that cases.py gives; ``failed`` says why there are none."""

    round: int
    peer: str
    case: str
    figures: Mapping[str, float]
    failed: str = ""


class Medians:
    """The median over the rounds of each figure; a figure that no round has is None."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        found: dict[tuple[str, str, str], list[float]] = defaultdict(list)
        for sample in samples:
            for figure, value in sample.figures.items():
                found[sample.peer, sample.case, figure].append(value)
        self._medians = {key: statistics.median(values) for key, values in found.items()}

    def get(self, peer: str, case: str, figure: str) -> float | None:
        return self._medians.get((peer, case, figure))

    def ratio(self, peer: str, other: str, case: str, figure: str) -> float | None:
        """The first one's divided by the other's; None where either is missing or the other is nought."""
        mine, theirs = self.get(peer, case, figure), self.get(other, case, figure)
        return None if mine is None or not theirs else mine / theirs

    def peers(self, case: str) -> list[str]:
        """Who has a figure of this case, in the order in which they were seen first."""
        return list(dict.fromkeys(peer for peer, seen, _ in self._medians if seen == case))
