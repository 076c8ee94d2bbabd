"""What lies in a writable root and is obeyed outside the sandbox, and the .env files that lie in it.

Looks at the file system and changes nothing: a name that is not there is not made; planted.py reports it when
a command has made it. Next: bwrap.py and seatbelt.py (enforce it), planted.py (compares before and after).
"""

import contextlib
import os
import re
import stat
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from egress_proxy.sandbox.env_files import ENTRIES_LIMIT, NOT_ENTERED, is_env_file, search
from egress_proxy.sandbox.obeyed_names import (
    GIT_NAMES,
    GIT_REPORTED_NAMES,
    NESTED_NAMES,
    REPORTED_NAMES,
    WORKSPACE_NAMES,
    WORKTREE_NAMES,
)
from egress_proxy.sandbox.real_path import real_path
from egress_proxy.sandbox.roots import is_below

DEPTH = 3  # where people and tools keep repositories in a workspace; deeper costs more than it finds
FOUND_LIMIT = 256  # mounts: each makes the next one dearer
_LEFT_OUT = NOT_ENTERED | {".git"}
_WORKSPACE, _REPORTED = frozenset(WORKSPACE_NAMES), frozenset(REPORTED_NAMES)
# Names that begin with no dot, as they are written and as file systems without case may have them.
_PLAIN = [name.partition("/")[0] for name in REPORTED_NAMES if not name.startswith(".")]
_PLAIN_NAMES = frozenset(
    spelt
    for name in _PLAIN
    for spelt in (
        name,
        name.upper(),
        name.capitalize(),
        name.replace(".md", "").upper() + ".md",
        name.title(),
    )
)
_NESTED: dict[str, list[str]] = {}
for _name in (*NESTED_NAMES, *(name for name in REPORTED_NAMES if "/" in name)):
    _NESTED.setdefault(_name.partition("/")[0], []).append(_name.partition("/")[2])
_HOOKS_PATH = re.compile(rb"^\s*hookspath\s*=\s*(.+)$", re.IGNORECASE | re.MULTILINE)
_CONFIG_LIMIT = 256 * 1024  # bytes
_POINTER_LIMIT = 4096  # bytes of a `.git` file: one path


class ProtectionRefused(ValueError):
    """Something in a root cannot be protected and is too dangerous to leave. The message says what helps."""


@dataclass(slots=True)
class Scan:
    """What was found in one root. ``complete``: False when a limit ended the search for names;
    ``env_complete``: the same of the search for .env files, which goes deeper.

    ``obeyed``: protected names, as they are spelt. ``reported``: names that are watched and no more.
    """

    root: str
    obeyed: dict[str, None] = field(default_factory=dict)
    reported: dict[str, None] = field(default_factory=dict)
    env_files: list[str] = field(default_factory=list)
    complete: bool = True
    env_complete: bool = True
    entries: int = 0


@dataclass(frozen=True, slots=True)
class Protection:
    """What to mount, in this order: ``mount_points`` onto themselves, so that no folder is renamed away with
    what is protected in it (`mv .git old; mkdir -p .git/hooks`), then ``read_only``.

    ``links``: protected names that are symbolic links. Their targets in the root are protected, but nothing
    can be mounted on a link: a command can put another one there. ``complete``: as in Scan.
    """

    mount_points: tuple[str, ...]
    read_only: tuple[str, ...]
    links: tuple[str, ...] = ()
    complete: bool = True


def protected_in(root: str, also: Sequence[str] = ()) -> Protection:
    """``root`` is canonical; otherwise as `protection_of`."""
    return protection_of(scan(root), also)


def protection_of(found: Scan, also: Sequence[str] = ()) -> Protection:
    """``also``: further absolute paths, protected where they exist in the root.

    Raises ProtectionRefused for a `.git` that is a symbolic link: git would follow the next one anywhere.
    """
    root = found.root
    obeyed = dict.fromkeys((*found.obeyed, *(path for path in also if is_below(path, root))))
    links = tuple(path for path in obeyed if os.path.islink(path))
    for path in links:
        if os.path.basename(path) == ".git":
            raise ProtectionRefused(
                f"{path!r} is a symbolic link, which the command could replace: make it a file with a line"
                " `gitdir: FOLDER`, or take a root that does not hold it"
            )
    real = {real_path(path) for path in obeyed}
    read_only = sorted(path for path in real if is_below(path, root) and os.path.exists(path))
    mount_points = {folder for path in read_only for folder in folders_between(root, path)}
    return Protection(tuple(sorted(mount_points)), tuple(read_only), links, found.complete)


def folders_between(root: str, path: str) -> Iterator[str]:
    """Those around ``path`` that lie in ``root``, the innermost first."""
    folder = os.path.dirname(path)
    while is_below(folder, root):
        yield folder
        folder = os.path.dirname(folder)


