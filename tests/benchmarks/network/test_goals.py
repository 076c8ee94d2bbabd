"""A goal is judged by medians of one run, and what was not measured is never called reached."""

from __future__ import annotations

import pytest

from tests.benchmarks.network.goals import GOALS, Goal, Outcome, Verdict, outcomes
from tests.benchmarks.network.peers import ALL, OURS
from tests.benchmarks.network.samples import Medians, Sample


def samples(peer: str, case: str, figure: str, *values: float) -> list[Sample]:
    return [Sample(number, peer, case, {figure: value}) for number, value in enumerate(values, 1)]


def test_the_median_of_the_rounds_counts() -> None:
    medians = Medians(samples("squid", "A64", "cpu_us", 900.0, 10.0, 20.0))
    assert medians.get("squid", "A64", "cpu_us") == 20.0


def test_a_round_without_the_figure_is_left_out() -> None:
    failed = Sample(2, "squid", "A64", {}, failed="it did not start")
    assert Medians([*samples("squid", "A64", "cpu_us", 5.0), failed]).get("squid", "A64", "cpu_us") == 5.0


def test_a_ratio_is_ours_by_theirs() -> None:
    found = Medians([*samples(OURS, "A64", "cpu_us", 30.0), *samples("squid", "A64", "cpu_us", 40.0)])
    assert found.ratio(OURS, "squid", "A64", "cpu_us") == 0.75
    assert next(one for one in outcomes(found) if one.goal.peer == "squid").verdict is Verdict.REACHED


@pytest.mark.parametrize("other", [[], [0.0]])
def test_there_is_no_ratio_to_nothing(other: list[float]) -> None:
    found = Medians([*samples(OURS, "A64", "cpu_us", 30.0), *samples("squid", "A64", "cpu_us", *other)])
    assert found.ratio(OURS, "squid", "A64", "cpu_us") is None


@pytest.mark.parametrize(
    ("value", "at_least", "verdict"),
    [
        (1.0, False, Verdict.REACHED),
        (1.01, False, Verdict.MISSED),
        (1.0, True, Verdict.REACHED),
        (0.99, True, Verdict.MISSED),
        (None, False, Verdict.UNKNOWN),
        (None, True, Verdict.UNKNOWN),
    ],
)
def test_a_bound_itself_is_good_enough(value: float | None, at_least: bool, verdict: Verdict) -> None:
    goal = Goal("what", "A64", "cpu_us", "squid", 1.0, at_least)
    assert Outcome(goal, 1.0, 1.0, value).verdict is verdict


def test_without_samples_nothing_is_reached() -> None:
    assert {one.verdict for one in outcomes(Medians([]))} == {Verdict.UNKNOWN}


def test_every_goal_names_a_peer_that_exists() -> None:
    assert {goal.peer for goal in GOALS} - {None} <= {peer.name for peer in ALL}
