"""Runs a command as it is written, and as it is where expansions that may be empty are empty.

With another name it is another command, told as such. With fewer arguments it is supposed: `rm -rf $x/etc`
is well meant most of the time, so that rules make it a warning at most. Next: vanishing.py, execution.py.
"""

from collections.abc import Sequence

from egress_proxy.safety.execution import Executor
from egress_proxy.safety.reading import Reading
from egress_proxy.safety.values import UNKNOWN, Content, Redirect, Word
from egress_proxy.safety.vanishing import Fields, emptied_target, named_otherwise, words_of_all


def _supposed(fields: Fields) -> list[Word]:
    """`git push origin "$branch:main"`: what a colon parts has two names, or the line makes no sense."""
    is_half = bool(fields.emptied) and fields.emptied[0].text.startswith(":")
    return fields.words if is_half else fields.emptied


class BothReadings:
    def __init__(self, reading: Reading, executor: Executor) -> None:
        self._reading = reading
        self._memory = reading.memory
        self._executor = executor
        self._supposed: set[tuple[tuple[Word, ...], tuple[Redirect, ...], str]] = set()

    def execute(self, read: Sequence[Fields], stdin: Content, redirects: Sequence[Redirect]) -> Content:
        """Returns what goes down the pipe."""
        words = words_of_all(read)
        printed = self._executor.execute(words, stdin, redirects)
        if named := named_otherwise(read):
            printed += self._executor.execute(named, stdin, redirects)
            words = named
        supposed = [word for fields in read for word in _supposed(fields)]
        targets = [emptied_target(redirect) for redirect in redirects]
        is_elsewhere = self._memory.folder.startswith(f"{UNKNOWN}/")
        if supposed != words or targets != list(redirects) or is_elsewhere:
            self._suppose(supposed, stdin, targets)
        return printed

    def _suppose(self, words: list[Word], stdin: Content, redirects: list[Redirect]) -> None:
        """Without traces: the command as it is written is the one that later commands see."""
        folder = self._memory.folder.replace(UNKNOWN, "") or "."
        key = (tuple(words), tuple(redirects), folder)
        if self._reading.is_supposing or key in self._supposed:
            return
        self._supposed.add(key)
        memory, limits = self._memory.copy(), set(self._reading.limits)
        self._memory.folder = folder
        self._reading.is_supposing = True
        self._executor.execute(words, stdin, redirects)
        self._reading.is_supposing = False
        self._memory.restore(memory)
        self._reading.limits.intersection_update(limits)
