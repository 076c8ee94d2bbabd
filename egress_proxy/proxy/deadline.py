"""One time limit that is set often and met rarely: the loop's timer moves only where it would come too late.

A connection that takes turns with its peer sets a limit for each turn; a timer for each would cost as much as
the turn's other work in the loop. Next: stream.py (each has one), exchange.py.
"""

import asyncio
from collections.abc import Callable


class Deadline:
    """Calls ``then`` once when the limit that was set last has passed. `cancel` it at the end."""

    __slots__ = ("_due_at", "_loop", "_then", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._due_at: float | None = None
        self._then: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def set(self, limit_s: float | None, then: Callable[[], None]) -> None:
        """In place of what was set before. ``limit_s`` from now on; None: no limit."""
        if limit_s is None:
            self.clear()
            return
        self._then = then
        self._due_at = due_at = self._loop.time() + limit_s
        if self._timer is not None:
            if self._timer.when() <= due_at:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(due_at, self._on_timer)

    def clear(self) -> None:
        self._due_at = self._then = None

    def cancel(self) -> None:
        """Clear it, and keep nothing in the loop."""
        self.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        timer, self._timer = self._timer, None
        due_at, then = self._due_at, self._then
        if due_at is None or then is None or timer is None:
            return
        if timer.when() < due_at:
            self._timer = self._loop.call_at(due_at, self._on_timer)
            return
        self.clear()
        then()
