"""The terminal of `run` while the command has it: afterwards its modes and its foreground are as before.

A command that dies in raw mode, or whose own shell had the foreground, would else leave a dead terminal.
Next: run_child.py (uses it).
"""

import contextlib
import os
import signal
import termios
from collections.abc import Iterator


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
                termios.tcsetattr(descriptor, termios.TCSADRAIN, modes)


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
