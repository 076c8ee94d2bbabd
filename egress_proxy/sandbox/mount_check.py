"""Whether what bwrap has mounted is what was asked for: the kernel's own list, read before the command runs.

bwrap follows what stands at a path when it mounts. Whoever may write the folder above can put a link there in
that moment, and a writable mount of another folder, or a mask over another file, would be the result. The
list says for each mount what of which file system is where: that cannot be swapped. Standard library alone,
and nothing of ours. Next: bwrap.py (what is asked for), launcher.py (asks inside, before anything else).
"""

import os

MOUNT_TABLE = "/proc/self/mountinfo"
# bwrap's own, writable: where, of which kind, and what of that file system ("" is any).
_NODES = ("null", "zero", "full", "random", "urandom", "tty")
_OWN = {
    b"/dev": (b"tmpfs", b"/"),
    b"/dev/pts": (b"devpts", b"/"),
    b"/dev/console": (b"devpts", b""),
    b"/proc": (b"proc", b"/"),
    **dict.fromkeys((b"/tmp", b"/var/tmp", b"/run"), (b"tmpfs", b"/")),
    **{b"/dev/%s" % name.encode(): (b"", b"/" + name.encode()) for name in _NODES},
}


class Mount:
    """One line of proc_pid_mountinfo(5). ``place``: device and path in it, which name the same folder
    wherever it is mounted."""

    __slots__ = ("device", "kind", "number", "parent", "point", "root", "writable")

    def __init__(self, line: bytes) -> None:
        fields, _, source = line.partition(b" - ")
        number, parent, self.device, root, point, options, *_ = fields.split(b" ")
        self.number, self.parent = int(number), int(parent)
        self.root, self.point = unescaped(root), unescaped(point)
        self.kind, _, whole = source.split(b" ")[:3]
        self.writable = b"rw" in options.split(b",") and b"rw" in whole.split(b",")

    def place(self, path: bytes) -> bytes:
        """Of a path that this mount holds."""
        below = path[len(self.point.rstrip(b"/")) :]
        return self.device + b" " + (self.root.rstrip(b"/") + below.rstrip(b"/") or b"/")


class Mounts:
    """The mounts of a process, as their paths are looked up."""

    def __init__(self, table: bytes) -> None:
        self.all = [Mount(line) for line in table.splitlines()]
        self._on = {(mount.parent, mount.point): mount for mount in self.all}
        numbers = {mount.number for mount in self.all}
        self._top = next(mount for mount in self.all if mount.point == b"/" and mount.parent not in numbers)

    def holding(self, path: bytes) -> Mount:
        """The one that a real path is looked up in: mounts on the way that others lie over are not seen."""
        mount = self._top
        parts = path.strip(b"/").split(b"/") if path != b"/" else []
        for length in range(len(parts) + 1):
            folder = b"/" + b"/".join(parts[:length])
            while (upper := self._on.get((mount.number, folder))) is not None and upper is not mount:
                mount = upper
        return mount

    def place(self, path: bytes) -> bytes:
        return self.holding(path).place(path)


def unescaped(text: bytes) -> bytes:
    """Blank, tab, line end and backslash are given in octal."""
    first, *others = text.split(b"\\")
    return first + b"".join(bytes((int(other[:3], 8),)) + other[3:] for other in others)


def read_table() -> bytes:
    with open(MOUNT_TABLE, "rb") as stream:
        return stream.read()


def fault(table: bytes, points: list[bytes], places: dict[bytes, bytes]) -> str:
    """What is wrong, or "". ``points``: where something must be mounted; ``places``: what may be writable,
    and which place each of these must be."""
    mounts = Mounts(table)
    for point in points:
        if mounts.holding(point).point != point:
            return f"{os.fsdecode(point)} was moved while it was being mounted"
    for mount in mounts.all:
        if not mount.writable or mounts.holding(mount.point) is not mount:
            continue
        wanted = places.get(mount.point)
        if wanted is None and not _is_own(mount) and _is_reached(mount.point):
            return f"{os.fsdecode(mount.point)} can be written, which nobody asked for"
        if wanted is not None and mount.place(mount.point) != wanted:
            return f"{os.fsdecode(mount.point)} is another folder than the one that was checked"
    return ""


def _is_own(mount: Mount) -> bool:
    kind, root = _OWN.get(mount.point, (b"none", b""))
    return kind in (b"", mount.kind) and root in (b"", mount.root)


def _is_reached(point: bytes) -> bool:
    """What we cannot enter bwrap could not make read-only, and the command cannot enter either."""
    try:
        os.stat(point)
    except PermissionError:
        return False
    return True
