"""Which folders a confined command may write to: from what was asked for to real paths, or a refusal.

Looks at the file system and changes nothing; what is protected inside a root is in protected.py. A link that
is swapped later leads nowhere: what is given to a rung is the real path. Next: start_places.py, protected.py.
"""

import contextlib
import os
import pwd
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from egress_proxy.sandbox.environment import host_environment
from egress_proxy.sandbox.obeyed_names import WORKSPACE_NAMES
from egress_proxy.sandbox.real_path import real_path
from egress_proxy.sandbox.secret_places import SECRET_NAMES
from egress_proxy.sandbox.short_folder import temporary_places
from egress_proxy.sandbox.start_places import AGENT_WORKPLACES, START_PLACES

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
_AGENT_WORKPLACE = re.compile(AGENT_WORKPLACES)
_WORKPLACE = re.compile(r"(/usr/src|/usr/local/src|/run/user/[0-9]+|/run/media)/.")


class RootRefused(ValueError):
    """A folder that is no writable root. The message names it and says why and what lifts the refusal."""


@dataclass(frozen=True, slots=True)
class Guarded:
    """No root may be ``path`` or, unless it ``may_be_held``, hold it; with ``whole`` no root may lie in it
    either. ``why``: for people."""

    path: str
    what: str
    whole: bool = False
    why: str = ""
    may_be_held: bool = False

    def __str__(self) -> str:
        return f"{self.what} {self.path!r}{self.why and f', and {self.why}'}"


_Identity = tuple[int, int] | str


def canonical_roots(
    paths: Iterable[str],
    *,
    forced: bool = False,
    protected_trees: Sequence[str] = (),
    home: str | None = None,
    started_from: Sequence[Guarded] = (),
) -> tuple[str, ...]:
    """Real paths, no root inside another. Raises RootRefused.

    ``protected_trees``: folders of ours (state, attach socket), existing or not. ``home``: beside the
    one that the system knows. ``started_from``: started_from.py. ``forced`` lifts what is too dangerous, not
    what cannot work: a missing folder.
    """
    resolved = [(path, _resolve(path)) for path in paths]
    if not forced:
        guards = _Guards((*started_from, *_guarded(protected_trees, home), *_in_homes(home)))
        for path, root in resolved:
            reason = _named(os.path.abspath(path)) or _named(root) or guards.danger(root)
            reason = reason or _holds_a_home(root) or _astray(path, root, resolved)
            if reason is not None:
                shown = f"{path!r}" if path == root else f"{path!r} ({root!r})"
                raise RootRefused(f"writable root {shown} is refused: {reason}; {LIFTED_BY} lifts this")
    return outermost(root for _, root in resolved)


def links_to(path: str) -> Iterator[str]:
    """The symbolic links on the way to an absolute path, by their real places."""
    resolved = ""
    for part in path.strip("/").split("/"):
        step = f"{resolved}/{part}"
        if os.path.islink(step):
            yield step
        resolved = real_path(step).rstrip("/")


def _astray(path: str, root: str, resolved: Iterable[tuple[str, str]]) -> str | None:
    """A link that an earlier run could have put there, since it lies where commands write: in the working
    folder or in another root, and leads out of it. (`rmdir build; ln -s ../../elsewhere build`)"""
    places = {os.path.realpath(os.curdir), *(other for _, other in resolved if other != root)} - {"/"}
    for link in links_to(os.path.abspath(path)):
        for place in places:
            if is_in(os.path.dirname(link), [place]) and not is_in(root, [place]):
                reason = f"the link {link!r} leads out of {place!r}, and a command could have made it"
                return f"{reason}; name {root!r}"
    return None


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


