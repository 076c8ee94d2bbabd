"""What a process does before it imports anything that takes time: descriptors and signals of its start.

Only the standard library's smallest parts may be imported here. Next: main.py (which is imported after this).
"""

import os
import signal
import sys


def begin(*, is_service: bool) -> None:
    """Call it first. ``is_service``: SIGHUP means a reload, and is not to end what has not begun yet."""
    open_what_is_closed()
    if is_service and signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    # An interrupt among imports would be a traceback; a shell that made it ignored (`&`) wants it ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def heed_interrupts() -> None:
    """From here on somebody catches KeyboardInterrupt: what is open can be closed in order."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def open_what_is_closed() -> None:
    """A socket that got number 2 would be sent whatever a library writes to stderr."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, which is this one
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace")
