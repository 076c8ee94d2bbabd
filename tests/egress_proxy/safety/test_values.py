"""Marks and contents."""

from egress_proxy.safety.values import (
    EMPTY,
    MAYBE,
    UNKNOWN,
    Command,
    Content,
    Memory,
    Origin,
    Word,
    names,
    quoted,
    unquoted,
    without_marks,
    words_of,
)


def test_nobody_can_write_our_marks() -> None:
    text = UNKNOWN + MAYBE + quoted(" ~{") + "a"
    assert without_marks(text) == "\ufffd" * 5 + "a"
    assert unquoted(quoted("a {b} ~")) == "a {b} ~"


def test_contents_add_up() -> None:
    both = Content("a", Origin.SECRET) + Content("b", Origin.DOWNLOAD)
    assert (both.text, both.origin) == ("ab", Origin.SECRET | Origin.DOWNLOAD)
    assert both.is_known
    assert not Content(UNKNOWN).is_known
    assert Origin.PIPE in Content("").tainted(Origin.PIPE).origin


def test_what_a_branch_assigns_is_uncertain_behind_it() -> None:
    memory = Memory()
    memory.assign("a", EMPTY)
    with memory.branch():
        memory.assign("b", EMPTY)
        assert memory.uncertain == set()
        with memory.branch(is_branch=False):
            memory.assign("c", EMPTY)
    assert memory.uncertain == {"b", "c"}
    memory.assign("b", EMPTY)
    assert memory.uncertain == {"c"}


def test_what_was_known_comes_back_and_what_was_spent_does_not() -> None:
    memory = Memory(folder="/a")
    before = memory.copy()
    memory.assign("a", Content("b"))
    memory.files["f"] = EMPTY
    memory.folder = "/c"
    memory.counted("text")
    memory.restore(before)
    assert (memory.variables, memory.files, memory.folder, memory.expanded) == ({}, {}, "/a", 4)


def test_words_and_names() -> None:
    assert Command(tuple(words_of(["a", "b"]))).text == "a b"
    assert words_of(["a"]) == [Word("a")]
    assert names("a b  a") == {"a", "b"}
