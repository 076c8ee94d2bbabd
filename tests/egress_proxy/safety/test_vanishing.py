"""The marks of what may be empty, and which command is left."""

from egress_proxy.safety.values import UNKNOWN, Direction, Redirect, Word, words_of
from egress_proxy.safety.vanishing import (
    Fields,
    emptied,
    emptied_target,
    maybe,
    named_otherwise,
    never_empty,
    present,
    words_of_all,
)

NOTHING = Fields([Word(UNKNOWN)], [])


def same(text: str) -> Fields:
    return Fields(words_of([text]), words_of([text]))


def test_a_text_that_may_be_empty_is_there_or_not() -> None:
    marked = f"a{maybe('b' + maybe('c'))}{UNKNOWN}d"
    assert present(marked) == f"abc{UNKNOWN}d"
    assert emptied(marked) == "ad"


def test_what_ends_the_shell_where_it_is_empty_stays() -> None:
    marked = never_empty(f"{UNKNOWN}a") + UNKNOWN
    assert present(marked) == f"{UNKNOWN}a{UNKNOWN}"
    assert emptied(marked) == f"{UNKNOWN}a"


def test_the_name_is_the_first_word_that_is_left() -> None:
    read = [NOTHING, NOTHING, same("a"), NOTHING]
    assert named_otherwise(read) == words_of(["a", UNKNOWN])
    assert words_of_all(read) == words_of([UNKNOWN, UNKNOWN, "a", UNKNOWN])


def test_a_name_loses_what_is_empty_in_it() -> None:
    assert named_otherwise([Fields(words_of([f"{UNKNOWN}rm"]), words_of(["rm"]))]) == words_of(["rm"])


def test_a_name_that_stays_is_no_other_command() -> None:
    assert named_otherwise([same("a"), NOTHING]) == []
    assert named_otherwise([NOTHING]) == []
    assert named_otherwise([]) == []


def test_what_the_grammar_parts_is_glued_again() -> None:
    read = same("a") + NOTHING + same("b")
    assert (read.words, read.emptied) == (words_of([f"a{UNKNOWN}b"]), words_of(["ab"]))


def test_blanks_at_an_end_part_words() -> None:
    first = Fields(words_of(["a"]), words_of(["a"]), ends_blank=True)
    assert (first + same("b")).words == words_of(["a", "b"])
    assert (same("b") + Fields([], [], True, True)).ends_blank


def test_a_target_loses_what_is_empty_but_never_all() -> None:
    assert emptied_target(Redirect(Direction.WRITE, f"{UNKNOWN}/a")) == Redirect(Direction.WRITE, "/a")
    assert emptied_target(Redirect(Direction.READ, UNKNOWN)) == Redirect(Direction.READ, UNKNOWN)
