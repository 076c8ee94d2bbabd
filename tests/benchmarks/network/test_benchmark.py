"""The command line: what does not exist is refused, and only whole runs are published."""

from __future__ import annotations

import pytest

from tests.benchmarks.network.benchmark import parse
from tests.benchmarks.network.cases import NAMES
from tests.benchmarks.network.load import LoadFailed, parse_answer


def test_without_options_all_cases_are_measured_in_three_rounds() -> None:
    options = parse([])
    assert (options.rounds, options.cases, options.only, options.publish) == (3, list(NAMES), [], False)


def test_quick_is_one_round() -> None:
    options = parse(["--quick", "--rounds", "5"])
    assert (options.rounds, options.seconds) == (1, 0.2)


@pytest.mark.parametrize(
    "argv",
    [
        ["--cases", "A,Z"],
        ["--only", "no-such-peer"],
        ["--publish", "--quick"],
        ["--publish", "--only", "squid"],
        ["--publish", "--cases", "A"],
        ["left over"],
    ],
)
def test_what_makes_no_sense_is_refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(argv)
    assert ended.value.code == 2
    assert "error: " in capsys.readouterr().err


def test_an_answer_is_numbers() -> None:
    assert parse_answer("ping", '{"mode":"ping","ops":3,"p50_us":1.5}\n') == {"ops": 3, "p50_us": 1.5}


@pytest.mark.parametrize("line", ["", "READY 0\n", '{"ops":'])
def test_no_answer_is_a_failure_and_no_nought(line: str) -> None:
    with pytest.raises(LoadFailed, match="ping: no answer"):
        parse_answer("ping", line)
