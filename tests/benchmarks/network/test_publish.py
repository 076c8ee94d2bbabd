"""What the README says of figures comes from a run, stands between its marks, and leaves the rest alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.benchmarks.network.goals import GOALS, outcomes
from tests.benchmarks.network.peers import OURS
from tests.benchmarks.network.publish import (
    BEGIN,
    END,
    README,
    MarksMissing,
    numbers,
    section,
    with_section,
    write_figures,
)
from tests.benchmarks.network.samples import Medians, Sample

ABOUT = {
    "date": "2026-01-02",
    "cores": 2,
    "architecture": "x86_64",
    "kernel": "6.1",
    "python": "3.11.7",
    "load": 0.5,
    "rounds": 3,
    "versions": {"squid": "5.7"},
    "absent": ["smokescreen"],
}
SAMPLES = [
    Sample(1, OURS, "A64", {"cpu_us": 90.0}),
    Sample(1, "squid", "A64", {"cpu_us": 180.0}),
    Sample(1, "tinyproxy", "A64", {"cpu_us": 50.0}),
]
OUTCOMES = outcomes(Medians(SAMPLES))


def test_the_readme_has_a_place_for_the_figures() -> None:
    text = README.read_text()
    assert (text.count(BEGIN), text.count(END)) == (1, 1)
    assert text.index(BEGIN) < text.index(END)


def test_only_what_is_between_the_marks_changes() -> None:
    readme = f"before\n{BEGIN}old\n{END}after\n"
    assert with_section(readme, "new\n") == f"before\n{BEGIN}new\n{END}after\n"


@pytest.mark.parametrize("readme", ["nothing", f"{BEGIN}no end", f"{END}no beginning"])
def test_a_readme_without_marks_is_refused(readme: str) -> None:
    with pytest.raises(MarksMissing):
        with_section(readme, "new\n")


def test_the_section_tells_what_was_reached_and_what_was_not() -> None:
    text = section(OUTCOMES, ABOUT)
    assert f"Of {len(GOALS)} goals 1 were reached, 1 were not and {len(GOALS) - 2} were not measured." in text
    (beside_squid,) = (line for line in text.splitlines() if "| squid | 180 |" in line)
    assert beside_squid.endswith("| 0.50 | <= 0.75 x | reached |")
    (beside_tinyproxy,) = (line for line in text.splitlines() if "| tinyproxy | 50.0 |" in line)
    assert beside_tinyproxy.endswith("| 1.80 | <= 1.15 x | not reached |")


def test_the_section_tells_when_and_on_what_machine() -> None:
    text = section(OUTCOMES, ABOUT)
    assert "2026-01-02, 2 cores (x86_64), Linux 6.1, Python 3.11.7" in text
    assert "medians of 3 rounds" in text
    assert "smokescreen" in text


def test_the_files_hold_every_sample(tmp_path: Path) -> None:
    write_figures(tmp_path, numbers(SAMPLES, OUTCOMES, ABOUT), SAMPLES)
    found = json.loads((tmp_path / "figures.json").read_text())
    assert [sample["figures"]["cpu_us"] for sample in found["samples"]] == [90.0, 180.0, 50.0]
    assert [goal["verdict"] for goal in found["goals"]][:3] == ["reached", "not measured", "not reached"]
    assert (tmp_path / "figures.svg").read_text().startswith("<svg ")
