"""The README's list of what still gets out is the one that the battery holds."""

from __future__ import annotations

from tests.end_to_end.escape.printed import MARKS, printed
from tests.support.program import REPOSITORY


def test_the_readme_prints_the_accepted_list() -> None:
    start, end = MARKS
    between = (REPOSITORY / "README.md").read_text().partition(start)[2].partition(end)[0]
    assert between.strip() == printed().strip()
