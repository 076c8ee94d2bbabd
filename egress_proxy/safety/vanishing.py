"""What a command is where an expansion in it is empty: `$x rm -rf /` runs rm, so does `"$@"rm -rf /`.

Texts and words alone, nothing is run. Next: words.py (makes ``Fields``), suppositions.py (runs both).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from egress_proxy.safety.values import MAYBE, MAYBE_END, UNKNOWN, Redirect, Word

_MAYBE = re.compile(f"{MAYBE}[^{MAYBE_END}]*{MAYBE_END}|{UNKNOWN}(?!{MAYBE_END})")
_MARKS = dict.fromkeys(map(ord, (MAYBE, MAYBE_END)))


@dataclass(frozen=True, slots=True)
class Fields:
    """The words that one argument becomes; ``emptied``: where all in it that may be empty is."""

    words: list[Word]
    emptied: list[Word]
    starts_blank: bool = False
    ends_blank: bool = False

    def __add__(self, other: "Fields") -> "Fields":
        """Both with nothing between them but the blanks that they bring along."""
        join = _parted if self.ends_blank or other.starts_blank else _glued
        words, without = join(self.words, other.words), join(self.emptied, other.emptied)
        return Fields(words, without, self.starts_blank, other.ends_blank)


def _parted(first: list[Word], second: list[Word]) -> list[Word]:
    return first + second


def _glued(first: list[Word], second: list[Word]) -> list[Word]:
    if not first or not second:
        return first or second
    middle = Word(first[-1].text + second[0].text, first[-1].origin | second[0].origin)
    return [*first[:-1], middle, *second[1:]]


def maybe(marked: str) -> str:
    """Text that an expansion has, or it is empty: `${x:+text}`."""
    return f"{MAYBE}{present(marked)}{MAYBE_END}"


def never_empty(text: str) -> str:
    """`${x:?}` ends the shell where x is empty."""
    return text.replace(UNKNOWN, UNKNOWN + MAYBE_END)


def present(marked: str) -> str:
    return marked if marked.isascii() else marked.translate(_MARKS)


def emptied(marked: str) -> str:
    return marked if marked.isascii() else present(_MAYBE.sub("", marked))


def words_of_all(read: Sequence[Fields]) -> list[Word]:
    return [word for fields in read for word in fields.words]


def named_otherwise(read: Sequence[Fields]) -> list[Word]:
    """The command where what stands before its name, or in it, is empty; nothing where it is the same."""
    for index, fields in enumerate(read):
        if fields.emptied:
            is_same = not index and fields.emptied == fields.words
            return [] if is_same else [*fields.emptied, *words_of_all(read[index + 1 :])]
    return []


def emptied_target(redirect: Redirect) -> Redirect:
    path = redirect.path.replace(UNKNOWN, "")
    return Redirect(redirect.direction, path) if path else redirect
