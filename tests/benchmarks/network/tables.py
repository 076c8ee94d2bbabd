"""The figures as rows of text: a table for each case, and the goals. Pure; neither prints nor writes.

Next: publish.py (the README's table of goals), ../report.py (how rows become a table).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.benchmarks.network.goals import Outcome
from tests.benchmarks.network.peers import NO_PROXY, OURS
from tests.benchmarks.network.samples import Medians, Sample
from tests.benchmarks.report import table

Row = tuple[str, ...]
NOTHING = "–"


@dataclass(frozen=True, slots=True)
class Column:
    head: str
    case: str
    figure: str
    digits: int = 0


def _columns(cases: Sequence[tuple[str, str]], figures: Sequence[tuple[str, str, int]]) -> tuple[Column, ...]:
    """Of each (case, what it is called) each (figure, what it is called, digits)."""
    return tuple(
        Column(f"{called}{head}", case, figure, digits)
        for case, called in cases
        for figure, head, digits in figures
    )


_SPENT = (("cpu_us", "CPU µs", 1), ("p50_us", "p50 µs", 0), ("p99_us", "p99 µs", 0))
TABLES = {
    "A. tunnel set-up, by how many are in flight; the last with a ClientHello": _columns(
        (("A1", "1: "), ("A64", "64: "), ("A64tls", "64, TLS: ")), (*_SPENT[:2], ("per_s", "a second", 0))
    ),
    "B. bulk, by how many tunnels and which way": _columns(
        (("Bdown1", "1 down: "), ("Bdown16", "16 down: "), ("Bup1", "1 up: "), ("Bup16", "16 up: ")),
        (("cpu_s_per_gb", "CPU s/GB", 2), ("mb_per_s", "MB/s", 0)),
    ),
    "C. round trips of 100 bytes, by how many tunnels": _columns((("C1", "1: "), ("C64", "64: ")), _SPENT),
    "D. memory of an idle tunnel, and a new CONNECT meanwhile": (
        Column("at start MiB", "D1000", "start_mib", 1),
        *_columns((("D1000", "1,000: "), ("D5000", "5,000: ")), (("kib", "KiB each", 2), *_SPENT)),
    ),
    "E. requests that get a credential, by how many clients": _columns(
        (("E1", "1: "), ("E16", "16: ")), _SPENT
    ),
    "E. event streams, by how many; held: came when the next was due, of 200": (
        *_columns((("Estream1", "1: "),), (*_SPENT[1:], ("held", "held", 0))),
        *_columns((("Estream32", "32: "),), _SPENT),
    ),
    "F. a round trip of 100 bytes beside 32 downloads": _columns(
        (("F32", ""),), (("p50_ms", "p50 ms", 2), ("p99_ms", "p99 ms", 2))
    ),
}


def cell(value: float | None, digits: int = 0) -> str:
    return NOTHING if value is None else f"{value:,.{digits}f}"


def number(value: float) -> str:
    """Three digits that count, as a person writes them."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def rows(columns: Sequence[Column], medians: Medians) -> Iterator[Row]:
    """The head and a row for each peer that has any of it: the cheapest first, no proxy on top."""
    yield ("", *(column.head for column in columns))
    first = columns[0]
    peers = dict.fromkeys(peer for column in columns for peer in medians.peers(column.case))

    def place(peer: str) -> tuple[bool, float]:
        value = medians.get(peer, first.case, first.figure)
        return peer != NO_PROXY, float("inf") if value is None else value

    for peer in sorted(peers, key=place):
        yield (peer, *(cell(medians.get(peer, c.case, c.figure), c.digits) for c in columns))


def goal_rows(outcomes: Sequence[Outcome]) -> Iterator[Row]:
    yield ("measure", OURS, "beside", "theirs", "ratio", "goal", "")
    for outcome in outcomes:
        goal = outcome.goal
        sign = ">=" if goal.at_least else "<="
        unit = "" if goal.peer is None else " x"
        yield (
            f"{goal.case[0]}. {goal.says}",
            _number(outcome.ours),
            goal.peer or NOTHING,
            _number(outcome.theirs),
            cell(outcome.value, 2) if goal.peer else NOTHING,
            f"{sign} {goal.bound:g}{unit}",
            str(outcome.verdict),
        )


def _number(value: float | None) -> str:
    return NOTHING if value is None else number(value)


def failures(samples: Sequence[Sample]) -> Iterator[str]:
    """What went wrong, so that a figure is not read without it."""
    for sample in samples:
        if sample.failed:
            yield f"round {sample.round}, {sample.peer}: {sample.failed}"
        for name in ("errors", "missing"):
            if sample.figures.get(name):
                yield f"round {sample.round}, {sample.peer}, {sample.case}: {sample.figures[name]:.0f} {name}"


def text(samples: Sequence[Sample], outcomes: Sequence[Outcome]) -> str:
    """All of it, for a terminal."""
    medians = Medians(samples)
    parts = [
        f"{title}\n{table(found)}"
        for title, columns in TABLES.items()
        if len(found := list(rows(columns, medians))) > 1
    ]
    parts.append(
        f"Goals, everything on: list, server names, audit, limits\n{table(list(goal_rows(outcomes)))}"
    )
    parts += ["\n".join(("Not as it should be:", *wrong))] if (wrong := list(failures(samples))) else []
    return "\n\n".join(parts)


def markdown(head_and_rows: Sequence[Row]) -> str:
    """The first column left, the others right."""
    head, *rest = head_and_rows
    lines = [f"| {' | '.join(row)} |" for row in rest]
    return "\n".join((f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}", *lines))
