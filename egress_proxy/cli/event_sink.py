"""Where every event goes: the audit file first, then stderr and the ledgers of sandboxes, which quote it.

Nothing may be told as allowed that is refused because it could not be written down. Lines that are lost are
counted and said, and so are refusals in a flood. Next: proxy/audit.py (the file), proxy/repeats.py (floods),
logs.py (stderr), control_api/routes.py (/status).
"""

import asyncio
import contextlib
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from egress_proxy.core.events import Decided, Event, Granted, ServiceChanged
from egress_proxy.core.seams import AuditUnavailable, Now
from egress_proxy.core.timestamp import timestamp
from egress_proxy.proxy.audit import AuditLog
from egress_proxy.proxy.repeats import Repeats
from egress_proxy.proxy.sandbox_ledger import SandboxLedgers

# While lines are being lost, stderr says so again after this many seconds: not for each line.
SAY_AGAIN_S = 60.0
# How often a flood of refusals is told of.
REPEATS_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class LostLines:
    """What the audit file lacks since the start. ``since``: seconds since the epoch of the first one."""

    count: int = 0
    since: float | None = None
    is_losing: bool = False


class EventSink:
    """An Audit that never shows what the file could have refused. ``log`` is None without an audit file."""

    def __init__(
        self, show: Callable[[Event], None], ledgers: SandboxLedgers, log: AuditLog | None, now: Now
    ) -> None:
        """Made in the loop that it is called in."""
        self._loop = asyncio.get_running_loop()
        self._repeats = Repeats()
        self._repeats_due: asyncio.TimerHandle | None = None
        self._counted_at_s = -math.inf
        self._show = show
        self._ledgers = ledgers
        self._living = ledgers.living
        self._log = log
        self._now = now
        self._said_at = 0.0
        self.lost = LostLines()

    @property
    def is_counting(self) -> bool:
        """Whether refusals come so fast just now that they are counted instead of written one by one."""
        return self._loop.time() - self._counted_at_s < 2 * REPEATS_EVERY_S

    def __call__(self, *events: Event) -> None:
        lines = [event for event in events if not _is_refusal(event) or self._has_its_own_line(event)]
        if self._log is None or not lines:  # nothing written proves nothing
            self._tell(lines, events)
            return
        try:
            # The file tells of its own gap, where it ends.
            written = self._log.write(*self._end_of_loss(), *lines)
        except AuditUnavailable:
            happened = [event for event in lines if not _permits(event)]
            self._note_lost(len(happened))
            self._tell(happened, [event for event in events if not _permits(event)])
            raise
        if not written:
            self._note_lost(len(lines))
        elif self.lost.is_losing:
            for event in self._end_of_loss():
                self._show(event)
            self.lost = LostLines(self.lost.count, self.lost.since)
        self._tell(lines, events)

    def finish(self) -> None:
        """Write down what was counted and is not told yet."""
        if self._repeats_due is not None:
            self._repeats_due.cancel()
            self._repeats_due = None
        counted = self._repeats.take(self._loop.time())
        if counted:
            with contextlib.suppress(AuditUnavailable):  # they were refused; that a line is lost was noted
                self(*counted)

    def _has_its_own_line(self, refusal: Event) -> bool:
        assert isinstance(refusal, Decided)  # noqa: S101  narrows the type
        now_s = self._loop.time()
        if self._repeats.passes(refusal, now_s):
            return True
        self._counted_at_s = now_s
        if self._repeats_due is None:
            self._repeats_due = self._loop.call_later(REPEATS_EVERY_S, self.finish)
        return False

    def _tell(self, lines: Iterable[Event], events: Iterable[Event]) -> None:
        """Lines to a person; events to the ledgers, which count by themselves."""
        for line in lines:
            self._show(line)
        if self._living:
            self._ledgers.note(events)

    def _end_of_loss(self) -> Iterator[Event]:
        if self.lost.is_losing:
            yield ServiceChanged("audit_resumed", f"{_lines(self.lost)} not written")

    def _note_lost(self, count: int) -> None:
        now, lost = self._now(), self.lost
        since = now if lost.since is None else lost.since
        self.lost = LostLines(lost.count + count, since, is_losing=True)
        if not lost.is_losing or now - self._said_at >= SAY_AGAIN_S:
            self._said_at = now
            detail = f"the audit log cannot be written: {_lines(self.lost)} lost; make room, or move it away"
            self._show(ServiceChanged("audit_lost", detail))


def _is_refusal(event: Event) -> bool:
    return type(event) is Decided and event.reason is not None


def _permits(event: Event) -> bool:
    """Whether it lets something happen, which then does not: all else has happened, written down or not."""
    return isinstance(event, Granted) or (isinstance(event, Decided) and event.reason is None)


def _lines(lost: LostLines) -> str:
    since = "" if lost.since is None else f" since {timestamp(lost.since)}"
    return f"{lost.count} {'line' if lost.count == 1 else 'lines'}{since}"
