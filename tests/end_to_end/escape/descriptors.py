"""Attempts with what a careless caller, or our own programs, leave open; and on terminals.

Run inside. Next: lifetime.py.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import stat
from collections.abc import Iterator

from tests.end_to_end.escape.attempts import Blocked, Escaped, Ground, Kind, Setting, attempt
from tests.end_to_end.escape.calls import checked, libc, write
from tests.end_to_end.escape.evidence import arrived, outside_changed, typed_in

TYPES = attempt(Kind.TTY, typed_in, Setting.TERMINAL)
TIOCSTI, TIOCSETD = 0x5412, 0x5423
HIGHEST = 1024


def left_open() -> Iterator[tuple[int, os.stat_result]]:
    for descriptor in range(3, HIGHEST):
        with contextlib.suppress(OSError):
            yield descriptor, os.fstat(descriptor)


@attempt(Kind.EFFECT, outside_changed, Setting.DESCRIPTORS)
def inherited_fd_file(ground: Ground) -> None:
    found = [number for number, status in left_open() if status.st_ino == ground.victim_inode]
    for descriptor in found:
        os.write(descriptor, b"x")
    if not found:
        raise Blocked("none is inherited")


@attempt(Kind.NET, arrived("inherited"), Setting.DESCRIPTORS)
def inherited_fd_socket(ground: Ground) -> None:
    found = [number for number, status in left_open() if stat.S_ISSOCK(status.st_mode)]
    for descriptor in found:
        os.write(descriptor, b"x")
    if not found:
        raise Blocked("none is inherited")


@attempt(Kind.EFFECT, outside_changed, Setting.DESCRIPTORS)
def inherited_dirfd_escape(ground: Ground) -> None:
    found = [number for number, status in left_open() if stat.S_ISDIR(status.st_mode)]
    for descriptor in found:
        os.close(os.open("by-folder", os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
    if not found:
        raise Blocked("none is inherited")


@attempt(Kind.SURFACE)
def descriptors_left(ground: Ground) -> None:
    """The proxy's connection, seccomp's notices, memory files with the plan."""
    found = [os.readlink(f"/proc/self/fd/{descriptor}") for descriptor, _ in left_open()]
    if found:
        raise Escaped(f"left open: {found}")
    raise Blocked("none")


@TYPES
def tiocsti_inject(ground: Ground) -> None:
    fcntl.ioctl(0, TIOCSTI, b"Z")


@TYPES
def tiocsti_via_dev_tty(ground: Ground) -> None:
    fcntl.ioctl(os.open("/dev/tty", os.O_RDWR), TIOCSTI, b"Z")


@TYPES
def tiocsti_high_bits(ground: Ground) -> None:
    """The kernel takes the request as an int: what is above 32 bits must not slip past a filter."""
    request = ctypes.c_ulong(0x1_0000_0000 | TIOCSTI)
    checked(libc.ioctl(0, request, ctypes.create_string_buffer(b"Z")))


@TYPES
def tiocsti_from_own_session(ground: Ground) -> None:
    """As the leader of a new session, with the terminal taken over."""
    if os.fork():
        os.wait()
        return
    os.setsid()
    with contextlib.suppress(OSError):
        fcntl.ioctl(0, 0x540E, 1)  # TIOCSCTTY
    with contextlib.suppress(OSError):
        fcntl.ioctl(0, TIOCSTI, b"Z")
    os._exit(0)


@attempt(Kind.TTY, setting=Setting.TERMINAL)
def line_discipline_set(ground: Ground) -> None:
    fcntl.ioctl(0, TIOCSETD, b"\0\0\0\0")
    raise Escaped("a line discipline loaded")


@attempt(Kind.TTY, arrived("other_terminal"), Setting.TERMINAL)
def pts_write_other_terminal(ground: Ground) -> None:
    write(ground.other_terminal, "x")


@attempt(Kind.TTY, arrived("other_terminal"))
def pts_write_without_terminal(ground: Ground) -> None:
    write(ground.other_terminal, "x")
