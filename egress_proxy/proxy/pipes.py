"""Pipes through which bulk moves without being copied into this process (splice, Linux).

A pipe costs two descriptors, so few are made, and a flow has one only for a turn of bulk, or until its sink
has taken what is in it. Where there is none to be had, bytes are copied. Next: relay.py (the only user).
"""

import contextlib
import fcntl
import os
import resource
import sys

# So many sinks may be slow before bulk is copied for the others. Together they are a quarter of the pipe
# memory that Linux grants an ordinary user, whose other programs need pipes too.
PIPES = 16
# Room for what one splice takes in: the kernel cuts it into pages. An ordinary user may be refused: 64 KiB is
# what a pipe has then.
_PIPE_BYTES = 1_048_576


def pipe_limit() -> int:
    """How many pipes the descriptor limit leaves room for: where it is low, clients come first."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(PIPES, soft // 32)


class Pipe:
    """``held``: bytes that are in it."""

    __slots__ = ("held", "reader", "writer")

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)
        os.set_blocking(self.writer, False)
        self.held = 0
        if sys.platform == "linux":
            with contextlib.suppress(OSError):
                fcntl.fcntl(self.writer, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def close(self) -> None:
        os.close(self.reader)
        os.close(self.writer)


class PipePool:
    """Lends empty pipes. `close` it when no flow is left."""

    def __init__(self, limit: int | None = None) -> None:
        self._limit = pipe_limit() if limit is None else limit
        self._spare: list[Pipe] = []
        self._lent = 0

    def lend(self) -> Pipe | None:
        """A pipe, or None when as many as may be are lent, or no descriptor is left."""
        if self._lent >= self._limit:
            return None
        try:
            pipe = self._spare.pop() if self._spare else Pipe()
        except OSError:
            return None
        self._lent += 1
        return pipe

    def take_back(self, pipe: Pipe) -> None:
        """One that still holds something (its tunnel broke) is of no use to the next."""
        self._lent -= 1
        if pipe.held:
            pipe.close()
        else:
            self._spare.append(pipe)

    def close(self) -> None:
        while self._spare:
            self._spare.pop().close()
