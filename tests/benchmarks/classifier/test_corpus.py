"""The labelled lines: well formed, told apart, mostly everyday, and shell that bash can read."""

import shutil
import subprocess
from collections import Counter

import pytest

from tests.benchmarks.classifier.corpus import Line, corpus, parse_line
from tests.benchmarks.classifier.figures import Graded, figures
from tests.benchmarks.classifier.timing import SHAPES, SIZES
from tests.support.skips import cannot_be_installed

OWN = [line for line in corpus() if line.source == "own"]
OURS = [line for line in corpus() if line.source in ("own", "blind")]


def test_no_line_stands_twice() -> None:
    counts = Counter((line.command, line.platform) for line in corpus())
    assert [command for command, count in counts.items() if count > 1] == []


def test_our_own_lines_are_many_and_mostly_everyday() -> None:
    assert len(OWN) >= 450
    assert sum(line.is_everyday for line in OWN) >= 0.6 * len(OWN)


def test_a_label_never_takes_every_grade() -> None:
    assert [line.command for line in OURS if len(line.right) == 3] == []


def test_everyday_lines_may_not_be_critical_and_critical_ones_not_safe() -> None:
    assert [line.command for line in OURS if line.right >= {"safe", "critical"}] == []


def test_bash_reads_our_lines() -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip(cannot_be_installed("bash"))
    lines = [line.command for line in OURS if line.platform == "unix"]
    # `-n` reads and runs nothing. The loop is here so that Python starts one program, not a thousand.
    script = 'while IFS= read -r -d "" line; do bash -n -c "$line" || printf "%s\\n" "$line"; done'
    done = subprocess.run(
        [bash, "-c", script], input="\0".join((*lines, "")), capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize(
    "text",
    [
        '{"cmd": "ls", "expect": "safe"}',
        '{"cmd": "ls", "expect": "fine", "group": "g"}',
        '{"cmd": "ls", "expect": "safe", "group": "g", "platform": "mac"}',
        '{"cmd": "ls", "expect": "safe", "group": "g", "note": ""}',
    ],
)
def test_a_bad_entry_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="own: "):
        parse_line(text, "own")


def graded(expect: str, ok: list[str], grade: str) -> Graded:
    right = frozenset((expect, *ok))
    return Graded(Line("x", expect, right, "g", "unix", "own"), grade, ())  # type: ignore[arg-type]


def test_figures() -> None:
    counted = figures(
        [
            graded("critical", [], "critical"),
            graded("critical", [], "warning"),
            graded("critical", ["warning"], "warning"),
            graded("warning", ["safe"], "safe"),
            graded("warning", ["critical"], "safe"),
            graded("safe", [], "safe"),
            graded("safe", [], "warning"),
            graded("safe", ["warning"], "warning"),
            graded("safe", [], "critical"),
        ]
    )
    assert (counted.right.part, counted.right.whole) == (5, 9)
    assert (counted.critical.part, counted.critical.whole) == (1, 2)
    assert (counted.critical_all.part, counted.critical_all.whole) == (1, 3)
    assert (counted.noticed.part, counted.noticed.whole) == (3, 4)
    assert (counted.false_critical.part, counted.false_critical.whole) == (1, 4)
    assert (counted.false_warning.part, counted.false_warning.whole) == (1, 4)
    assert str(figures([]).right) == "-"


@pytest.mark.parametrize("shape", SHAPES)
def test_a_long_line_is_as_long_as_its_size_says(shape: str) -> None:
    for size in SIZES.values():
        assert 0.97 * size <= len(SHAPES[shape](size)) <= size
