"""Time limits for tests: every wait ends, and says what it waited for when it ends badly.

No wait here is a pause that hopes for the best: each returns as soon as its condition holds.
Used by all other modules of this folder; tests use ``eventually`` for figures that have no event.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

DEFAULT_S = 5.0  # far above what any loopback step takes, far below what a person would wait
_PROBE_EVERY_S = 0.01


class Deadline:
    """A moment after which waiting for ``what`` is a failure."""

    def __init__(self, timeout_s: float, what: str) -> None:
        self._end = time.monotonic() + timeout_s
        self._timeout_s = timeout_s
        self._what = what

    def remaining_s(self) -> float:
        """Seconds left, always above zero; raises ``TimeoutError`` when there are none."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"waited {self._timeout_s:g} s for {self._what}")
        return left


def wait_for(condition: threading.Condition, holds: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Wait until ``holds()``, judged under the lock; ``TimeoutError`` names ``what``."""
    with condition:
        if not condition.wait_for(holds, timeout_s):
            raise TimeoutError(f"waited {timeout_s:g} s for {what}")


def eventually(holds: Callable[[], bool], timeout_s: float = DEFAULT_S, what: str = "the condition") -> None:
    """Probe ``holds()`` until it is true. For figures of another process, which send no event."""
    deadline = Deadline(timeout_s, what)
    while not holds():
        time.sleep(min(_PROBE_EVERY_S, deadline.remaining_s()))
