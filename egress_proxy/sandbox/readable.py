"""Reading everything but some paths, for Landlock, which only knows what is allowed: so a list of all others.

Looks into folders and changes nothing. Names stay visible, contents do not; what is made later beside a
masked path cannot be read either. Next: landlock.py (makes rules of it).
"""

import enum
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from egress_proxy.sandbox.real_path import real_path


class Kind(enum.Enum):
    """What may be read there."""

    TREE = enum.auto()  # a folder and everything below it
    FILE = enum.auto()
    NAMES = enum.auto()  # a folder's entries and those of all folders below, no contents


@dataclass(frozen=True, slots=True)
class Readable:
    kind: Kind
    path: str


def readable_except(masks: Iterable[str], writable: Iterable[str]) -> list[Readable]:
    """``writable``: folders that are granted as a whole, so that a mask inside one changes nothing."""
    hidden = {real_path(mask) for mask in masks if os.path.lexists(mask)}
    hidden -= set(masks_inside(hidden, writable))
    if not hidden:
        return [Readable(Kind.TREE, "/")]
    above = {folder for path in hidden for folder in _folders_above(path)}
    others = () if "/" in hidden else _beside("/", hidden, above)
    return [Readable(Kind.NAMES, "/"), *others]


def masks_inside(masks: Iterable[str], roots: Iterable[str]) -> tuple[str, ...]:
    """The masks that Landlock cannot hold: a root is granted as a whole, with what will be made in it."""
    folders = {real_path(root) for root in roots}
    hidden = [(mask, real_path(mask)) for mask in masks]
    return tuple(mask for mask, path in hidden if folders & {path, *_folders_above(path)})


def _beside(folder: str, hidden: set[str], above: set[str]) -> Iterator[Readable]:
    """What lies in a folder that has something hidden below it. Links need none: their targets have one."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.path)
    except OSError:
        return  # the command can read no more of it than we can
    for entry in entries:
        if entry.path in hidden or entry.is_symlink():
            continue
        if entry.path in above:
            yield from _beside(entry.path, hidden, above)
        else:
            is_folder = entry.is_dir(follow_symlinks=False)
            yield Readable(Kind.TREE if is_folder else Kind.FILE, entry.path)


def _folders_above(path: str) -> Iterator[str]:
    while path != "/":
        path = os.path.dirname(path)
        yield path
