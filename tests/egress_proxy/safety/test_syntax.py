"""The parser's work is bounded, and no text ends the process."""

import itertools
import time
from collections.abc import Callable

import pytest

from egress_proxy.safety.syntax import Effort, decoded, parse, text_of


def test_text_comes_back_as_it_was_written() -> None:
    root = parse("echo é\U0010ffff\x01 ü")
    assert root is not None
    assert text_of(root) == "echo é\U0010ffff\x01 ü"


def clock(step_s: float) -> Callable[[], float]:
    """That much later each time."""
    times = itertools.count()
    return lambda: next(times) * step_s


def test_broken_text_is_given_up_by_the_time_its_steps_take() -> None:
    broken = '>[-m-)3"' * 4_000
    assert parse(broken, Effort(clock=clock(0.0))) is not None
    effort = Effort(clock=clock(0.001))
    assert parse(broken, effort) is None
    assert effort.steps < 30


def test_the_time_of_all_texts_of_a_line_counts() -> None:
    effort = Effort(clock=clock(0.001))
    parsed = [parse("ls", effort) is not None for _ in range(50)]
    assert parsed == sorted(parsed, reverse=True)
    assert 5 < sum(parsed) < 30


def test_a_script_takes_less_time_than_it_has() -> None:
    effort = Effort()
    assert parse("ls -la; echo $(foo bar) | grep x > y\n" * 850, effort) is not None
    assert effort.seconds > 0


@pytest.mark.parametrize("unit", ["$(for & =x", "(", "{ ", "${x", "$(", "<(", "a=("])
def test_what_is_never_closed_is_not_parsed_at_all(unit: str) -> None:
    effort = Effort()
    assert parse((unit * 16_000)[:32_000], effort) is None
    assert effort.steps == effort.reads == 0


def test_brackets_that_are_closed_are_no_depth() -> None:
    assert parse("echo $(a) ${b} (c); " * 60) is not None
    assert parse("echo '" + ")(" * 200 + "'") is not None


@pytest.mark.parametrize(
    "unit",
    ["\0", "a)", "<>&|;", "a|", "\U000e1afa<<<<<<", "\U0010d1e5]8\x95â]$(({{\U0010d1e5]", "<<a ", "${"],
)
def test_what_would_take_seconds_is_given_up(unit: str) -> None:
    start = time.process_time()
    parse((unit * 32_000)[:32_000])
    assert time.process_time() - start < 1


def test_scripts_are_not_given_up() -> None:
    root = parse("ls -la; echo $(foo bar) | grep x > y\n" * 850, Effort(clock=clock(0.0)))
    assert root is not None
    assert not root.has_error


def test_many_here_documents_in_one_line_are_given_up() -> None:
    assert parse("cat " + "<<E " * 60) is not None
    assert parse("cat " + "<<E " * 70) is None
    assert parse("cat <<E\nE\n" * 70) is not None


def test_all_texts_of_a_line_share_one_effort() -> None:
    effort = Effort()
    broken = "a) ; (" * 200
    assert any(parse(broken, effort) is None for _ in range(50))
    assert parse("ls", effort) is None
    assert parse("ls") is not None


def test_text_that_grows_when_it_is_escaped_is_given_up() -> None:
    assert parse("\udc80" * 30_000) is None


@pytest.mark.parametrize(
    "text", ["é", "ab\x01c", "\x01\x01", "ÿffÿ", "\x01e9\x01", "\U0010ffffé日\udc80", "e9"]
)
def test_any_character_comes_back(text: str) -> None:
    root = parse(f"echo {text}")
    assert root is not None
    assert text_of(root) == f"echo {text}"
    assert decoded(b"\x01e9") == "\x01e9"
    assert decoded(b"a\x01e9\x01b\x01") == "aéb\x01"
    assert decoded(b"\x01ffffff\x01") == "\ufffd"
