"""Which commands of a sed script run or write."""

import pytest

from egress_proxy.safety.sed_script import Run, Write, parts_of, sed_scripts
from egress_proxy.safety.values import UNKNOWN


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("s/a/X/e", [Run("X")]),
        ("s|a|X|gei", [Run("X")]),
        ("s/a\\/b/X\\/y/e", [Run("X/y")]),
        ("s/a/&/e", [Run("&"), Run("")]),
        ("1e X y", [Run("X y")]),
        ("/a/,$e X", [Run("X")]),
        ("p;e X", [Run("X")]),
        ("1{e X\n}", [Run("X")]),
        ("e", [Run("")]),
        ("w /a", [Write("/a")]),
        ("s/a/b/w /c", [Write("/c")]),
        ("s/e/w/g;y/e/w/;/e/d;a e x", []),
        ("$!N;/^\\(.*\\)$/!P;D", []),
        ("s/a", []),
    ],
)
def test_parts(script: str, expected: list[Run | Write]) -> None:
    assert list(parts_of(script)) == expected


def test_a_script_that_is_too_long_is_not_called_harmless() -> None:
    assert list(parts_of("p;" * 1_000)) == [Run(UNKNOWN)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [("-n A f", ["A"]), ("-e A -e B f", ["A\nB"]), ("-ne A", ["A"]), ("--expression=A f", ["A"]), ("", [])],
)
def test_scripts_of_a_command(line: str, expected: list[str]) -> None:
    assert sed_scripts(line.split()) == expected
