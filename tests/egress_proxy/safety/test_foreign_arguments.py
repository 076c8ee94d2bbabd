"""Texts that a call is given."""

import pytest

from egress_proxy.safety.foreign_arguments import Gathering
from egress_proxy.safety.foreign_tokens import Kind, tokens_of
from egress_proxy.safety.values import UNKNOWN


def gathered(code: str, parts_words: bool = False) -> list[str]:
    gathering = Gathering({"known": "k"}, parts_words)
    for token in tokens_of(code, "python"):
        match token.kind:
            case Kind.MARK:
                gathering.marked(token.text)
            case Kind.NAME:
                gathering.named(token)
            case _:
                gathering.text(token)
    return gathering.finished()


@pytest.mark.parametrize(
    ("code", "texts"),
    [
        ("'a', ['b', 'c']", ["a", "b", "c"]),
        ("'a' + 'b' 'c'", ["abc"]),
        ("'a ' + known", ["a k"]),
        ("'a ' + x", ["a " + UNKNOWN]),
        ("'a b'.split()", ["a b"]),
        ("x, y", []),
        ("homedir() + '/a'", ["~/a"]),
        ("os.environ['HOME']", ["~"]),
        ("path.join(home(), 'a', 'b'), 'c'", ["~/a/b", "c"]),
        ("Path.home() / 'a'", ["~/a"]),
    ],
)
def test_texts(code: str, texts: list[str]) -> None:
    assert gathered(code) == texts


def test_blanks_part_the_words_of_lisp() -> None:
    assert gathered("'a' t 'b'", parts_words=True) == ["a", "b"]


@pytest.mark.parametrize(
    ("mark", "is_open", "is_end"),
    [(")", True, True), (";", True, True), ("\n", False, True), ("\n", True, False), (",", True, False)],
)
def test_where_a_call_ends(mark: str, is_open: bool, is_end: bool) -> None:
    assert Gathering({}, parts_words=False).is_ended_by(mark, is_open) is is_end
