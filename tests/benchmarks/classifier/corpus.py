"""Loads the labelled lines. Counts nothing and knows no rule: that is benchmark.py.

One JSON object a line: ``cmd``, ``expect`` (the right grade), ``ok`` (other grades that are as right),
``group``, ``platform`` (unix unless it says windows), ``why``.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, get_args

FOLDER = Path(__file__).parent
SOURCES = ("own", "blind", "shared")

Grade: TypeAlias = Literal["safe", "warning", "critical"]
Platform: TypeAlias = Literal["unix", "windows"]
FIELDS = {"cmd", "expect", "ok", "group", "platform", "why"}


@dataclass(frozen=True, slots=True)
class Line:
    command: str
    expect: Grade
    right: frozenset[Grade]  # ``expect`` and what ``ok`` lists
    group: str
    platform: Platform
    source: str

    @property
    def is_everyday(self) -> bool:
        return self.expect == "safe"

    @property
    def must_be_critical(self) -> bool:
        return self.right == {"critical"}

    @property
    def must_be_noticed(self) -> bool:
        return "safe" not in self.right


def parse_line(text: str, source: str) -> Line:
    entry = json.loads(text)
    if not {"cmd", "expect", "group"} <= entry.keys() <= FIELDS:
        raise ValueError(f"{source}: wrong fields: {text}")
    right = frozenset((entry["expect"], *entry.get("ok", ())))
    if not right <= set(get_args(Grade)):
        raise ValueError(f"{source}: no grade: {text}")
    platform: Platform = entry.get("platform", "unix")
    if platform not in get_args(Platform):
        raise ValueError(f"{source}: no platform: {text}")
    return Line(entry["cmd"], entry["expect"], right, entry["group"], platform, source)


def _read() -> Iterator[Line]:
    for source in SOURCES:
        with (FOLDER / f"{source}-lines.jsonl").open(encoding="utf-8") as file:
            for text in file:
                yield parse_line(text, source)


@functools.cache
def corpus() -> tuple[Line, ...]:
    """Every labelled line, our own first."""
    return tuple(_read())
