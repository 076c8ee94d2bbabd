"""find and xargs."""

import pytest

from egress_proxy.safety.inner import Code, Words
from egress_proxy.safety.searches import fed_by, found_by, in_parallel
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
        (". -name .git -delete", ["rm -r -f ./.git"]),
        ("a b -exec X {} ;", ["X a", "X b"]),
        ("-L / -xdev -exec X {} ;", ["X /", "X /*"]),
        ("-exec X {} +", ["X ."]),
        (". -name x", []),
        ("/ ( -name x -o -name * ) -delete", ["rm -r -f /"]),
        ("/a -exec chown X {} +", ["chown -R X /a", "chown -R X /a/*"]),
    ],
)
def test_find(line: str, expected: list[str]) -> None:
    assert texts(found_by(words_of(line.split(" ")))) == expected


@pytest.mark.parametrize(
    ("line", "given", "expected"),
    [
        ("-0 X a", "b\0c", ["X a b c"]),
        ("-I{} X {}y", "b c\nd", ["X b cy", "X dy"]),
        ("-i X {}", "b", ["X b"]),
        ("-n 1 X", "b c", ["X b c"]),
        ("-n 1 X", UNKNOWN, [f"X {UNKNOWN}"]),
        ("", "a", []),
    ],
)
def test_xargs(line: str, given: str, expected: list[str]) -> None:
    assert texts(fed_by(words_of(line.split()), Content(given))) == expected


@pytest.mark.parametrize(
    ("line", "given", "expected"),
    [
        ("X {} ::: a b", "", ["X a", "X b"]),
        ("-j 4 X", "a\nb c", ["X a", "X b c"]),
        ("X", UNKNOWN, [f"X {UNKNOWN}"]),
    ],
)
def test_parallel(line: str, given: str, expected: list[str]) -> None:
    found = in_parallel(words_of(line.split(" ")), Content(given))
    assert [item.content.text for item in found if isinstance(item, Code)] == expected


def test_many_options_take_linear_time() -> None:
    """To copy the words behind each of them would take minutes."""
    assert list(found_by(words_of(["-H"]) * 300_000)) == []
