"""What reading a command line is about: words, contents that flow, and what the line has done so far.

No grammar and no rules here. Next: words.py (text to words), shell.py (walks the line).
"""

import enum
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

UNKNOWN = "\ue000"  # stands where text is not known before the command runs
# Characters that variables, substitutions and files become, all together: `x=$x$x;` doubles each time.
MAX_EXPANDED = 64 * 1024
# Nodes of the tree and words that are read, again for each value of a `for` and each call of a function.
MAX_VISITS = 3_000
# Levels of nesting in the tree; each takes about four frames of Python's stack.
MAX_DEPTH = 64
MAYBE, MAYBE_END = "\ue001", "\ue002"  # around a text that may be empty, while a word is read
_QUOTED_AT = 0xE100  # a character that is quoted stands this much higher until a word is done
_SPECIAL = " \t\n{},*?[]~"
_QUOTE = {ord(c): chr(_QUOTED_AT + ord(c)) for c in _SPECIAL}
_UNQUOTE = {_QUOTED_AT + ord(c): c for c in _SPECIAL}
_OWN = dict.fromkeys((*map(ord, (UNKNOWN, MAYBE, MAYBE_END)), *_UNQUOTE), "�")


def without_marks(text: str) -> str:
    """Our own marks cannot be written by whoever wrote the line."""
    return text.translate(_OWN)


def quoted(text: str) -> str:
    """No blank in it parts words any more, no brace or star is special."""
    return text.translate(_QUOTE)


def unquoted(text: str) -> str:
    return text if text.isascii() else text.translate(_UNQUOTE)


class Origin(enum.Flag):
    """Where a text comes from, when that alone makes it dangerous to run or to send."""

    NONE = 0
    DOWNLOAD = enum.auto()
    DECODED = enum.auto()
    SECRET = enum.auto()
    PIPE = enum.auto()  # some program printed it
    FILE = enum.auto()  # read from a file of this machine


@dataclass(frozen=True, slots=True)
class Content:
    """A text that flows: through a pipe, into a variable or a file. May hold ``UNKNOWN``."""

    text: str = ""
    origin: Origin = Origin.NONE

    @property
    def is_known(self) -> bool:
        return UNKNOWN not in self.text

    def __add__(self, other: "Content") -> "Content":
        return Content(self.text + other.text, self.origin | other.origin)

    def tainted(self, origin: Origin) -> "Content":
        return replace(self, origin=self.origin | origin)


EMPTY = Content()
PRINTED = Content(UNKNOWN, Origin.PIPE)


@dataclass(frozen=True, slots=True)
class Word:
    """One word as the program would get it."""

    text: str
    origin: Origin = Origin.NONE


def origin_of(words: Iterable[Word]) -> Origin:
    """Of all together. Joining flags is slow, and most words have none."""
    origin = Origin.NONE
    for word in words:
        if word.origin is not Origin.NONE:
            origin |= word.origin
    return origin


class Direction(enum.StrEnum):
    READ = "read"
    WRITE = "write"
    APPEND = "append"


@dataclass(frozen=True, slots=True)
class Redirect:
    direction: Direction
    path: str


@dataclass(frozen=True, slots=True)
class Command:
    """A simple command with quotes removed and what is known filled in.

    ``effects``: what it does beyond its words, one phrase each, as effects.py writes them.
    """

    words: tuple[Word, ...]
    effects: tuple[str, ...] = ()
    folder: str = "."

    @property
    def text(self) -> str:
        return " ".join(word.text for word in self.words)


@dataclass(slots=True)
class Memory:
    """What earlier parts of the line have left behind for later ones."""

    variables: dict[str, Content] = field(default_factory=dict)
    uncertain: set[str] = field(default_factory=set)  # of ``variables``: may as well be empty
    assigned: set[str] = field(default_factory=set)  # in this branch
    aliases: dict[str, str] = field(default_factory=dict)
    files: dict[str, Content] = field(default_factory=dict)
    arguments: tuple[Word, ...] | None = None  # None: not known
    folder: str = "."
    is_unpacked: bool = False  # an archive that was downloaded
    expanded: int = 0
    visited: int = 0
    depth: int = 0  # of commands in words in commands: Python's own stack
    is_too_deep: bool = False

    def enter(self) -> bool:
        """One level deeper, until the caller counts ``depth`` down. False, and no level, where it is deep."""
        if self.depth >= MAX_DEPTH:
            self.is_too_deep = True
            return False
        self.depth += 1
        return True

    @property
    def is_spent(self) -> bool:
        return self.expanded > MAX_EXPANDED or self.visited > MAX_VISITS

    def assign(self, name: str, content: Content) -> None:
        self.variables[name] = content
        self.assigned.add(name)
        self.uncertain.discard(name)

    @contextmanager
    def branch(self, is_branch: bool = True) -> Iterator[None]:
        """What is assigned in here is uncertain behind it."""
        before, self.assigned = self.assigned, set() if is_branch else self.assigned
        yield
        if is_branch:
            self.uncertain |= self.assigned
            self.assigned |= before

    def copy(self) -> "Memory":
        copies = replace(self, variables={**self.variables}, aliases={**self.aliases}, files={**self.files})
        copies.uncertain = {*self.uncertain}
        return copies

    def restore(self, earlier: "Memory") -> None:
        """What was known; not what was spent."""
        self.variables, self.aliases, self.files = earlier.variables, earlier.aliases, earlier.files
        self.uncertain = earlier.uncertain
        self.arguments, self.folder = earlier.arguments, earlier.folder
        self.is_unpacked = earlier.is_unpacked

    def counted(self, text: str) -> str:
        """``text``, as long as there is room for more."""
        self.expanded += len(text)
        return UNKNOWN if self.is_spent else text


def names(text: str) -> frozenset[str]:
    """A table of names, written with a blank between them."""
    return frozenset(text.split())


def words_of(texts: Iterable[str]) -> list[Word]:
    return [Word(text) for text in texts]
