"""The clock that decides is not the time of day, and counts a sleep."""

from __future__ import annotations

import sys
import time

from egress_proxy.proxy.steady_clock import steady_s


def test_it_is_the_kernels_clock_that_goes_on_in_a_sleep() -> None:
    name = "CLOCK_BOOTTIME" if sys.platform == "linux" else "CLOCK_MONOTONIC"
    before, now = time.clock_gettime(getattr(time, name)), steady_s()
    assert before <= now < before + 5


def test_it_never_goes_back() -> None:
    times = [steady_s() for _ in range(1000)]
    assert times == sorted(times)
