"""Whether other users of this machine could write a file or put another in its place.

No policy: who asks refuses or warns. Root and this process's own user are trusted. Standard library alone.
Next: settings/toml_file.py and proxy/unix_socket.py (refuse), cli/service_checks.py (warns).
"""

import os
import stat
from collections.abc import Iterator

_TRUSTED = frozenset({0})
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def writable_by_others(status: os.stat_result) -> str | None:
    """The mode of a regular file that its group or everybody may write, as `chmod` takes it; else None."""
    if not stat.S_ISREG(status.st_mode) or not status.st_mode & _OTHERS_MAY_WRITE:
        return None
    return f"{stat.S_IMODE(status.st_mode):04o}"


def open_folder_above(path: str) -> str | None:
    """The first folder on the way to a path in which everybody may put one file in the place of another.

    In a sticky folder such as /tmp everybody may make files, and replace his own alone. Both ways are looked
    at: the one that is written and, past its links, the one that is taken.
    """
    for folder in dict.fromkeys((*_above(os.path.abspath(path)), *_above(os.path.realpath(path)))):
        try:
            mode = os.stat(folder).st_mode
        except OSError:  # it is not there, or closed to us: whoever opens the path will say so
            continue
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            return folder
    return None


def file_owner(path: str) -> int | None:
    """The user to whom a file belongs, where that is neither root nor this process's; else None."""
    try:
        owner = os.stat(path).st_uid
    except OSError:
        return None
    return None if owner in _TRUSTED or owner == os.geteuid() else owner


def _above(path: str) -> Iterator[str]:
    while path != (parent := os.path.dirname(path)):
        path = parent
        yield path
