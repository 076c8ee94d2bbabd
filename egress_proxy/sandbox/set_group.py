"""Programs with the set-group bit that a command left in its roots: the bit is taken off, and they are told.

Everyone who starts such a program gets its owner's group. The filter lets the bit pass, since it cannot tell
a file from a folder, where the bit belongs to ordinary work. Next: syscall_rules.py (what is refused).
"""

import contextlib
import os
import stat
from collections import deque
from collections.abc import Iterable, Iterator

ENTRIES_LIMIT = 50_000  # some 100 ms
_PROGRAM = stat.S_ISGID | stat.S_IXGRP


def take_set_group_off(roots: Iterable[str], since_ns: int) -> tuple[tuple[str, ...], bool]:
    """Call it when the command and all that it started have ended. ``since_ns``: when it was started; what
    has not changed since is somebody else's. Answers the paths, and whether every entry was looked at."""
    found: list[str] = []
    for number, entry in enumerate(_below(roots)):
        if number == ENTRIES_LIMIT:
            return tuple(found), False
        with contextlib.suppress(OSError):
            status = entry.stat(follow_symlinks=False)
            if status.st_ctime_ns < since_ns:
                continue
            if stat.S_ISREG(status.st_mode) and status.st_mode & _PROGRAM == _PROGRAM:
                found.append(entry.path)
                _take_off(entry.path)
            elif stat.S_ISSOCK(status.st_mode) or stat.S_ISCHR(status.st_mode):
                found.append(entry.path)  # a socket's name, a whiteout: told of, they do nothing
    return tuple(found), True


def _below(roots: Iterable[str]) -> Iterator[os.DirEntry[str]]:
    """All but folders, what lies near a root first."""
    folders = deque(roots)
    while folders:
        with contextlib.suppress(OSError), os.scandir(folders.popleft()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                yield entry


def _take_off(path: str) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISREG(mode):
            os.chmod(f"/proc/self/fd/{descriptor}", stat.S_IMODE(mode) & ~stat.S_ISGID)
    finally:
        os.close(descriptor)
