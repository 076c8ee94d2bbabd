"""Folders of our own for sockets and stand-ins: 0700, short enough for a socket's path, and below no root.

Makes and removes folders, and says which places they may be in. Next: roots.py (refuses roots that hold these
places), probe.py and cli/run.py (use one).
"""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

# Of sun_path's 108 bytes on Linux and 104 on a Mac; the end that every name comes to.
_LIMIT_BYTES = 103
_ROOM_BYTES = len("/egress-run-4194304-12345678/attach.sock")
_SHARED = "/tmp"  # noqa: S108  mkdtemp: 0700, under a name that nobody can guess


def temporary_places(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Where programs of this user keep temporary files, ours among them: no command may write to all of it.
    A TMPDIR that is too long for a socket is never used by us."""
    named = environ.get("TMPDIR", "")
    is_one = os.path.isabs(named) and os.path.isdir(named) and _fits(named)
    return (_SHARED, named) if is_one else (_SHARED,)


@contextlib.contextmanager
def short_folder(prefix: str, environ: Mapping[str, str]) -> Iterator[Path]:
    """A new one, by its real path, removed at the end of the block. Raises OSError when no place will do.

    TMPDIR is the last of them: it may name a place that is a root of somebody else's sandbox.
    """
    folder = _made(prefix, environ)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _made(prefix: str, environ: Mapping[str, str]) -> Path:
    shared, *named = temporary_places(environ)
    for place in (shared, environ.get("XDG_RUNTIME_DIR", ""), *named):
        if not os.path.isabs(place) or not _fits(os.path.realpath(place)):
            continue
        with contextlib.suppress(OSError):
            return Path(tempfile.mkdtemp(prefix=prefix, dir=os.path.realpath(place)))
    raise OSError("neither /tmp nor XDG_RUNTIME_DIR nor TMPDIR takes a folder; name a short one in TMPDIR")


def _fits(place: str) -> bool:
    return len(os.fsencode(place)) + _ROOM_BYTES <= _LIMIT_BYTES
