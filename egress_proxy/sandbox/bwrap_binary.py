"""Which bwrap is trusted, and what it can do: found on PATH among the system's own folders.

Runs it for its version alone; whether it can confine is choose.py's to find out. Next: bwrap.py (its argv).
"""

import functools
import os
import re
import stat
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

# Where a distribution or root puts it, NixOS and Guix besides. Elsewhere on PATH, as npm and direnv extend it
# for a project, an earlier command could have put one, for root too.
SYSTEM_FOLDERS = (
    "/usr/bin",
    "/bin",
    "/usr/local/bin",
    "/usr/libexec",
    "/nix/store",
    "/gnu/store",
    "/run/current-system",
    "/run/wrappers",
)
_DISABLE_USERNS_SINCE = (0, 8)
_VERSION_TIMEOUT_S = 2.0
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class BwrapBinary:
    """``disables_userns``: it knows --disable-userns, which a setuid one and those before 0.8 do not."""

    path: str
    disables_userns: bool


class NoBwrap(Exception):
    """There is no bwrap to be trusted. The message says what was found instead."""


def find_bwrap(search_path: str, roots: Sequence[str], own: Sequence[str] = ()) -> BwrapBinary:
    """The first trusted bwrap of a PATH. Raises NoBwrap.

    A folder that the command may write, or that others can, could hold anything under that name. ``own``: the
    working folder and the homes, in which commands work and have worked.
    """
    passed_over = ""
    for folder in search_path.split(os.pathsep):
        path = os.path.join(folder, "bwrap")
        if not os.path.isabs(folder) or not os.access(path, os.X_OK):
            continue
        real = os.path.realpath(path)
        fault = _distrust(real, roots, own)
        if not fault:
            status = os.stat(real)
            is_setuid = bool(status.st_mode & stat.S_ISUID)
            return BwrapBinary(real, _disables_userns(real, is_setuid, status.st_mtime_ns))
        passed_over = passed_over or f"; {path} is passed over: {fault}"
    raise NoBwrap(f"no bwrap on PATH{passed_over} (install the package bubblewrap)")


def _distrust(path: str, roots: Sequence[str], own: Sequence[str]) -> str:
    """Why a file may be somebody else's than root's, or "" ."""
    if _is_below(path, roots):
        return "it lies in a writable root"
    # `/` is the working folder and the home of who has none, and everything is below it.
    if _is_below(path, [real for real in map(os.path.realpath, own) if real != "/"]):
        return "it lies in the working folder or a home"
    if not _is_below(path, SYSTEM_FOLDERS):
        return "it lies in no folder of the system's, such as /usr/bin"
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != 0 or status.st_mode & _WRITABLE_BY_OTHERS:
        return "root is not the only one who can write it"
    folder = os.path.dirname(path)
    while True:
        status = os.stat(folder)
        shared = status.st_mode & _WRITABLE_BY_OTHERS and not status.st_mode & stat.S_ISVTX
        if status.st_uid != 0 or shared:
            return f"root is not the only one who can write {folder}"
        if folder == os.path.dirname(folder):
            return ""
        folder = os.path.dirname(folder)


def _is_below(path: str, folders: Sequence[str]) -> bool:
    return any(os.path.commonpath((folder, path)) == folder for folder in folders)


@functools.cache
def _disables_userns(path: str, is_setuid: bool, _changed_ns: int) -> bool:
    """Whether --disable-userns is there. The filter refuses new namespaces as well, so it may be missing."""
    try:
        done = subprocess.run(
            (path, "--version"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_VERSION_TIMEOUT_S,
            check=False,
            env={},
        )
    except (OSError, subprocess.TimeoutExpired):
        return False  # what is wrong with it the probe will show, in its own words
    number = re.match(rb"bubblewrap (\d+)\.(\d+)", done.stdout)
    return not is_setuid and number is not None and (int(number[1]), int(number[2])) >= _DISABLE_USERNS_SINCE
