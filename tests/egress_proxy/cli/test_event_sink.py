"""The order in which events are told, and what becomes of those that the file does not take."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import pytest

from egress_proxy.cli.event_sink import SAY_AGAIN_S, EventSink
from egress_proxy.core.access import Client
from egress_proxy.core.decision import Reason
from egress_proxy.core.events import Decided, Event, Granted, GrantEnded, Repeated, ServiceChanged
from egress_proxy.core.host import parse_authority
from egress_proxy.core.seams import AuditUnavailable
from egress_proxy.proxy.audit import AuditLog, OnError
from egress_proxy.proxy.repeats import SAME_BURST
from egress_proxy.proxy.sandbox_ledger import SandboxLedger, SandboxLedgers

FULL = Path("/dev/full")
ALLOWED = Decided("r-1", Client(), "p", None, "CONNECT", parse_authority("a.example:443"), 200)
REFUSED = Decided("r-2", Client(), "p", None, "CONNECT", None, 403, Reason.NOT_LISTED)
GRANTED = Granted("g-1", "a.example", None, None, None, "")
REVOKED = GrantEnded("g-1", "a.example", "revoked", 0)


class Sink:
    """A sink with what it has shown, and a clock that a test moves."""

    def __init__(self, path: Path, on_error: OnError) -> None:
        self.shown: list[Event] = []
        self.at = 1_800_000_000.0
        self.log = AuditLog(path, on_error, lambda: self.at)
        self.ledgers = SandboxLedgers()
        self.tell = EventSink(self.shown.append, self.ledgers, self.log, lambda: self.at)


async def test_what_is_refused_because_it_cannot_be_written_is_shown_to_nobody() -> None:
    sink = Sink(FULL, OnError.REFUSE)
    with pytest.raises(AuditUnavailable):
        sink.tell(ALLOWED, REFUSED, GRANTED, REVOKED)
    assert [one for one in sink.shown if not isinstance(one, ServiceChanged)] == [REFUSED, REVOKED]
    assert (sink.tell.lost.count, sink.tell.lost.since) == (2, sink.at)


async def test_lost_lines_are_said_at_once_and_not_for_each_of_them() -> None:
    sink = Sink(FULL, OnError.CONTINUE)
    for _ in range(5):
        sink.tell(ALLOWED)
        sink.tell()  # no lines: the file has taken nothing
    said = [one.change for one in sink.shown if isinstance(one, ServiceChanged)]
    assert (said, sink.shown[0]) == (["audit_lost"], sink.shown[0])
    assert isinstance(sink.shown[0], ServiceChanged)
    assert (sink.tell.lost.count, sink.tell.lost.is_losing) == (5, True)
    sink.at += SAY_AGAIN_S
    sink.tell(ALLOWED)
    said = [one.detail for one in sink.shown if isinstance(one, ServiceChanged)]
    assert len(said) == 2
    assert "6 lines since 2027-01-15" in said[1]


async def test_the_file_tells_of_its_gap_once_it_takes_lines_again(tmp_path: Path) -> None:
    sink = Sink(FULL, OnError.CONTINUE)
    sink.tell(ALLOWED)
    sink.log._path = tmp_path / "log"
    sink.log.reopen()
    sink.tell(REFUSED)
    sink.tell(REFUSED)
    lines = (tmp_path / "log").read_text().splitlines()
    assert ["audit_resumed" in line for line in lines] == [True, False, False]
    assert "1 line since" in lines[0]
    assert (sink.tell.lost.count, sink.tell.lost.is_losing) == (1, False)


async def test_a_flood_of_refusals_is_a_few_lines_and_a_count_and_a_ledger_has_all(
    tmp_path: Path,
) -> None:
    sink = Sink(tmp_path / "log", OnError.REFUSE)
    ledger = sink.ledgers.living["agent-1"] = SandboxLedger()
    refused = dataclasses.replace(REFUSED, client=Client("agent-1"), target=ALLOWED.target)
    for _ in range(500):
        sink.tell(refused)
    assert sink.tell.is_counting
    assert len((tmp_path / "log").read_bytes().splitlines()) == SAME_BURST
    sink.tell.finish()
    assert sink.shown[-1] == Repeated(refused.client, "", refused.target, Reason.NOT_LISTED, 500 - SAME_BURST)
    assert len((tmp_path / "log").read_bytes().splitlines()) == SAME_BURST + 1
    assert ledger.report().denied[0].times == 500


async def test_a_count_is_told_by_itself_within_a_second_or_so(tmp_path: Path) -> None:
    sink = Sink(tmp_path / "log", OnError.REFUSE)
    for _ in range(SAME_BURST + 1):
        sink.tell(REFUSED)
    async with asyncio.timeout(5):
        while not isinstance(sink.shown[-1], Repeated):
            await asyncio.sleep(0.05)


async def test_what_is_allowed_is_never_counted(tmp_path: Path) -> None:
    sink = Sink(tmp_path / "log", OnError.REFUSE)
    for _ in range(2 * SAME_BURST):
        sink.tell(ALLOWED)
    assert len((tmp_path / "log").read_bytes().splitlines()) == 2 * SAME_BURST
    assert not sink.tell.is_counting
