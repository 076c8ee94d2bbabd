"""Grants that ended are written down, all of them, without holding up the loop."""

from __future__ import annotations

import asyncio

from egress_proxy.core.events import Event, GrantEnded
from egress_proxy.core.seams import AuditUnavailable
from egress_proxy.proxy.ended_grants import BATCH, EndedGrants
from tests.egress_proxy.core.entries import grant

MANY = [grant(f"g{number}", f"h{number}.example") for number in range(10 * BATCH + 1)]


class Written:
    def __init__(self) -> None:
        self.batches: list[tuple[Event, ...]] = []
        self.is_full = False

    def __call__(self, *events: Event) -> None:
        self.batches.append(events)
        if self.is_full:
            raise AuditUnavailable("the disk is full")

    @property
    def ids(self) -> list[str]:
        return [event.grant for batch in self.batches for event in batch if isinstance(event, GrantEnded)]


async def test_a_few_are_written_down_at_once() -> None:
    written = Written()
    EndedGrants(written).tell(MANY[:2], "ended", {"g1": 3})
    assert written.batches == [
        (GrantEnded("g0", "h0.example", "ended", 0), GrantEnded("g1", "h1.example", "ended", 3))
    ]


async def test_thousands_are_written_down_over_many_turns_of_the_loop() -> None:
    written = Written()
    ended = EndedGrants(written)
    ended.tell(MANY[:-1], "ended")
    ended.tell(MANY[-1:], "revoked")
    assert len(written.ids) == BATCH
    while len(written.ids) < len(MANY):
        before = len(written.ids)
        await asyncio.sleep(0)
        assert before < len(written.ids) <= before + BATCH
    assert written.ids == [one.id for one in MANY]


async def test_what_is_left_at_the_end_of_the_service_is_written_down_then() -> None:
    written = Written()
    ended = EndedGrants(written)
    ended.tell(MANY, "ended")
    ended.finish()
    assert written.ids == [one.id for one in MANY]
    await asyncio.sleep(0)
    assert len(written.ids) == len(MANY)


async def test_a_log_that_cannot_be_written_stops_nothing() -> None:
    written = Written()
    written.is_full = True
    ended = EndedGrants(written)
    ended.tell(MANY, "ended")
    ended.finish()
    assert len(written.ids) == len(MANY)
