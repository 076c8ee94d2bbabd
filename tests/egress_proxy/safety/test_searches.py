"""find and xargs."""

import pytest

from egress_proxy.safety.inner import Words
from egress_proxy.safety.searches import fed_by, found_by
from egress_proxy.safety.values import UNKNOWN, Content, words_of


def texts(items: object) -> list[str]:
    return [" ".join(w.text for w in item.words) for item in items if isinstance(item, Words)]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("/ -delete", ["rm -r -f /"]),
        ("/ -type f -delete", ["rm -r -f /*"]),
        ("/ -name * -delete", ["rm -r -f /"]),
        (". -name x -delete", ["rm -r -f ./found.file"]),
        ("a b -exec X {} ;", ["X a", "X b"]),
        ("-exec X {} +", ["X ."]),
        (". -name x", []),
    ],
)
def test_find(line: str, expected: list[str]) -> None:
    assert texts(found_by(words_of(line.split(" ")))) == expected


@pytest.mark.parametrize(
    ("line", "given", "expected"),
    [
        ("-0 X a", "b\0c", ["X a b c"]),
        ("-I{} X {}y", "b c", ["X by", "X cy"]),
        ("-n 1 X", UNKNOWN, [f"X {UNKNOWN}"]),
        ("", "a", []),
    ],
)
def test_xargs(line: str, given: str, expected: list[str]) -> None:
    assert texts(fed_by(words_of(line.split()), Content(given))) == expected
