"""Names of programs."""

import pytest

from egress_proxy.safety.inner import joined, language_of, program_of
from egress_proxy.safety.values import Origin, Word


def test_a_program_goes_by_its_base_name() -> None:
    assert [program_of(word) for word in ("/bin/RM", "rm.exe", "x/")] == ["rm", "rm", "x"]
    assert [program_of(word) for word in ("gfind", "/opt/bin/grm", "git", "gcc")] == [
        "find",
        "rm",
        "git",
        "gcc",
    ]


@pytest.mark.parametrize(
    ("program", "language"),
    [
        ("bash", "sh"),
        ("python3.12", "python"),
        ("pypy3", "python"),
        ("nodejs", "node"),
        ("ls", None),
        ("perl5", "perl"),
    ],
)
def test_interpreters(program: str, language: str | None) -> None:
    assert language_of(program) == language


def test_a_long_name_takes_linear_time() -> None:
    """One million digits before a letter; a pattern that tries each of them would take hours."""
    assert language_of("1" * 1_000_000 + "x") is None


def test_joined_words_keep_where_they_come_from() -> None:
    content = joined([Word("a"), Word("b", Origin.DOWNLOAD)])
    assert (content.text, content.origin) == ("a b", Origin.DOWNLOAD)
