"""python -m tests.benchmarks classifier [--wrong]: grades of every labelled line, and times of long ones.

Beside them stand the bars of issue 5 and what the published classifier reached, as quoted there. Its rules
are not ours to run, and its figures are of a private set of lines: a comparison of sizes, not of decimals.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from typing import cast

from egress_proxy.safety.classify import classify_shell_command
from tests.benchmarks.classifier import timing
from tests.benchmarks.classifier.corpus import SOURCES, Grade, Line, corpus
from tests.benchmarks.classifier.figures import Figures, Graded, Share, figures
from tests.benchmarks.report import Report, table

HEAD = ("lines", "right", "critical", "of all", "noticed", "false critical", "false warning")
# Percent, in the order of HEAD; issue 5 quotes no more of the published one.
PUBLISHED = ("1469", "", "25.7", "", "", "6.4", "21.4")
BARS = ("", ">= 90 a group", ">= 98", "", ">= 98", "0", "<= 3")
PUBLISHED_100_KB_MS = 700
BAR_100_KB_MS = 50
LEGEND = """\
Percent. critical: of lines where only critical is right; of all: of every line that expects critical,
though its label may take a warning; noticed: warning or worse, of lines where safe is wrong; false: of
everyday lines."""


def grade(line: Line) -> Graded:
    result = classify_shell_command(line.command, line.platform)
    return Graded(line, cast(Grade, str(result.severity)), tuple(result.matched_rules))


def cells(figure: Figures) -> tuple[str, ...]:
    shares: list[Share] = [getattr(figure, field.name) for field in fields(figure)]
    return (str(figure.right.whole), *map(str, shares))


def grade_rows(graded: Sequence[Graded]) -> Iterator[tuple[str, ...]]:
    yield ("group", *HEAD)
    for group in sorted({one.line.group for one in graded}):
        yield (group, *cells(figures([one for one in graded if one.line.group == group])))
    for source in SOURCES:
        yield (f"ALL {source}", *cells(figures([one for one in graded if one.line.source == source])))
    yield ("ALL", *cells(figures(graded)))
    yield ("wanted", *BARS)
    yield ("published, private set", *PUBLISHED)


def time_rows(times: dict[str, dict[str, float]]) -> Iterator[tuple[str, ...]]:
    yield ("milliseconds", *timing.SIZES)
    for shape, taken in times.items():
        yield (shape, *(f"{ms:.1f}" for ms in taken.values()))
    yield ("wanted", *("" for _ in list(timing.SIZES)[1:]), f"< {BAR_100_KB_MS}")
    yield ("published", *("" for _ in list(timing.SIZES)[1:]), str(PUBLISHED_100_KB_MS))


def disagreements(graded: Sequence[Graded]) -> Iterator[str]:
    for one in graded:
        if not one.is_right:
            wanted = "/".join(sorted(one.line.right))
            rules = ",".join(one.rules) or "no rule"
            where = f"{one.line.source} {one.line.group}"
            yield f"{where}: {one.grade}, not {wanted} ({rules}): {one.line.command!r}"


def numbers(graded: Sequence[Graded], times: dict[str, dict[str, float]]) -> dict[str, object]:
    def of(some: Sequence[Graded]) -> dict[str, object]:
        return asdict(figures(some))

    return {
        "all": of(graded),
        "sources": {name: of([one for one in graded if one.line.source == name]) for name in SOURCES},
        "groups": {
            group: of([one for one in graded if one.line.group == group])
            for group in sorted({one.line.group for one in graded})
        },
        "milliseconds": times,
        "wrong": [
            {"cmd": one.line.command, "grade": one.grade, "right": sorted(one.line.right), "rules": one.rules}
            for one in graded
            if not one.is_right
        ],
    }


def run(argv: Sequence[str]) -> Report:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks classifier")
    parser.add_argument("--wrong", action="store_true", help="list every line whose grade is not right")
    options = parser.parse_args(argv)
    graded = [grade(line) for line in corpus()]
    times = dict(timing.measure(classify_shell_command))
    parts = [table(list(grade_rows(graded))), LEGEND, table(list(time_rows(times)))]
    if options.wrong:
        parts.append("\n".join(disagreements(graded)) or "every line is graded right")
    return Report("\n\n".join(parts), numbers(graded, times))
