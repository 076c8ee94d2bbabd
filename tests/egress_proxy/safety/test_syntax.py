"""The parser's work is bounded, and no text ends the process."""

import time

import pytest

from egress_proxy.safety.syntax import Effort, parse, text_of


def test_text_comes_back_as_it_was_written() -> None:
    root = parse("echo é\U0010ffff\x01 ü")
    assert root is not None
    assert text_of(root) == "echo é\U0010ffff\x01 ü"


@pytest.mark.parametrize(
    "unit",
    ["\0", "a)", "<>&|;", "a|", "\U000e1afa<<<<<<", "\U0010d1e5]8\x95â]$(({{\U0010d1e5]", "<<a ", "${"],
)
def test_what_would_take_seconds_is_given_up(unit: str) -> None:
    start = time.process_time()
    parse((unit * 32_000)[:32_000])
    assert time.process_time() - start < 1


def test_scripts_are_not_given_up() -> None:
    root = parse("ls -la; echo $(foo bar) | grep x > y\n" * 850)
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
