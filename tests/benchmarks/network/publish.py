"""Writes a run down: figures.json, figures.svg, and with --publish a section of the README.

What the README says of figures comes from here alone, so that it cannot say more than a run did.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from tests.benchmarks.network.goals import Outcome, Verdict
from tests.benchmarks.network.machine import sentence
from tests.benchmarks.network.plot import svg
from tests.benchmarks.network.samples import Medians, Sample
from tests.benchmarks.network.tables import goal_rows, markdown
from tests.support.program import REPOSITORY

PUBLISHED = REPOSITORY / "tests" / "benchmarks"
README = REPOSITORY / "README.md"
BEGIN, END = "<!-- figures -->\n", "<!-- end of figures -->\n"


class MarksMissing(Exception):
    """The README has no place for the figures."""


def numbers(
    samples: Sequence[Sample], outcomes: Sequence[Outcome], about: Mapping[str, object]
) -> dict[str, object]:
    """As JSON takes it."""
    goals = [{**asdict(outcome), "verdict": str(outcome.verdict)} for outcome in outcomes]
    return {"about": dict(about), "goals": goals, "samples": [asdict(sample) for sample in samples]}


def write_figures(folder: Path, found: Mapping[str, object], samples: Sequence[Sample]) -> None:
    about = found["about"]
    assert isinstance(about, Mapping)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "figures.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    (folder / "figures.svg").write_text(svg(Medians(samples), sentence(about)), encoding="utf-8")


def section(outcomes: Sequence[Outcome], about: Mapping[str, object]) -> str:
    """What stands between the marks."""
    counted = {verdict: sum(one.verdict is verdict for one in outcomes) for verdict in Verdict}
    summary = (
        f"Of {len(outcomes)} goals {counted[Verdict.REACHED]} were reached, "
        f"{counted[Verdict.MISSED]} were not and {counted[Verdict.UNKNOWN]} were not measured."
    )
    picture = (PUBLISHED / "figures.svg").relative_to(REPOSITORY)
    return "\n\n".join(
        (
            f"![CPU, memory and delay beside the peers]({picture})",
            f"{summary} {sentence(about)}; medians of {about['rounds']} rounds.{_absent(about)}",
            markdown(list(goal_rows(outcomes))),
            "",
        )
    ).removesuffix("\n")


def _absent(about: Mapping[str, object]) -> str:
    names = about["absent"]
    assert isinstance(names, list)
    return f" Not there to be measured: {', '.join(names)}." if names else ""


def with_section(readme: str, text: str) -> str:
    """The README with this between the marks."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise MarksMissing(f"the README has no {BEGIN.strip()} … {END.strip()}: put them where figures go")
    return f"{before}{BEGIN}{text}{END}{after}"
