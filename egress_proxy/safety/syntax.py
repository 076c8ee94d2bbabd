"""The only importer of tree-sitter: text to a syntax tree, with a bound on the work.

tree-sitter-bash repairs broken text in more than linear time (32 KiB of `a)` took 15 s), so its
work is counted and given up. Next: shell.py (walks the tree).
"""

from dataclasses import dataclass

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

PARSED_BYTES = 32 * 1024  # of sound text, this takes about 30 ms at worst

_CHUNK_BYTES = 512
# Calls of the two callbacks; sound text of 32 KiB took up to 1,700 steps and 140 reads.
_STEPS = 2_000
_STEPS_AFTER_ERROR = 60
_READS = 1_200

_LANGUAGE = Language(tree_sitter_bash.language())


@dataclass(slots=True)
class _Allowance:
    """Counts, no clock: the same text always gets the same answer."""

    source: bytes
    steps: int = 0
    steps_after_error: int = 0
    reads: int = 0

    def read(self, offset: int, _point: object) -> bytes:
        self.reads += 1
        return self.source[offset : offset + _CHUNK_BYTES] if self.reads <= _READS else b""

    def is_spent(self, _offset: int, has_error: bool) -> bool:
        self.steps += 1
        self.steps_after_error += has_error
        return self.steps > _STEPS or self.steps_after_error > _STEPS_AFTER_ERROR


def parse(source: bytes) -> Node | None:
    """The root; None when it would cost too much. Broken parts are nodes of type ERROR."""
    allowance = _Allowance(source)
    try:
        tree = Parser(_LANGUAGE).parse(allowance.read, progress_callback=allowance.is_spent)
    except ValueError:  # "Parsing failed": given up
        return None
    return None if tree is None or allowance.reads > _READS else tree.root_node


def text_of(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")
