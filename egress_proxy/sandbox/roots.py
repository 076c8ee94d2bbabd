"""Which folders a confined command may write to: from what was asked for to real paths, or a refusal.

Looks at the file system and changes nothing; what is protected inside a root is in protected.py. A link that
is swapped later leads nowhere: what is given to a rung is the real path. Next: protected.py, spec.py.
"""

import contextlib
import os
import pwd
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

LIFTED_BY = "--dangerously-writable-root"

# Refused with all that is in them: the host runs and believes what lies there.
_SYSTEM_TREES = (
    "/etc", "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/boot", "/dev", "/proc", "/sys",
    "/run", "/System", "/Library", "/Applications",
)  # fmt: skip
# Refused themselves: too much is in them. /var/tmp/x, /var/www/x are ordinary places to work in.
_SYSTEM_FOLDERS = ("/", "/var", "/private")
_PLACES_OF_HOMES = ("/home", "/root", "/Users")
# Places to work in that lie in a system tree: containers keep sources in /usr/src, disks are mounted in /run.
_WORKPLACE = re.compile(r"(/usr/src|/usr/local/src|/run/user/[0-9]+|/run/media)/.")


class RootRefused(ValueError):
    """A folder that is no writable root. The message names it and says why and what lifts the refusal."""


@dataclass(frozen=True, slots=True)
class _Guarded:
    """No root may be or hold ``path``; with ``whole`` no root may lie in it either."""

    path: str
    what: str
    whole: bool = False


def canonical_roots(
    paths: Iterable[str],
    *,
    forced: bool = False,
    protected_trees: Sequence[str] = (),
    home: str | None = None,
) -> tuple[str, ...]:
    """Real paths, no root inside another. Raises RootRefused.

    ``protected_trees``: folders of ours (state, attach socket), existing or not. ``home``: beside the
    one that the system knows. ``forced`` lifts what is too dangerous, not what cannot work: a missing folder.
    """
    resolved = [(path, _resolve(path)) for path in paths]
    if not forced:
        guarded = tuple(_guarded(protected_trees, home))
        for path, root in resolved:
            if (reason := _danger(root, guarded)) is not None:
                shown = f"{path!r}" if path == root else f"{path!r} ({root!r})"
                raise RootRefused(f"writable root {shown} is refused: {reason}; {LIFTED_BY} lifts this")
    return outermost(root for _, root in resolved)


def outermost(roots: Iterable[str]) -> tuple[str, ...]:
    """Canonical roots without duplicates and without those inside another, in their order."""
    distinct = tuple(dict.fromkeys(roots))
    return tuple(root for root in distinct if not any(is_below(root, other) for other in distinct))


def is_below(path: str, folder: str) -> bool:
    """Whether ``path`` lies strictly inside ``folder``; both canonical."""
    return path != folder and path.startswith(folder.rstrip("/") + "/")


def is_in(path: str, folders: Iterable[str]) -> bool:
    """Whether ``path`` is one of the folders or lies in one; all canonical."""
    return any(path == folder or is_below(path, folder) for folder in folders)


def _resolve(path: str) -> str:
    # Paths go into profiles, argument lists and logs, each of which has a separator of its own.
    if not path or _has_controls(path):
        raise RootRefused(f"writable root {path!r} is refused: it is empty or has a control character")
    try:
        root = os.path.realpath(path, strict=True)
    except OSError as error:
        raise RootRefused(
            f"writable root {path!r} cannot be used: {error.strerror}; create it first"
        ) from error
    if _has_controls(root):
        raise RootRefused(f"writable root {path!r} is refused: {root!r} has a control character")
    if not os.path.isdir(root):
        raise RootRefused(
            f"writable root {path!r} is refused: it is not a folder; name the one that it is in"
        )
    return root


def _has_controls(path: str) -> bool:
    return any(unicodedata.category(character) in {"Cc", "Zl", "Zp"} for character in path)


def _guarded(protected_trees: Sequence[str], home: str | None) -> Iterator[_Guarded]:
    for path in _SYSTEM_TREES:
        yield _Guarded(path, "the system folder", whole=True)
    for path in _SYSTEM_FOLDERS:
        yield _Guarded(path, "the system folder")
    for path in _PLACES_OF_HOMES:
        yield _Guarded(path, "a place of home folders,")
    if home is not None:
        yield _Guarded(home, "the home folder")
    with contextlib.suppress(KeyError):  # a container may run as a uid that has no name
        yield _Guarded(pwd.getpwuid(os.geteuid()).pw_dir, "the home folder")
    for path in protected_trees:
        yield _Guarded(path, "the proxy's own folder", whole=True)
    # A module planted there would run outside the sandbox, with the next command that is confined.
    for path in (sys.prefix, sys.base_prefix, os.path.dirname(os.path.dirname(__file__))):
        yield _Guarded(path, "the folder of the running Python program", whole=True)


def _danger(root: str, guarded: Iterable[_Guarded]) -> str | None:
    """Why a root is refused. Folders are told by what they are and not by name: a second mount of one, or
    another case of its letters where case does not count, is the same folder."""
    own = _identity(root)
    around = {_identity(folder) for folder in _upwards(root) if folder != root}
    for guard in guarded:
        path = os.path.realpath(guard.path)
        if own == _identity(path):
            return f"it is {guard.what} {path!r}"
        if any(own == _identity(folder) for folder in _upwards(path)):
            return f"it holds {guard.what} {path!r}"
        if guard.whole and _identity(path) in around:
            return f"it lies in {guard.what} {path!r}"
    if ".git" in root.lower().split("/"):
        return "it lies in a git folder, whose hooks and settings the host's git runs"
    return _holds_a_home(root)


def _upwards(path: str) -> Iterator[str]:
    """The path and the folders around it, "/" last; of a workplace only those inside that."""
    workplace = _WORKPLACE.match(path)
    end = workplace[1] if workplace else ""
    while path != end:
        yield path
        if path == "/":
            return
        path = os.path.dirname(path)


def _identity(path: str) -> tuple[int, int] | str:
    try:
        status = os.stat(path)
    except OSError:
        return path  # not there: equal to nothing that is
    return status.st_dev, status.st_ino


def _holds_a_home(root: str) -> str | None:
    """By name alone: to look at other people's homes may mount them."""
    for entry in pwd.getpwall():
        place, name = os.path.split(os.path.normpath(entry.pw_dir))
        home = os.path.join(os.path.realpath(place), name)
        if home == root or is_below(home, root):
            return f"it is or holds the home folder {home!r}"
    return None
