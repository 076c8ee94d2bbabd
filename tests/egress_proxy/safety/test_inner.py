"""Names of programs."""

import pytest

from egress_proxy.safety.inner import joined, language_of, program_of
from egress_proxy.safety.values import Origin, Word


def test_a_program_goes_by_its_base_name() -> None:
    assert [program_of(word) for word in ("/bin/RM", "rm.exe", "x/")] == ["rm", "rm", "x"]


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


def test_joined_words_keep_where_they_come_from() -> None:
    content = joined([Word("a"), Word("b", Origin.DOWNLOAD)])
    assert (content.text, content.origin) == ("a b", Origin.DOWNLOAD)
