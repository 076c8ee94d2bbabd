"""Writes down which grants have ended, a few in each turn of the loop: thousands can end in one moment.

The grants are gone already, so nobody waits for these lines. Next: proxy/grant_store.py, core/events.py.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from egress_proxy.core.events import GrantEnded
from egress_proxy.core.grants import Grant
from egress_proxy.core.seams import Audit, AuditUnavailable

# Lines for one turn: a few milliseconds, which tunnels and calls do not notice.
BATCH = 64
NO_TUNNELS: Mapping[str, int] = MappingProxyType({})


class EndedGrants:
    """`tell` from the loop; `finish` when it stops."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self._unwritten: deque[tuple[Grant, str, int]] = deque()

    def tell(self, grants: Iterable[Grant], cause: str, closed: Mapping[str, int] = NO_TUNNELS) -> None:
        """``closed``: how many tunnels that ended, by the grant's id."""
        is_due = bool(self._unwritten)
        self._unwritten.extend((grant, cause, closed.get(grant.id, 0)) for grant in grants)
        if not is_due:
            self._write_batch()

    def finish(self) -> None:
        self._write(len(self._unwritten))

    def _write_batch(self) -> None:
        self._write(BATCH)
        if self._unwritten:
            asyncio.get_running_loop().call_soon(self._write_batch)

    def _write(self, limit: int) -> None:
        ended = [self._unwritten.popleft() for _ in range(min(limit, len(self._unwritten)))]
        events = [GrantEnded(grant.id, str(grant.rule), cause, closed) for grant, cause, closed in ended]
        if events:
            with contextlib.suppress(AuditUnavailable):  # the sink has said so; nothing here can be refused
                self._audit(*events)
