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
# What stands before a path that is not quoted, and is no part of it: `cannot create x`, `error opening x`.
_PHRASE = re.compile(
    r"(?:can ?not|can't|could ?n[o']t|unable to|failed|failure|error|fatal|warning|while"
    r"|(?:open|creat|writ|renam|remov|delet)(?:e|ing)?)\b.* ",
    re.IGNORECASE,
)
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


def denied_paths(
    stderr: str, dialect: Dialect, bounds: Bounds, *, only_protected: bool = False
) -> tuple[str, ...]:
    """The first denied path of each line that has a signature and names one. ``only_protected``: of a command
    that went well all the same, which is no news of other paths."""
    found: dict[str, None] = {}
    places = _with_ancestors(bounds)
    for line in stderr.splitlines():
        if len(found) == PATHS_LIMIT:
            break
        path = _denied_on(line, dialect, bounds, places)
        if path is not None and (not only_protected or _is_protected(path, bounds, places)):
            found[path] = None
    return tuple(found)


def _with_ancestors(bounds: Bounds) -> frozenset[str]:
    """What is protected, and the folders in the roots that it lies in, which cannot go either."""
    places = set(bounds.protected)
    for path in bounds.protected:
        above = os.path.dirname(path)
        while above not in places and is_in(above, bounds.roots):
            places.add(above)
            above = os.path.dirname(above)
    return frozenset(places)


def _is_protected(path: str, bounds: Bounds, places: frozenset[str]) -> bool:
    return not os.path.isabs(path) or path in places or is_in(path, bounds.protected)


def _denied_on(line: str, dialect: Dialect, bounds: Bounds, places: frozenset[str]) -> str | None:
    lower = line.lower()
    refused = [lower.index(text) for text in dialect.signatures if text in lower]
    busy = [lower.index(_BUSY)] if _BUSY in lower else []
    if not refused and not busy:
        return None
    for candidate in _candidates(line, min(refused + busy)):
        if not _is_path(candidate):
            continue
        path = _resolve(candidate, bounds)
        if is_in(path, bounds.protected) or (busy and path in places):
            return path
        if (elsewhere := _protected_elsewhere(candidate, places)) is not None:
            return elsewhere
        if refused and _is_refused(path, dialect, bounds):
            return path
    return None


def _protected_elsewhere(candidate: str, places: frozenset[str]) -> str | None:
    """What a program means that has gone to another folder, as `git -C work config` does and `cd work; rm`:
    the one protected path that ends so. Of several it is not known which: then as it is spelt."""
    if os.path.isabs(candidate):
        return None
    end = "/" + os.path.normpath(candidate)
    found = [path for path in places if path.endswith(end)]
    return found[0] if len(found) == 1 else candidate if found else None


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
    absolute = [found[0] for segment in segments[1:] or segments if (found := _ABSOLUTE.search(segment))]
    yield from absolute
    if absolute:
        return
    yield _PHRASE.sub("", segments[-1], count=1)
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
