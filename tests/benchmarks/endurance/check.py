"""python -m tests.benchmarks --check: counts that must hold over some minutes of work. Prints what it saw.

Ends with code 1 when one does not. The short form, with the same bounds: tests/end_to_end/test_endurance.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.benchmarks.endurance.killing import kill_peers
from tests.benchmarks.endurance.many_connections import open_many
from tests.benchmarks.endurance.remains import held, held_at_rest, orphans
from tests.benchmarks.endurance.transfer import move
from tests.benchmarks.report import Report
from tests.support.service import TOKEN, Service

MIB = 1_048_576
LONG_BYTES, TUNNELS = 4096 * MIB, 16
LONG_CONNECTIONS = 200_000
LONG_KILLING_S = 60
WRONG = "  WRONG: "


@contextmanager
def endured_service(*flags: str, entries: tuple[str, ...] = ("--allow", "127.0.0.1:*")) -> Iterator[Service]:
    """With everything on, and quiet: a log of very many decisions on stderr is not what is tested."""
    args = (*entries, "--quiet", "--audit", "audit.jsonl", *flags)
    with Service(*args, token=TOKEN) as service:
        yield service


def check_transfer(
    service: Service, total_bytes: int, grant_bytes: int | None = None
) -> tuple[str, list[str]]:
    """Each check: what was seen, and what is wrong with it."""
    moved = move(service, total_bytes, TUNNELS, grant_bytes)
    return f"{moved.moved_bytes / MIB:,.0f} MiB through {moved.tunnels} tunnels", moved.faults(total_bytes)


def check_memory(service: Service, connections: int) -> tuple[str, list[str]]:
    growth = open_many(service, connections)
    seen = (
        f"{connections:,} connections: {growth.quarter_bytes / MIB:.1f} MiB resident after a quarter, "
        f"{growth.whole_bytes / MIB:.1f} after all"
    )
    return seen, growth.faults()


def check_killing(service: Service, duration_s: float) -> tuple[str, list[str]]:
    before = held(service)
    done = kill_peers(service, duration_s)
    after = held_at_rest(service, before)
    seen = f"{done.total():,} connections killed in {len(done)} ways: held before {before}, after {after}"
    return seen, [*after.left(before), *orphans(service)]


def run() -> Report:
    lines: list[str] = []
    with endured_service() as service:
        for check, amount in (
            (check_transfer, LONG_BYTES),
            (check_memory, LONG_CONNECTIONS),
            (check_killing, LONG_KILLING_S),
        ):
            seen, faults = check(service, amount)
            lines += [seen, *(f"{WRONG}{fault}" for fault in faults)]
    text = "\n".join(lines)
    if WRONG in text:
        raise SystemExit(text)
    return Report(f"{text}\nall counts hold", {"seen": lines})
