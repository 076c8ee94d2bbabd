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
# Calls of the two callbacks; 32 KiB of scripts took 500 steps and 220 reads.
_STEPS = 900
_STEPS_AFTER_ERROR = 40
_READS = 1_200
_PIPES = 300  # in one line: a sound pipeline, too, takes time that grows with the square of its stages

# tree-sitter 0.26.1 read past its buffer in repeated text with characters beyond ASCII, and ended the
# process. It gets none: each stands between two of a character that no grammar knows.
_OTHER = re.compile(r"[^\x00\x02-\x7f]")
_ESCAPED = re.compile(r"\x01([0-9a-f]{1,6})\x01")

_LANGUAGE = Language(tree_sitter_bash.language())


@dataclass(slots=True)
class _Allowance:
    """Counts, no clock: the same text always gets the same answer."""

    source: bytes
    steps: int = 0
    steps_after_error: int = 0
    reads: int = 0
    is_parsed: bool = False  # from then on it is we who read, one node's text at a time

    def read(self, offset: int, _point: object) -> bytes:
        """Blanks once the allowance is spent: the parser ends the process when text ends too early."""
        self.reads += 1
        if self.reads > _READS and not self.is_parsed:
            return b" " * (len(self.source) - offset)
        return self.source[offset : offset + _CHUNK_BYTES]

    def is_spent(self, _offset: int, has_error: bool) -> bool:
        self.steps += 1
        self.steps_after_error += has_error
        return self.steps > _STEPS or self.steps_after_error > _STEPS_AFTER_ERROR


def parse(text: str) -> Node | None:
    """The root; None when it would cost too much. Broken parts are nodes of type ERROR."""
    source = _OTHER.sub(_escaped, text).encode("ascii")
    if max(line.count(b"|") for line in source.split(b"\n")) > _PIPES:
        return None
    allowance = _Allowance(source)
    try:
        tree = Parser(_LANGUAGE).parse(allowance.read, progress_callback=allowance.is_spent)
    except ValueError:  # "Parsing failed": given up
        return None
    if allowance.reads > _READS:
        return None
    allowance.is_parsed = True
    return tree.root_node


def text_of(node: Node) -> str:
    return decoded(node.text or b"")


def decoded(source: bytes) -> str:
    """A piece of what the parser read, as it was written."""
    text = source.decode("ascii")
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text) if "\x01" in text else text


def _escaped(found: re.Match[str]) -> str:
    return f"\x01{ord(found[0]):x}\x01"
