"""Rules of the one time limit: the last one set holds, it is met once, and setting it often is cheap.

A loop of the test's own turns the clock, so that nothing here waits. See egress_proxy/proxy/deadline.py.
"""

import asyncio
from collections.abc import Callable, Iterator

import pytest

from egress_proxy.proxy.deadline import Deadline


class TurnedLoop(asyncio.SelectorEventLoop):
    """asyncio's loop with a clock that stands still until a test moves it; counts the timers it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1000.0
        self.timers_made = 0

    def time(self) -> float:
        return self.now_s

    def call_at(self, when, callback, *args, context=None):  # type: ignore[no-untyped-def, override]
        self.timers_made += 1
        return super().call_at(when, callback, *args, context=context)

    def pass_time(self, seconds: float) -> None:
        """Let so much time pass, and everything happen that is due by then."""
        self.now_s += seconds
        for _ in range(3):  # a timer may set another
            self.run_until_complete(asyncio.sleep(0))

    def timers_left(self) -> int:
        return sum(not timer.cancelled() for timer in self._scheduled)  # type: ignore[attr-defined]


@pytest.fixture
def loop() -> Iterator[TurnedLoop]:
    loop = TurnedLoop()
    yield loop
    loop.close()


@pytest.fixture
def met() -> list[str]:
    """Which limits were met, in order."""
    return []


def test_a_limit_is_met_when_its_time_has_passed_and_no_sooner_and_once(
    loop: TurnedLoop, met: list[str]
) -> None:
    Deadline(loop).set(10, lambda: met.append("ten"))
    loop.pass_time(9.9)
    assert met == []
    loop.pass_time(0.2)
    assert met == ["ten"]
    loop.pass_time(100)
    assert met == ["ten"]


def test_a_later_limit_takes_the_place_of_an_earlier_one(loop: TurnedLoop, met: list[str]) -> None:
    deadline = Deadline(loop)
    deadline.set(10, lambda: met.append("first"))
    loop.pass_time(9)
    deadline.set(10, lambda: met.append("second"))
    loop.pass_time(9.9)
    assert met == []
    loop.pass_time(0.2)
    assert met == ["second"]


def test_a_shorter_limit_takes_the_place_of_a_longer_one(loop: TurnedLoop, met: list[str]) -> None:
    deadline = Deadline(loop)
    deadline.set(100, lambda: met.append("long"))
    deadline.set(10, lambda: met.append("short"))
    loop.pass_time(10.1)
    assert met == ["short"]
    loop.pass_time(100)
    assert met == ["short"]


def test_a_limit_may_become_shorter_and_longer_by_turns(loop: TurnedLoop, met: list[str]) -> None:
    deadline = Deadline(loop)
    for seconds in (100, 10, 50, 5, 30):
        deadline.set(seconds, lambda: met.append("met"))
    loop.pass_time(29.9)
    assert met == []
    loop.pass_time(0.2)
    assert met == ["met"]


@pytest.mark.parametrize(
    "undo", [Deadline.clear, Deadline.cancel, lambda deadline: deadline.set(None, print)]
)
def test_a_limit_that_was_taken_back_is_not_met(
    loop: TurnedLoop, met: list[str], undo: Callable[[Deadline], None]
) -> None:
    deadline = Deadline(loop)
    deadline.set(10, lambda: met.append("met"))
    undo(deadline)
    loop.pass_time(100)
    assert met == []


@pytest.mark.parametrize("undo", [Deadline.clear, Deadline.cancel])
@pytest.mark.parametrize("pause_s", [0, 5, 50])
def test_a_limit_can_be_set_again_after_it_was_taken_back(
    loop: TurnedLoop,
    met: list[str],
    undo: Callable[[Deadline], None],
    pause_s: float,
) -> None:
    deadline = Deadline(loop)
    deadline.set(10, lambda: met.append("before"))
    undo(deadline)
    loop.pass_time(pause_s)
    deadline.set(20, lambda: met.append("after"))
    loop.pass_time(19.9)
    assert met == []
    loop.pass_time(0.2)
    assert met == ["after"]


def test_whoever_is_called_may_set_the_next_limit(loop: TurnedLoop, met: list[str]) -> None:
    deadline = Deadline(loop)

    def go_on() -> None:
        met.append("met")
        deadline.set(10, go_on)

    deadline.set(10, go_on)
    for n in range(1, 4):
        loop.pass_time(10.1)
        assert len(met) == n


def test_no_limit_is_met_at_once(loop: TurnedLoop, met: list[str]) -> None:
    """Whoever sets it is in the middle of a step."""
    Deadline(loop).set(0, lambda: met.append("met"))
    assert met == []
    loop.pass_time(0)
    assert met == ["met"]


def test_a_thousand_limits_that_are_not_met_cost_one_timer(loop: TurnedLoop, met: list[str]) -> None:
    deadline = Deadline(loop)
    for _ in range(1000):
        deadline.set(10, lambda: met.append("met"))
        loop.now_s += 0.001
    assert loop.timers_made == 1
    loop.pass_time(9)
    loop.pass_time(0.5)
    assert met == []
    loop.pass_time(1)
    assert met == ["met"]
    assert loop.timers_made == 2


def test_a_cancelled_limit_keeps_nothing_in_the_loop(loop: TurnedLoop) -> None:
    deadline = Deadline(loop)
    deadline.set(10, lambda: None)
    deadline.set(5, lambda: None)
    deadline.set(20, lambda: None)
    assert loop.timers_left() == 1
    deadline.cancel()
    assert loop.timers_left() == 0


def test_a_limit_that_was_cleared_leaves_no_timer_for_good(loop: TurnedLoop) -> None:
    deadline = Deadline(loop)
    deadline.set(10, lambda: None)
    deadline.clear()
    loop.pass_time(10.1)
    assert loop.timers_left() == 0
