"""Counts: grades against labels. No I/O, no classifier, so that the counting can be tested by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.benchmarks.classifier.corpus import Grade, Line


@dataclass(frozen=True, slots=True)
class Graded:
    line: Line
    grade: Grade
    rules: tuple[str, ...]

    @property
    def is_right(self) -> bool:
        return self.grade in self.line.right


@dataclass(frozen=True, slots=True)
class Share:
    part: int
    whole: int

    @property
    def percent(self) -> float | None:
        return 100 * self.part / self.whole if self.whole else None

    def __str__(self) -> str:
        return "-" if self.percent is None else f"{self.percent:.1f}"


@dataclass(frozen=True, slots=True)
class Figures:
    """``critical``: of the lines where nothing but critical is right. ``critical_all``: of every line that
    expects it, where a right warning does not count. ``noticed``: warning or worse, of the lines where safe
    is wrong. The false ones: of everyday lines; a warning that the label lists as right is none."""

    right: Share
    critical: Share
    critical_all: Share
    noticed: Share
    false_critical: Share
    false_warning: Share


def share(graded: Sequence[Graded], among: Callable[[Line], bool], counts: Callable[[Graded], bool]) -> Share:
    those = [one for one in graded if among(one.line)]
    return Share(sum(map(counts, those)), len(those))


def figures(graded: Sequence[Graded]) -> Figures:
    def is_critical(one: Graded) -> bool:
        return one.grade == "critical"

    return Figures(
        right=share(graded, lambda _: True, lambda one: one.is_right),
        critical=share(graded, lambda line: line.must_be_critical, is_critical),
        critical_all=share(graded, lambda line: line.expect == "critical", is_critical),
        noticed=share(graded, lambda line: line.must_be_noticed, lambda one: one.grade != "safe"),
        false_critical=share(graded, lambda line: line.is_everyday, is_critical),
        false_warning=share(
            graded, lambda line: line.is_everyday, lambda one: one.grade == "warning" and not one.is_right
        ),
    )
