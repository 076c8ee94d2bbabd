"""Marks and contents."""

from egress_proxy.safety.values import (
    UNKNOWN,
    Command,
    Content,
    Origin,
    Word,
    names,
    quoted,
    unquoted,
    without_marks,
    words_of,
)


def test_nobody_can_write_our_marks() -> None:
    text = UNKNOWN + quoted(" ~{") + "a"
    assert without_marks(text) == "\ufffd" * 4 + "a"
    assert unquoted(quoted("a {b} ~")) == "a {b} ~"


def test_contents_add_up() -> None:
    both = Content("a", Origin.SECRET) + Content("b", Origin.DOWNLOAD)
    assert (both.text, both.origin) == ("ab", Origin.SECRET | Origin.DOWNLOAD)
    assert both.is_known
    assert not Content(UNKNOWN).is_known
    assert Origin.PIPE in Content("").tainted(Origin.PIPE).origin


def test_words_and_names() -> None:
    assert Command(tuple(words_of(["a", "b"]))).text == "a b"
    assert words_of(["a"]) == [Word("a")]
    assert names("a b  a") == {"a", "b"}
