"""Where else a file can be read: the same file system mounted a second time, as bind mounts do it.

Reads /proc/self/mountinfo and nothing else. Next: masks.py (hides a path in each of its places).
"""

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_ESCAPE = re.compile(r"\\([0-7]{3})")
# To look into one may take long, or mount it.
_SLOW = re.compile(r"autofs|fuse\..*|nfs4?|cifs|smb3|ceph|afs|9p")


@dataclass(frozen=True, slots=True)
class MountPoint:
    """``device``: major:minor; ``root``: which folder of that file system ``point`` shows."""

    device: str
    root: str
    point: str
    kind: str


def read_mounts() -> tuple[MountPoint, ...]:
    """In the order in which they were mounted; none where that cannot be known."""
    with (
        contextlib.suppress(OSError),
        open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines,
    ):
        return tuple(map(_mount, lines))
    return ()


def _mount(line: str) -> MountPoint:
    """proc_pid_mountinfo(5). Blanks in paths are octal escapes there."""
    words = line.split(" ")
    kind = words[words.index("-", 6) + 1]
    return MountPoint(words[2], _plain(words[3]), _plain(words[4]), kind)


def _plain(text: str) -> str:
    return _ESCAPE.sub(lambda octal: chr(int(octal[1], 8)), text) if "\\" in text else text


def other_places(paths: Iterable[str], mounts: Iterable[MountPoint]) -> Iterator[str]:
    """Every further path at which one of the canonical ``paths`` is to be seen, or a part of it."""
    by_device: dict[str, list[MountPoint]] = {}
    by_point: dict[str, MountPoint] = {}
    for mount in mounts:
        by_device.setdefault(mount.device, []).append(mount)
        by_point[mount.point] = mount  # the last one covers the others
    for path in paths:
        own = _mount_of(path, by_point)
        if own is None or len(by_device[own.device]) == 1:
            continue
        inner = _join(own.root, path[len(own.point.rstrip("/")) :])
        for other in by_device[own.device]:
            place = _place(inner, other)
            if place is not None and place != path and by_point[other.point] is other:
                yield place


def slow_mounts(mounts: Iterable[MountPoint]) -> frozenset[str]:
    """MountPoint points that are not searched."""
    return frozenset(mount.point for mount in mounts if _SLOW.fullmatch(mount.kind))


def _mount_of(path: str, by_point: dict[str, MountPoint]) -> MountPoint | None:
    while path not in by_point:
        if path == "/":
            return None
        path = os.path.dirname(path)
    return by_point[path]


def _place(inner: str, mount: MountPoint) -> str | None:
    if inner == mount.root or _is_below(mount.root, inner):
        return mount.point  # all that this mount shows is in it
    if _is_below(inner, mount.root):
        return _join(mount.point, inner[len(mount.root.rstrip("/")) :])
    return None


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")


def _join(folder: str, rest: str) -> str:
    return (folder.rstrip("/") + rest) or "/"
