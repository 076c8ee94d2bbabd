"""Where the ways of one input do not agree, in one line; and the shortest input that shows it.

Plays nothing itself. Next: ways.py (what is seen), fuzz_ways.py (searches), test_ways.py (the seeds).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from tests.fuzz.ways import Seen, Way

_STATUS = re.compile(rb"(?<=HTTP/1.1 )\d{3}(?= )")
_REASON = re.compile(rb'(?<="reason": )"[^"]*"')
_MOST_TRIES = 400


def difference(seen: Mapping[Way, Seen]) -> str | None:
    """What differs between the ways, or what none of them may come to; None where all is well."""
    told: dict[str, list[Way]] = {}
    for way, one in seen.items():
        told.setdefault(_told(one), []).append(way)
    if len(told) > 1:
        return "; ".join(f"{', '.join(told[words])}: {words}" for words in sorted(told))
    first = next(iter(seen.values()))
    for way, one in seen.items():
        for part in Seen.__slots__:
            if getattr(one, part) != getattr(first, part):
                return f"{way}: {part} {getattr(one, part)!r}, elsewhere {getattr(first, part)!r}"
    return "; ".join(_wrong(first)) or None


def shortened(data: bytes, kind: Callable[[bytes], str | None]) -> bytes:
    """A part of ``data`` of the same kind, from which no stretch can be taken without changing that."""
    wanted, tries, size = kind(data), _MOST_TRIES, max(1, len(data) // 2)
    while size:
        at = 0
        while at < len(data) and tries:
            tries -= 1
            shorter = data[:at] + data[at + size :]
            if shorter and kind(shorter) == wanted:
                data = shorter
            else:
                at += size
        size //= 2
    return data


def _wrong(seen: Seen) -> list[str]:
    allowed = sum(line.startswith("allow ") for line in seen.lines)
    ended = sum(line.startswith("end ") for line in seen.lines)
    wrong = [f"{allowed} allowed, {ended} ended"] if allowed != ended else []
    return [*wrong, *seen.faults]


def _told(seen: Seen) -> str:
    """How a client and a reader of the log would put it, without what is the input's own."""
    statuses = [status.decode() for status in _STATUS.findall(seen.answer)]
    reasons = [reason.decode() for reason in _REASON.findall(seen.answer)]
    verdicts = [line.split()[0] for line in seen.lines]
    unsaid = [line for line in seen.lines if line.startswith("deny") and not statuses]
    return " ".join([*(statuses or ["silence"]), *reasons, f"[{seen.end}]", *verdicts, *unsaid])
