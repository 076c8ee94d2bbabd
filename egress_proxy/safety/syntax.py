"""The only importer of tree-sitter: text to a syntax tree, with a bound on the work.

tree-sitter-bash repairs broken text in more than linear time (32 KiB of `a)` took 15 s), so its
work is counted and given up. Next: shell.py (walks the tree).
"""

import re
from dataclasses import dataclass

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

PARSED_BYTES = 32 * 1024  # of sound text, this takes about 30 ms at worst

_CHUNK_BYTES = 512
_ESCAPED_BYTES = 80 * 1024  # characters beyond ASCII become six bytes and more
# Calls of the two callbacks, all texts of a line together; 32 KiB of scripts took 500 steps and 220 reads.
_STEPS = 800
_STEPS_AFTER_ERROR = 20
_READS = 1_200
_HERE_DOCUMENTS = 64  # in one line
_PIPES = 150  # in one line: a sound pipeline, too, takes time that grows with the square of its stages

# tree-sitter 0.26.1 read past its buffer in repeated text with characters beyond ASCII, and ended the
# process. It gets none: each stands between two of a character that no grammar knows.
_OTHER = re.compile(r"[^\x00\x02-\x7f]")
_ESCAPED = re.compile(r"\x01([0-9a-f]{1,6})\x01")

_LANGUAGE = Language(tree_sitter_bash.language())


@dataclass(slots=True)
class Effort:
    """What was spent on a line and on all texts in it. Counts, no clock: the same text always gets the
    same answer."""

    steps: int = 0
    steps_after_error: int = 0
    reads: int = 0

    @property
    def is_spent(self) -> bool:
        return self.steps > _STEPS or self.steps_after_error > _STEPS_AFTER_ERROR or self.reads > _READS


class _Source:
    def __init__(self, source: bytes, effort: Effort) -> None:
        self._source = source
        self._effort = effort
        self.is_parsed = False  # from then on it is we who read, one node's text at a time

    def read(self, offset: int, _point: object) -> bytes:
        """Blanks once the effort is spent: the parser ends the process when text ends too early."""
        if not self.is_parsed:
            self._effort.reads += 1
            if self._effort.reads > _READS:
                return b" " * (len(self._source) - offset)
        return self._source[offset : offset + _CHUNK_BYTES]

    def is_given_up(self, _offset: int, has_error: bool) -> bool:
        self._effort.steps += 1
        self._effort.steps_after_error += has_error
        return self._effort.is_spent


def parse(text: str, effort: Effort | None = None) -> Node | None:
    """The root; None when it would cost too much. Broken parts are nodes of type ERROR."""
    effort = effort or Effort()
    source = _OTHER.sub(_escaped, text).encode("ascii")
    if effort.is_spent or len(source) > _ESCAPED_BYTES or any(map(_is_costly, source.split(b"\n"))):
        return None
    reader = _Source(source, effort)
    try:
        tree = Parser(_LANGUAGE).parse(reader.read, progress_callback=reader.is_given_up)
    except ValueError:  # "Parsing failed": given up
        return None
    if effort.reads > _READS:
        return None
    reader.is_parsed = True
    return tree.root_node


def _is_costly(line: bytes) -> bool:
    return line.count(b"|") > _PIPES or line.count(b"<<") > _HERE_DOCUMENTS


def text_of(node: Node) -> str:
    return decoded(node.text or b"")


def decoded(source: bytes) -> str:
    """A piece of what the parser read, as it was written."""
    text = source.decode("ascii")
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text) if "\x01" in text else text


def _escaped(found: re.Match[str]) -> str:
    return f"\x01{ord(found[0]):x}\x01"
