"""What a command left behind that the host will obey: hooks, settings and start files, new or changed.

Reported and never undone: what is planted where nothing was cannot be told from work by a rule. Looks at
metadata, opens nothing. Next: protected.py (the names, and how a root is searched), denial.py (the outcome).
"""

import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from egress_proxy.sandbox.obeyed_names import REPORTED_NAMES
from egress_proxy.sandbox.protected import Scan, scan
from egress_proxy.sandbox.real_path import real_path
from egress_proxy.sandbox.roots import is_below

FILES_LIMIT = 5_000  # in watched folders, of all roots together; some 20 ms
FOLDER_DEPTH = 3  # .claude/skills/NAME/SKILL.md
_OTHER_CONFIGS = tuple(f"/{name}" for name in REPORTED_NAMES if name.endswith("/config"))
GROUP_LIMIT = 8  # more changes in one folder are one entry: the folder


@dataclass(frozen=True, slots=True)
class Mark:
    """A file as it was. Its change time is set by the kernel alone, at every change of content, mode or name.

    ``name``: the watched name that it is, or lies in.
    """

    name: str
    fingerprint: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Every watched file. ``complete``: False when a limit ended the search."""

    marks: Mapping[str, Mark]
    complete: bool


@dataclass(frozen=True, slots=True)
class Planted:
    """Absolute paths: files, or a folder for a new repository and for many changes in it.

    ``complete``: False when a limit was reached, and the list may lack some or name what was there before.
    """

    paths: tuple[str, ...] = ()
    complete: bool = True


def snapshot(roots: Iterable[str]) -> Snapshot:
    """``roots`` are canonical. Take it before the command starts."""
    return snapshot_of(scan(root, env_files=False) for root in roots)


def snapshot_of(scans: Iterable[Scan]) -> Snapshot:
    """The same, of roots that have been searched."""
    marks: dict[str, Mark] = {}
    complete = True
    for found in scans:
        complete = complete and found.complete
        for name in (*found.obeyed, *found.reported):
            for path in _watched(found.root, name):
                complete = _mark(path, marks) and complete
    return Snapshot(marks, complete)


def planted(roots: Iterable[str], before: Snapshot) -> Planted:
    """Call it when the command and all that it started have ended."""
    after = snapshot(roots)
    changed = {
        path: mark.name
        for path, mark in after.marks.items()
        if before.marks.get(path) != mark and not _is_sample(path)
    }
    crowd = Counter(changed.values())
    shown = {
        _shown(path, name, before) if crowd[name] <= GROUP_LIMIT else name for path, name in changed.items()
    }
    return Planted(tuple(sorted(shown)), before.complete and after.complete)


def with_programs(found: Planted, programs: Iterable[str], complete: bool) -> Planted:
    """Besides, programs that would have run for their group (set_group.py)."""
    return Planted(tuple(sorted({*found.paths, *programs})), found.complete and complete)


def _shown(path: str, name: str, before: Snapshot) -> str:
    """A new repository is one entry; hooks that would run have entries of their own."""
    is_config = os.path.basename(path) == "config" and not path.endswith(_OTHER_CONFIGS)
    is_new_repository = path == name and is_config and path not in before.marks
    return os.path.dirname(path) if is_new_repository else path


def _is_sample(path: str) -> bool:
    """`git init` makes a dozen of them; they do not run."""
    return path.endswith(".sample") and os.path.basename(os.path.dirname(path)) == "hooks"


def _watched(root: str, name: str) -> Iterator[str]:
    yield name
    if os.path.islink(name):
        target = real_path(name)
        if is_below(target, root):
            yield target


def _mark(name: str, marks: dict[str, Mark]) -> bool:
    """Note what a watched name is, or every file in it; False when that were too many."""
    folders = [(name, 0)]
    while folders:
        path, depth = folders.pop()
        if len(marks) >= FILES_LIMIT:
            return False
        try:
            status = os.lstat(path)
            if not stat.S_ISDIR(status.st_mode):
                marks[path] = Mark(name, _fingerprint(status))
            elif depth < FOLDER_DEPTH:
                folders += [(f"{path}/{entry}", depth + 1) for entry in os.listdir(path)]
        except OSError:
            continue  # gone meanwhile, or not to be read, and then not obeyed either
    return True


def _fingerprint(status: os.stat_result) -> tuple[int, ...]:
    return status.st_ino, status.st_size, status.st_ctime_ns
