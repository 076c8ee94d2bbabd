"""One token's text."""

import pytest

from egress_proxy.safety.quoting import (
    MAX_WORDS,
    ansi,
    bare,
    in_double_quotes,
    joined_word,
    path_of,
    split_words,
)
from egress_proxy.safety.values import unquoted


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("\\x41\\u0042\\103", "ABC"),
        ("\\n\\t\\e", "\n\t\x1b"),
        ("\\q", "\\q"),
        ("\\cA", "\x01"),
        ("\\U0010ffff", "\U0010ffff"),
    ],
)
def test_ansi_escapes(text: str, meant: str) -> None:
    assert ansi(text) == meant


def test_backslashes() -> None:
    assert unquoted(bare("a\\ b\\\nc")) == "a bc"
    assert unquoted(in_double_quotes('a\\"b\\n\\\nc')) == 'a"b\\nc'


def test_braces_are_expanded_within_bounds() -> None:
    assert split_words("{a,b}{c,d}") == ["ac", "ad", "bc", "bd"]
    assert split_words("{a} {}") == ["{a}", "{}"]
    assert len(split_words("{a,b}" * 30)) <= MAX_WORDS


def test_a_pattern_of_one_letter_is_that_letter() -> None:
    assert joined_word("[r]m") == "rm"


@pytest.mark.parametrize(
    ("path", "folder", "meant"),
    [
        ("/tmp/../", ".", "/"),
        ("//", ".", "/"),
        ("/a/./b", ".", "/a/b"),
        ("*", "/", "/*"),
        ("x", "~", "~/x"),
        ("..", "/a", "/"),
        ("-x", "/", "-x"),
        ("../x", ".", "../x"),
        ("~/", ".", "~"),
        ("./~a", ".", "./~a"),
        ("~/..", ".", "/home"),
    ],
)
def test_paths_lose_their_detours(path: str, folder: str, meant: str) -> None:
    assert path_of(path, folder) == meant