def scan(root: str, *, env_files: bool = True) -> Scan:
    """Breadth first, so that what lies near the root is found before a limit is reached; follows no link.

    A folder that cannot be read is left out: nothing is obeyed there as long as that is so. ``env_files``:
    look for them deeper than for all else.
    """
    found = Scan(root)
    for name in (".git", *WORKSPACE_NAMES, *_NESTED):  # found here even among more entries than the limit
        if os.path.lexists(f"{root}/{name}"):
            _judge(root, name, found)
    folders, beyond = deque([(root, 1)]), list[str]()
    while folders and found.complete:
        folder, depth = folders.popleft()
        names = set()
        for entry in _listed(folder, found):
            names.add(entry.name)
            if entry.name.startswith(".") or entry.name in _PLAIN_NAMES:
                _judge(folder, entry.name, found)
            if entry.is_dir(follow_symlinks=False) and entry.name not in _LEFT_OUT:
                if depth < DEPTH and entry.name not in WORKSPACE_NAMES:
                    folders.append((entry.path, depth + 1))
                else:
                    beyond.append(entry.path)
        if {"HEAD", "objects", "refs"} <= names:
            _git_folder(folder, found)  # git obeys a bare repository wherever it is started in one
    if env_files:
        _search_deeper(beyond, found)
    return found


def _search_deeper(folders: Sequence[str], found: Scan) -> None:
    deeper = search(folders, entries=found.entries)
    found.env_files += deeper.paths
    found.env_complete = found.complete and deeper.complete


def _listed(folder: str, found: Scan) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                found.entries += 1
                if found.entries > ENTRIES_LIMIT or len(found.obeyed) > FOUND_LIMIT:
                    found.complete = False
                    return
                yield entry
    except OSError:
        return


def _judge(folder: str, name: str, found: Scan) -> None:
    path = f"{folder}/{name}"
    if is_env_file(name) and path not in found.env_files:
        found.env_files.append(path)
    match name.lower():  # there are file systems where .ENVRC is .envrc
        case ".git" if os.path.isdir(path) and not os.path.islink(path):
            _git_folder(path, found)
        case ".git":
            found.obeyed[path] = None
            _pointed_folder(path, found)
        case lower if lower in _WORKSPACE:
            found.obeyed[path] = None
        case lower if lower in _REPORTED:
            found.reported[path] = None
        case lower:
            for rest in _NESTED.get(lower, ()):
                if os.path.lexists(f"{path}/{rest}"):
                    target = found.obeyed if f"{lower}/{rest}" in NESTED_NAMES else found.reported
                    target[f"{path}/{rest}"] = None


def _git_folder(folder: str, found: Scan) -> None:
    """With the repositories in it: a submodule is named by its path (.git/modules/lib/json is one)."""
    repositories = deque([folder])
    while repositories:
        repository = repositories.popleft()
        _note(repository, GIT_NAMES, found.obeyed)
        _note(repository, GIT_REPORTED_NAMES, found.reported)
        _note_hooks_path(repository, found)
        for worktree in _folders(f"{repository}/worktrees", found):
            _note(worktree, WORKTREE_NAMES, found.obeyed)
            _note(worktree, GIT_REPORTED_NAMES, found.reported)
        places = deque([(f"{repository}/modules", 1)])
        while places:
            place, depth = places.popleft()
            for module in _folders(place, found):
                # Not by HEAD alone: a command could take it away for one run, and the protection with it.
                if os.path.lexists(f"{module}/HEAD") or os.path.lexists(f"{module}/config"):
                    repositories.append(module)
                elif depth < DEPTH:
                    places.append((module, depth + 1))


def _note(folder: str, names: Sequence[str], noted: dict[str, None]) -> None:
    for name in names:
        if os.path.lexists(f"{folder}/{name}"):
            noted[f"{folder}/{name}"] = None


def _note_hooks_path(repository: str, found: Scan) -> None:
    """Where git looks for hooks instead: work changes what lies there, so it is reported."""
    config = small_file(f"{repository}/config", _CONFIG_LIMIT) or b""
    for match in _HOOKS_PATH.finditer(config):
        told = os.fsdecode(match[1].strip().strip(b'"'))
        with contextlib.suppress(OSError, ValueError):
            folder = real_path(os.path.join(os.path.dirname(repository), told))
            if is_below(folder, found.root):
                found.reported[folder] = None


def _folders(folder: str, found: Scan) -> Iterator[str]:
    for entry in _listed(folder, found):
        if entry.is_dir(follow_symlinks=False):
            yield entry.path


def _pointed_folder(path: str, found: Scan) -> None:
    """A `.git` file names the git folder. Read only to protect more: it never opens anything outside."""
    line = small_file(path, _POINTER_LIMIT)
    if line is not None and line.startswith(b"gitdir: "):
        target = os.path.join(os.path.dirname(path), os.fsdecode(line[8:].rstrip(b"\r\n")))
        with contextlib.suppress(OSError, ValueError):  # a loop of links, a NUL
            folder = real_path(target)
            if is_below(folder, found.root):
                _git_folder(folder, found)


def small_file(path: str, limit: int) -> bytes | None:
    """The first bytes of a regular file; None for all else. Never waits for a pipe, follows no link."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(descriptor, limit) if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
    except OSError:
        return None
    finally:
        os.close(descriptor)
