"""The three streams of `run`'s command: which of ours it gets itself, and which by a pipe that is copied.

Copied by threads, since nobody knows how fast ours are read or written. Next: run_child.py (gives them to
the command).
"""

import asyncio
import contextlib
import os
import select
import stat
import sys
import threading
from collections.abc import Iterator

# Of stderr, for what the command says of refused files.
TAIL_BYTES = 65_536
_CHUNK_BYTES = 65_536
STDIN, STDOUT, STDERR = 0, 1, 2


def fill_closed_streams() -> None:
    """Call it before anything is opened: what is opened first would else become the command's stdin or
    stderr. As closed as can be: reads of stdin and writes of the others fail."""
    for number, mode in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_RDONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, mode), True)  # the lowest number that is free
    if sys.stderr is None:  # as Python has it then, and as no log can be written to
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  it stays


@contextlib.contextmanager
def given_stdin() -> Iterator[int | None]:
    """What the command gets: None for ours. A pipe for a file, which it could open anew by
    /proc/self/fd/0 to write, and for a folder or socket, which lead past the sandbox."""
    if _may_be_handed_on(STDIN):
        yield None
        return
    read_end, write_end = os.pipe()
    copy = threading.Thread(target=_feed, args=(STDIN, write_end))
    copy.start()
    try:
        yield read_end
    finally:
        os.close(read_end)  # which ends the copying, if the command has not read all
        copy.join()


def _may_be_handed_on(descriptor: int) -> bool:
    """Pipes, terminals, /dev/null: what cannot be opened anew for more than it is."""
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)


class CopiedStderr:
    """A pipe in place of our stderr, copied there. ``child_end``: for the command."""

    def __init__(self) -> None:
        self._read_end, self.child_end = os.pipe()
        self._ended, self._end = os.pipe()
        self._tail = bytearray()
        self._loop = asyncio.get_running_loop()
        self._is_copied = asyncio.Event()
        # A daemon: it may be held up for ever by who does not read our stderr.
        threading.Thread(target=self._copy, daemon=True).start()

    def started(self) -> None:
        """The command has its end."""
        os.close(self.child_end)
        self.child_end = -1

    async def tail(self, limit_s: float | None = None) -> bytes:
        """The end of what was said. Call it when the command has ended; what is there is copied first,
        which takes as long as who reads our stderr, but ``limit_s`` at most."""
        self._tell_end()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._is_copied.wait()
        return bytes(self._tail)

    def __enter__(self) -> "CopiedStderr":
        return self

    def __exit__(self, *_: object) -> None:
        if self.child_end >= 0:
            self.started()
        self._tell_end()

    def _tell_end(self) -> None:
        if self._end >= 0:
            os.close(self._end)
            self._end = -1

    def _copy(self) -> None:
        _copy(self._read_end, STDERR, self._ended, self._tail)
        os.close(self._read_end)
        os.close(self._ended)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(self._is_copied.set)


def _feed(source: int, sink: int) -> None:
    _copy(source, sink, sink)
    os.close(sink)


def _copy(source: int, sink: int, end: int, tail: bytearray | None = None) -> None:
    """Until the source ends; or ``end`` has lost its other side, when what is there is still copied.

    With ``tail`` also after the sink is gone, so that whoever writes there is not held up.
    """
    poll = select.poll()
    poll.register(source, select.POLLIN)
    poll.register(end, 0)  # errors and the other side's end are always told
    is_heard = True
    while is_heard or tail is not None:
        if source not in dict(poll.poll()):
            return
        chunk = _read(source)
        if not chunk:
            return
        if tail is not None:
            tail += chunk
            del tail[:-TAIL_BYTES]
        is_heard = is_heard and _write(sink, chunk)


def _read(descriptor: int) -> bytes:
    """Nothing at the end, and where there is nothing to read: a folder, a connection that was reset."""
    try:
        return os.read(descriptor, _CHUNK_BYTES)
    except OSError:
        return b""


def _write(descriptor: int, chunk: bytes) -> bool:
    """False when nobody reads any more. What we were given may be non-blocking: then it is waited for."""
    view = memoryview(chunk)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            select.select((), (descriptor,), ())
        except OSError:
            return False
    return True
