"""The audit log: one JSON line per event, each holding the hash of the line before it.

A line is written whole or not at all, and before the answer it tells of. What may be in it is fixed by
core/events.py. Next: core/events.py, cli/serve.py (who else hears of events).
"""

import contextlib
import enum
import errno
import fcntl
import hashlib
import json
import os
import stat
from pathlib import Path

from egress_proxy.core.events import Event
from egress_proxy.core.seams import AuditUnavailable, Now
from egress_proxy.core.timestamp import timestamp
from egress_proxy.proxy.audit_line import line_of

FIRST_PREVIOUS = "0" * 64
# What is read back at the start to find the last line; a line has some 500 bytes.
_TAIL_BYTES = 65_536


class OnError(enum.StrEnum):
    """What to do when a line cannot be written: refuse what it tells of, or go on without it."""

    REFUSE = "refuse"
    CONTINUE = "continue"


class AuditLog:
    """An append-only file of mode 0600."""

    def __init__(self, path: Path, on_error: OnError, now: Now) -> None:
        """Open or make the file and find the end of its chain. Raises OSError."""
        self._path = path
        self._on_error = on_error
        self._now = now
        self._descriptor = -1
        self._previous, self._sequence = FIRST_PREVIOUS, 0
        self.reopen()

    def reopen(self) -> None:
        """Open the path anew, after it was moved away or at the start. Raises OSError; the old file stays."""
        descriptor = open_private(self._path)
        try:
            if not self._is_open_already(descriptor):
                _have_alone(descriptor)
            previous, sequence = _end_of_chain(descriptor)
        except OSError:
            os.close(descriptor)
            raise
        self._previous, self._sequence = previous, sequence
        if self._is_open_already(descriptor):
            os.close(descriptor)  # the lock goes with the first one
            return
        self.close()
        self._descriptor = descriptor

    def _is_open_already(self, descriptor: int) -> bool:
        return self._descriptor >= 0 and os.path.samestat(os.fstat(descriptor), os.fstat(self._descriptor))

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def write(self, *events: Event) -> bool:
        """Append events in one write, all or none; whether they are in the file.

        Raises AuditUnavailable when that fails and nothing may pass unrecorded.
        """
        time = timestamp(self._now())
        previous, sequence, lines = self._previous, self._sequence, bytearray()
        for event in events:
            line = line_of(event, sequence, time, previous)
            previous, sequence = hashlib.sha256(line).hexdigest(), sequence + 1
            lines += line + b"\n"
        is_written = self._append(lines)
        if is_written:
            self._previous, self._sequence = previous, sequence
        return is_written

    def _append(self, lines: bytearray) -> bool:
        try:
            written = os.write(self._descriptor, lines)
            if written == len(lines):
                return True
            # A full disk took a part: no half line stays.
            os.ftruncate(self._descriptor, os.fstat(self._descriptor).st_size - written)
        except OSError as error:
            cause: OSError | None = error
        else:
            cause = None
        if self._on_error is OnError.REFUSE:
            raise AuditUnavailable("the audit log cannot be written") from cause
        return False


def open_private(path: Path) -> int:
    """A descriptor to append by, mode 0600 even where a file with another one was there. Raises OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode) and mode & 0o077:  # never a device: as root that would take /dev/null from all
        try:
            os.fchmod(descriptor, 0o600)
        except OSError:
            os.close(descriptor)
            raise
    return descriptor


def _have_alone(descriptor: int) -> None:
    """Two chains in one file would read like one that was tampered with. A device is nobody's alone."""
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OSError(errno.EBUSY, "another proxy writes to it; name another file") from None


def _end_of_chain(descriptor: int) -> tuple[str, int]:
    """Hash of the last line and the next sequence number."""
    tail = _tail(descriptor)
    if not tail:
        return FIRST_PREVIOUS, 0
    if not tail.endswith(b"\n"):
        # Torn by a crash of the machine: it stays for whoever verifies, and the chain goes on from it.
        os.write(descriptor, b"\n")
    lines = tail.rstrip(b"\n").split(b"\n")
    sequence = 0
    for distance, line in enumerate(reversed(lines), start=1):  # a torn line counts, too
        with contextlib.suppress(ValueError, LookupError, TypeError, OverflowError):
            sequence = int(json.loads(line)["seq"]) + distance
            break
    return hashlib.sha256(lines[-1]).hexdigest(), sequence


def _tail(descriptor: int) -> bytes:
    """The end of the file with the whole of its last line."""
    size, wanted = os.fstat(descriptor).st_size, _TAIL_BYTES
    while True:
        tail = os.pread(descriptor, wanted, max(0, size - wanted)) if size else b""
        if wanted >= size or b"\n" in tail.rstrip(b"\n"):
            return tail
        wanted *= 2
