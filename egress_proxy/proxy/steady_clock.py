"""The clock that time limits of grants and names go by: nobody sets it, and it runs while the machine sleeps.

The time of day is for showing: set back by an hour, it would lengthen every grant. Next: grant_store.py.
"""

import time

# Linux's monotonic clock stands still in a sleep, and has another that does not. macOS's goes on.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def steady_s() -> float:
    """Seconds since some moment in the past."""
    return time.clock_gettime(_CLOCK)
