"""The terminal and the streams of `run` while the command has them: afterwards they are as before.

A command that dies in raw mode, or whose own shell had the foreground, would else leave a dead terminal; what
it sets on a stream holds for the shell that has the same. Next: run_child.py (uses it).
"""

import contextlib
import fcntl
import os
import signal
import termios
from collections.abc import Iterable, Iterator

_TIOCGEXCL = 0x80045440  # asm-generic/ioctls.h


@contextlib.contextmanager
def kept_terminal(descriptor: int) -> Iterator[None]:
    """Give the terminal back as it was, unless another job of the user's shell has it by then."""
    try:
        modes = termios.tcgetattr(descriptor)
    except termios.error:  # hung up
        yield
        return
    try:
        yield
    finally:
        with contextlib.suppress(OSError, termios.error), _unstoppable():
            if _take_foreground(descriptor):
                # With what is still to be read: a terminal's answer to a query would be typed into the shell.
                termios.tcsetattr(descriptor, termios.TCSAFLUSH, modes)


@contextlib.contextmanager
def kept_flags(descriptors: Iterable[int]) -> Iterator[None]:
    """O_NONBLOCK, O_APPEND and who may open the terminal: they belong to what is open, not to the process."""
    before = {descriptor: _flags(descriptor) for descriptor in descriptors}
    try:
        yield
    finally:
        for descriptor, (flags, is_exclusive) in before.items():
            with contextlib.suppress(OSError):
                fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)
                if is_exclusive is False:
                    fcntl.ioctl(descriptor, termios.TIOCNXCL)


def _flags(descriptor: int) -> tuple[int, bool | None]:
    """The second: None for what is no terminal."""
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    if not os.isatty(descriptor):
        return flags, None
    try:
        return flags, any(fcntl.ioctl(descriptor, _TIOCGEXCL, bytes(4)))
    except OSError:  # a system without the question
        return flags, False


def _take_foreground(descriptor: int) -> bool:
    """Whether it is ours. It is taken from a group that has ended, and from no other. Raises OSError."""
    ours, foreground = os.getpgrp(), os.tcgetpgrp(descriptor)
    if foreground == ours:
        return True
    with contextlib.suppress(PermissionError):
        try:
            os.killpg(foreground, 0)
        except ProcessLookupError:
            os.tcsetpgrp(descriptor, ours)
            return True
    return False


@contextlib.contextmanager
def _unstoppable() -> Iterator[None]:
    """Who is not in the foreground is stopped for such calls, unless this signal is blocked."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
