"""Every figure that a goal, a table or the plot names is one that a case yields."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.benchmarks.network.cases import INJECTION_CASES, NAMES, TUNNEL_CASES, Run
from tests.benchmarks.network.goals import GOALS
from tests.benchmarks.network.load import Answer, Load
from tests.benchmarks.network.place import make_place
from tests.benchmarks.network.plot import PANELS
from tests.benchmarks.network.tables import TABLES

ANSWER: Answer = {
    "secs": 2.0,
    "ops": 100,
    "bytes": 4e9,
    "errs": 0,
    "cpu_s": 0.01,
    "p50_us": 30.0,
    "p99_us": 50.0,
    "events": 150,
    "late": 3,
}


class ScriptedLoad(Load):
    """Answers the same to everything, and calls what is to be called meanwhile."""

    def run(
        self,
        mode: str,
        count: int,
        seconds: float,
        *,
        target: str = "",
        form: str = "-",
        most: int = 0,
        when_open: Callable[[], None] | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> Answer:
        for call in filter(None, (when_open, meanwhile)):
            call()
        return dict(ANSWER)


@pytest.fixture(scope="module")
def yielded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, float]]:
    place = make_place(tmp_path_factory.mktemp("place"))
    run = Run(ScriptedLoad("", 0, os.getpid()), place, 0.1, "abs")
    every = (*TUNNEL_CASES.values(), *INJECTION_CASES.values())
    return {case: dict(figures) for measure in every for case, figures in measure(run)}


def test_every_goal_is_measured(yielded: dict[str, dict[str, float]]) -> None:
    assert [goal for goal in GOALS if goal.figure not in yielded.get(goal.case, ())] == []


def test_every_column_is_measured(yielded: dict[str, dict[str, float]]) -> None:
    columns = [column for columns in TABLES.values() for column in columns]
    assert [column for column in columns if column.figure not in yielded.get(column.case, ())] == []


def test_every_panel_is_measured(yielded: dict[str, dict[str, float]]) -> None:
    assert [panel for panel in PANELS if panel.figure not in yielded.get(panel.case, ())] == []


def test_every_case_is_named_by_its_letter(yielded: dict[str, dict[str, float]]) -> None:
    assert {case[0] for case in yielded} == set(NAMES)


def test_cpu_is_divided_by_what_was_done(yielded: dict[str, dict[str, float]]) -> None:
    assert yielded["A64"]["cpu_us"] == pytest.approx(100)
    assert yielded["Bdown16"] == {"cpu_s_per_gb": 0.0025, "mb_per_s": 2000, "errors": 0}
    assert yielded["F32"]["p50_ms"] == pytest.approx(0.03)


def test_events_that_never_came_are_counted(yielded: dict[str, dict[str, float]]) -> None:
    assert (yielded["Estream1"]["missing"], yielded["Estream32"]["missing"]) == (50, 32 * 200 - 150)


def test_nothing_done_is_no_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ANSWER, "ops", 0)
    run = Run(ScriptedLoad("", 0, None), make_place(tmp_path), 0.1, "abs")
    assert dict(TUNNEL_CASES["C"](run)) == {"C1": {"errors": 0}, "C64": {"errors": 0}}