def _guarded(protected_trees: Sequence[str], home: str | None) -> Iterator[Guarded]:
    for path in _SYSTEM_TREES:
        yield Guarded(path, "the system folder", whole=True)
    for path in _SYSTEM_FOLDERS:
        yield Guarded(path, "the system folder")
    for path in _PLACES_OF_HOMES:
        yield Guarded(path, "a place of home folders,")
    for path in homes(home):
        yield Guarded(path, "the home folder")
    for path in temporary_places(host_environment()):
        # Programs of this user outside believe what they find there, ours among them.
        yield Guarded(path, "the folder for temporary files")
    for path in protected_trees:
        yield Guarded(path, "the proxy's own folder", whole=True)
    # A module planted there would run outside the sandbox, with the next command that is confined.
    for path in (sys.prefix, sys.base_prefix, os.path.dirname(os.path.dirname(__file__))):
        yield Guarded(path, "the folder of the running Python program", whole=True)


def homes(home: str | None) -> tuple[str, ...]:
    """The one that the caller's environment names and the one that the system knows: programs use either."""
    found = [] if home is None else [os.path.realpath(home)]
    with contextlib.suppress(KeyError):  # a container may run as a uid that has no name
        found.append(os.path.realpath(pwd.getpwuid(os.geteuid()).pw_dir))
    return tuple(path for path in dict.fromkeys(found) if path != "/")


def _in_homes(home: str | None) -> Iterator[Guarded]:
    """What starts from a home, and what is kept secret in one: by where it is, and by where a link leads."""
    for folder in homes(home):
        for name, why in START_PLACES.items():
            # A cache is a place to write in, and only parts of it are obeyed.
            in_cache = name.startswith(".cache/")
            yield Guarded(f"{folder}/{name}", "the folder", whole=True, why=why, may_be_held=in_cache)
        for name in WORKSPACE_NAMES:
            yield Guarded(
                f"{folder}/{name}", "the folder", whole=True, why="settings and hooks are obeyed there"
            )
        for name in SECRET_NAMES:
            # It may be held, as by ~/.cache: it is masked there.
            yield Guarded(
                f"{folder}/{name}", "the folder", True, "keys and tokens lie there", may_be_held=True
            )


def _named(path: str) -> str | None:
    """Whether a folder is or lies in one that is obeyed wherever it is. A link of such a name counts too."""
    names = _AGENT_WORKPLACE.sub("/", f"{path}/").lower().split("/")
    if ".git" in names:
        return "it lies in a git folder, whose hooks and settings the host's git runs"
    for name in WORKSPACE_NAMES:
        if name in names:
            return (
                f"it is or lies in a folder {name}, whose settings and hooks are obeyed outside the sandbox"
            )
    return None


class _Guards:
    """Folders are told by what they are and not by name: a second mount of one, or another case of its
    letters where case does not count, is the same folder."""

    def __init__(self, guarded: Iterable[Guarded]) -> None:
        self._known: dict[str, _Identity] = {}
        self._own: dict[_Identity, Guarded] = {}
        self._holders: dict[_Identity, Guarded] = {}
        for guard in guarded:
            identity = self._identity(guard.path)
            if identity != guard.path and (real := real_path(guard.path)) != guard.path:
                guard = replace(guard, path=real)
            self._own.setdefault(identity, guard)
            if not guard.may_be_held:
                self._hold(guard)

    def _hold(self, guard: Guarded) -> None:
        for folder in _upwards(guard.path):
            identity = self._identity(folder)
            if identity in self._holders:
                return  # and so are those above
            self._holders[identity] = guard

    def danger(self, root: str) -> str | None:
        """Why a root is refused."""
        own = self._identity(root)
        if own in self._own:
            return f"it is {self._own[own]}"
        if own in self._holders:
            return f"it holds {self._holders[own]}"
        for folder in _upwards(root):
            guard = self._own.get(self._identity(folder))
            if guard is not None and guard.whole:
                return f"it lies in {guard}"
        return None

    def _identity(self, path: str) -> _Identity:
        if path not in self._known:
            self._known[path] = _identity(path)
        return self._known[path]


def _upwards(path: str) -> Iterator[str]:
    """The path and the folders around it, "/" last; of a workplace only those inside that."""
    end = ""
    if workplace := _WORKPLACE.match(path):
        end = workplace[1]
    elif workplace := _AGENT_WORKPLACE.search(f"{path}/"):
        end = path[: workplace.end(1)]
    while path != end:
        yield path
        if path == "/":
            return
        path = os.path.dirname(path)


def _identity(path: str) -> _Identity:
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
