"""From a recipe to a command line that can be spawned: opens what its words stand for, numbers them.

Memory files and pipes, nothing on disk. Next: plan.py (Recipe), confinement.py (spawns and reads back).
"""

import contextlib
import os
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from egress_proxy.sandbox.plan import ARGS, CHANNEL, COMMAND, ERRORS, FILTER, LAUNCH, STATUS, SYNC, Recipe

# What an error line or bwrap's status documents come to, and more.
_ANSWER_LIMIT = 65_536


class Descriptors:
    """``argv`` and ``pass_fds`` for a spawn; `close_passed` after it; the streams are read at the end."""

    def __init__(self, recipe: Recipe, channel: int | None = None, command: Sequence[str] = ()) -> None:
        """``channel``: the attach connection, or what stands for it; it stays the caller's."""
        encoded = recipe.encoded(command)
        own = recipe.long_words if encoded else recipe.words
        self._passed: dict[str, int] = {}
        self._read_ends: dict[str, int] = {}
        try:
            self._open(recipe, {*own, *recipe.args}, encoded, channel)
        except OSError:
            self.close()
            raise
        self.argv = (*map(self._number, own), *(() if encoded else command))
        self.pass_fds = tuple(self._passed.values())

    def _open(self, recipe: Recipe, wanted: set[str], command: bytes, channel: int | None) -> None:
        for word in {ERRORS, STATUS} & wanted:
            self._read_ends[word], self._passed[word] = os.pipe()
        # bwrap closes its --sync-fd in the command, so the launcher needs another one.
        if channel is not None:
            self._passed |= {word: os.dup(channel) for word in {CHANNEL, SYNC} & wanted}
        self._passed |= {
            word: _memory_file(word, content)
            for word, content in ((LAUNCH, recipe.launch), (FILTER, recipe.program), (COMMAND, command))
            if word in wanted
        }
        if ARGS in wanted:
            arguments = b"".join(os.fsencode(self._number(word)) + b"\0" for word in recipe.args)
            self._passed[ARGS] = _memory_file(ARGS, arguments)

    def _number(self, word: str) -> str:
        return str(self._passed[word]) if word in self._passed else word

    def close_passed(self) -> None:
        """The spawned process has them now; kept here too, a pipe would never end."""
        for descriptor in self._passed.values():
            os.close(descriptor)
        self._passed.clear()

    def errors(self) -> str:
        """What the launcher says, once it has started the command or has failed to: "" is started."""
        return self._read(ERRORS)

    def status(self) -> str | None:
        """bwrap's status documents; None where the rung has no such stream."""
        return self._read(STATUS) if STATUS in self._read_ends else None

    def _read(self, word: str) -> str:
        descriptor = self._read_ends.pop(word, None)
        if descriptor is None:
            return ""
        with os.fdopen(descriptor, "rb") as stream:
            return stream.read(_ANSWER_LIMIT).decode("utf-8", "replace")

    def close(self) -> None:
        for descriptor in (*self._passed.values(), *self._read_ends.values()):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._passed.clear()
        self._read_ends.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _memory_file(name: str, content: bytes) -> int:
    """A descriptor from which exactly these bytes can be read."""
    descriptor = os.memfd_create(name.lstrip("@"), os.MFD_CLOEXEC)
    with os.fdopen(os.dup(descriptor), "wb") as stream:
        stream.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
