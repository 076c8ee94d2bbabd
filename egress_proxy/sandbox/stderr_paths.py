"""Which paths outside a sandbox's roots the error lines of a command name, so that a denial can be told.

Pure but for links inside the roots, and for what the caller may write: a path that a command printed is not
looked up outside, where that could mount or hang something. Next: denial.py (when lines are read at all).
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from egress_proxy.sandbox.obeyed_names import PROTECTED_NAMES
from egress_proxy.sandbox.roots import is_in

PATHS_LIMIT = 64
"""More denied paths than that tell nobody more."""
_PATH_LIMIT = 4096  # linux/limits.h
_LINKS_LIMIT = 40  # as the kernel, path_resolution(7)

# A rename or removal of a mount point, which is what protects the names in it.
_BUSY = "device or resource busy"
_QUOTED = re.compile(r"""(?<!\w)'([^']+)'(?!\w)|"([^"]+)"|`([^'`]+)[`']|\u2018([^\u2019]+)\u2019""")
_ABSOLUTE = re.compile(r"(?:^|(?<=[\s(=]))/.*")


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a rung's refusals read. ``signatures``: in the C locale, in lower case.

    ``ambiguous``: they read like those of a file that the caller may not write in any case, which is no
    denial of ours. ``by_name``: protected names are refused wherever they are.
    """

    signatures: tuple[str, ...]
    ambiguous: bool = False
    by_name: bool = False


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where the command could write. ``roots``: canonical; ``cwd``: where it started; ``protected``: what is
    read-only or a mount point in the roots."""

    roots: tuple[str, ...]
    cwd: str
    protected: tuple[str, ...] = ()


def denied_paths(stderr: str, dialect: Dialect, bounds: Bounds) -> tuple[str, ...]:
    """The first denied path of each line that has a signature and names one."""
    found: dict[str, None] = {}
    for line in stderr.splitlines():
        if len(found) == PATHS_LIMIT:
            break
        path = _denied_on(line, dialect, bounds)
        if path is not None:
            found[path] = None
    return tuple(found)


def _denied_on(line: str, dialect: Dialect, bounds: Bounds) -> str | None:
    lower = line.lower()
    refused = [lower.index(text) for text in dialect.signatures if text in lower]
    busy = [lower.index(_BUSY)] if _BUSY in lower else []
    if not refused and not busy:
        return None
    for candidate in _candidates(line, min(refused + busy)):
        if not _is_path(candidate):
            continue
        path = _resolve(candidate, bounds)
        if is_in(path, bounds.protected) or (refused and _is_refused(path, dialect, bounds)):
            return path
    return None


def _is_path(candidate: str) -> bool:
    return 0 < len(candidate) < _PATH_LIMIT and "\0" not in candidate


def _is_refused(path: str, dialect: Dialect, bounds: Bounds) -> bool:
    if is_in(path, bounds.roots):
        return dialect.by_name and any(f"/{name}/" in f"{path}/" for name in PROTECTED_NAMES)
    return not dialect.ambiguous or _may_write(path)


def _may_write(path: str) -> bool:
    """Whether the caller could, unconfined: change what is there, or the folder that it is or would be in."""
    return os.access(path, os.W_OK) or os.access(os.path.dirname(path), os.W_OK)


def _candidates(line: str, end: int) -> Iterator[str]:
    """What may be the path on a line whose error text begins at ``end``: what is in quotes, or else parts of
    what stands before. Tools write `NAME: …: PATH: TEXT`, `cannot do PATH: TEXT` or `PATH (TEXT)`."""
    quoted = [next(filter(None, match)) for match in _QUOTED.findall(line)]
    if quoted:
        yield from quoted
        return
    segments = line[:end].rstrip(" (:").split(": ")
    # The first of several is the program: /usr/bin/ld is outside the roots, and not what was denied.
    for segment in segments[1:] or segments:
        if (absolute := _ABSOLUTE.search(segment)) is not None:
            yield absolute[0]
    yield segments[-1]
    yield segments[-1].rpartition(" ")[2]


def _resolve(path: str, bounds: Bounds) -> str:
    """Absolute, with `..` and with the links that lie in the roots; once outside it stays as it is spelt."""
    rest = os.path.normpath(os.path.join(bounds.cwd, path)).lstrip("/").split("/")
    resolved, links = "", 0
    while rest:
        step = f"{resolved}/{rest.pop(0)}"
        target = _link(step) if links < _LINKS_LIMIT and is_in(resolved, bounds.roots) else None
        if target is None:
            resolved = step
            continue
        links += 1
        whole = os.path.normpath(os.path.join(resolved, target, *rest))
        resolved, rest = "", whole.lstrip("/").split("/")
    return resolved


def _link(path: str) -> str | None:
    try:
        return os.readlink(path)
    except (OSError, ValueError):
        return None
