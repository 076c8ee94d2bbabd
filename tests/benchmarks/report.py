"""What every benchmark hands back: text for a reader, numbers for a file. Measures nothing itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Report:
    text: str
    numbers: Mapping[str, object]  # json.dumps takes it as it is


class Benchmark(Protocol):
    """A module that __main__.py names has this function; ``argv`` is what is left of the command line."""

    def run(self, argv: Sequence[str], /) -> Report: ...


def table(rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they must be, the first one left and the others right; the first row is the head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join((first.ljust(widths[0]), *map(str.rjust, rest, widths[1:]))).rstrip()
        for first, *rest in rows
    ]
    return "\n".join((lines[0], "-" * len(lines[0]), *lines[1:]))
