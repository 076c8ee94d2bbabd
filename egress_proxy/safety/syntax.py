"""The only importer of tree-sitter: text to a syntax tree, with a bound on the work.

tree-sitter-bash repairs broken text in more than linear time (32 KiB of `a)` took 15 s), so its
work is counted, timed and given up. Next: shell.py (walks the tree).
"""

import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

PARSED_BYTES = 32 * 1024  # of sound text, this takes about 30 ms at worst

_CHUNK_BYTES = 512
_ESCAPED_BYTES = 80 * 1024  # characters beyond ASCII become six bytes and more
# Calls of the two callbacks, for all texts of a line; 32 KiB of scripts took 500 steps and 220 reads.
_STEPS = 800
_STEPS_AFTER_ERROR = 20
# CPU seconds of them all. A step in broken text takes fifty times what it takes in a script, and no count
# tells which it is. 32 KiB of scripts take 8 ms: what is given up for this is broken, or, on a machine that
# is three times as slow, as long as a line can be.
_SECONDS = 0.025
_READS = 1_200
_HERE_DOCUMENTS = 64  # in one line
# Parentheses and braces that are open at once: at the end of the text, time grows with the square of those
# never closed, and in one step (32 KiB of `$(for & =x` took 18 s). Nothing is read as deep as this.
_OPEN = 100
_PIPES = 150  # in one line: a sound pipeline, too, takes time that grows with the square of its stages

# tree-sitter 0.26.1 read past its buffer in repeated text with characters beyond ASCII, and ended the
# process. It gets none: each stands between two of a character that no grammar knows.
_OTHER = re.compile(r"[^\x00\x02-\x7f]")
_ESCAPED = re.compile(r"\x01([0-9a-f]{1,6})\x01")
_CODE = re.compile("[0-9a-f]{1,6}")
_BRACKET = re.compile(rb"[(){}]")

_LANGUAGE = Language(tree_sitter_bash.language())


@dataclass(slots=True)
class Effort:
    """What was spent on a line and on all texts in it."""

    steps: int = 0
    steps_after_error: int = 0
    reads: int = 0
    seconds: float = 0.0
    clock: Callable[[], float] = time.thread_time

    @property
    def is_spent(self) -> bool:
        is_slow = self.seconds > _SECONDS or self.steps_after_error > _STEPS_AFTER_ERROR
        return is_slow or self.steps > _STEPS or self.reads > _READS


class _Source:
    def __init__(self, source: bytes, effort: Effort) -> None:
        self._source = source
        self._effort = effort
        self._at = effort.clock()
        self.is_parsed = False  # from then on it is we who read, one node's text at a time

    def read(self, offset: int, _point: object) -> bytes:
        """Blanks once the effort is spent: the parser ends the process when text ends too early."""
        if not self.is_parsed:
            self._effort.reads += 1
            if self._effort.reads > _READS:
                return b" " * (len(self._source) - offset)
        return self._source[offset : offset + _CHUNK_BYTES]

    def take_time(self) -> None:
        before, self._at = self._at, self._effort.clock()
        self._effort.seconds += self._at - before

    def is_given_up(self, _offset: int, has_error: bool) -> bool:
        self._effort.steps += 1
        self._effort.steps_after_error += has_error
        self.take_time()
        return self._effort.is_spent


def parse(text: str, effort: Effort | None = None) -> Node | None:
    """The root; None when it would cost too much. Broken parts are nodes of type ERROR."""
    effort = effort or Effort()
    source = _encoded(text)
    if effort.is_spent or len(source) > _ESCAPED_BYTES or _is_deep(source):
        return None
    if any(map(_is_costly, source.split(b"\n"))):
        return None
    reader = _Source(source, effort)
    try:
        tree = Parser(_LANGUAGE).parse(reader.read, progress_callback=reader.is_given_up)
    except ValueError:  # "Parsing failed": given up
        return None
    reader.take_time()
    if effort.reads > _READS:
        return None
    reader.is_parsed = True
    return tree.root_node


def _is_deep(source: bytes) -> bool:
    if source.count(b"(") + source.count(b"{") <= _OPEN:
        return False
    depth = 0
    for bracket in _BRACKET.findall(source):
        depth = depth + 1 if bracket in b"({" else max(0, depth - 1)
        if depth > _OPEN:
            return True
    return False


def _is_costly(line: bytes) -> bool:
    return line.count(b"|") > _PIPES or line.count(b"<<") > _HERE_DOCUMENTS


def text_of(node: Node) -> str:
    return decoded(node.text or b"")


def decoded(source: bytes) -> str:
    """A piece of what the parser read, as it was written."""
    text = source.decode("ascii")
    if "\x01" not in text:
        return text
    parts = text.split("\x01")
    codes = parts[1::2]
    if len(parts) % 2 == 0 or not all(map(_CODE.fullmatch, set(codes))):  # cut inside of one
        return _ESCAPED.sub(lambda found: _character(found[1]), text)
    characters = {code: _character(code) for code in set(codes)}
    parts[1::2] = [characters[code] for code in codes]
    return "".join(parts)


def _character(code: str) -> str:
    number = int(code, 16)
    return chr(number) if number <= sys.maxunicode else "\ufffd"


def _encoded(text: str) -> bytes:
    others = {ord(character): f"\x01{ord(character):x}\x01" for character in set(_OTHER.findall(text))}
    return text.translate(others).encode("ascii") if others else text.encode("ascii")
