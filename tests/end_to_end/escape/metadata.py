"""Attempts on what is not content: mode, owner, times and attributes outside; privileged files inside.

Run inside. Next: files.py, mounts.py.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import struct

from tests.end_to_end.escape.attempts import Escaped, Ground, Kind, attempt
from tests.end_to_end.escape.calls import AT_FDCWD, system_call, write
from tests.end_to_end.escape.evidence import FORGED_TIME, outside_changed, privileged_file

OUTSIDE = attempt(Kind.EFFECT, outside_changed)
PRIVILEGE = attempt(Kind.PERSIST, privileged_file)
SET_ID = 0o4755
GET_FLAGS, SET_FLAGS, NO_ACCESS_TIME = 0x80086601, 0x40086602, 0x80  # <linux/fs.h>


@OUTSIDE
def chmod_outside(ground: Ground) -> None:
    os.chmod(ground.victim, 0o600)


@OUTSIDE
def fchmod_via_rdonly_fd(ground: Ground) -> None:
    os.fchmod(os.open(ground.victim, os.O_RDONLY), 0o600)


@attempt(Kind.EFFECT)
def chown_outside(ground: Ground) -> None:
    owner = os.stat(ground.victim)
    if os.getuid() == 0:
        os.chown(ground.victim, 1, 1)
        os.chown(ground.victim, owner.st_uid, owner.st_gid)
    else:
        os.chown(ground.victim, -1, os.getgid())
    raise Escaped("owner set")


@OUTSIDE
def setxattr_outside(ground: Ground) -> None:
    os.setxattr(ground.victim, "user.x", b"1")


@OUTSIDE
def utime_outside(ground: Ground) -> None:
    os.utime(ground.victim, (FORGED_TIME, FORGED_TIME))


@attempt(Kind.EFFECT)
def set_inode_flags(ground: Ground) -> None:
    descriptor = os.open(ground.victim, os.O_RDONLY)
    answer = fcntl.ioctl(descriptor, GET_FLAGS, bytes(8))
    (flags,) = struct.unpack("l", answer)
    fcntl.ioctl(descriptor, SET_FLAGS, struct.pack("l", flags | NO_ACCESS_TIME))
    fcntl.ioctl(descriptor, SET_FLAGS, struct.pack("l", flags))
    raise Escaped("inode flags set")


@PRIVILEGE
def setuid_plant_in_root(ground: Ground) -> None:
    shutil.copy("/bin/true", f"{ground.root}/setuid_plant_in_root")
    os.chmod(f"{ground.root}/setuid_plant_in_root", SET_ID)


@PRIVILEGE
def setuid_by_open(ground: Ground) -> None:
    os.close(os.open(f"{ground.root}/setuid_by_open", os.O_CREAT | os.O_WRONLY, SET_ID))


@PRIVILEGE
def setuid_by_openat2(ground: Ground) -> None:
    how = struct.pack("=QQQ", os.O_CREAT | os.O_WRONLY, SET_ID, 0)
    os.close(system_call(437, AT_FDCWD, f"{ground.root}/setuid_by_openat2".encode(), how, len(how)))


@PRIVILEGE
def setuid_by_fchmodat2(ground: Ground) -> None:
    write(f"{ground.root}/setuid_by_fchmodat2")
    system_call(452, AT_FDCWD, f"{ground.root}/setuid_by_fchmodat2".encode(), SET_ID, 0)


@PRIVILEGE
def setuid_by_fchmod(ground: Ground) -> None:
    os.fchmod(os.open(f"{ground.root}/setuid_by_fchmod", os.O_CREAT | os.O_WRONLY, 0o600), SET_ID)


@PRIVILEGE
def setuid_by_mknod(ground: Ground) -> None:
    os.mknod(f"{ground.root}/setuid_by_mknod", stat.S_IFREG | SET_ID)


@PRIVILEGE
def setuid_hardlink(ground: Ground) -> None:
    os.link("/usr/bin/su", f"{ground.root}/setuid_hardlink")


@PRIVILEGE
def setgid_by_open(ground: Ground) -> None:
    """By chmod it is possible: the filter cannot tell a file from a folder, and what is left is looked at."""
    os.close(os.open(f"{ground.root}/setgid_by_open", os.O_CREAT | os.O_WRONLY, 0o2755))


@PRIVILEGE
def setcap_plant_in_root(ground: Ground) -> None:
    shutil.copy("/bin/true", f"{ground.root}/able")
    # struct vfs_cap_data, revision 2: CAP_SYS_ADMIN, effective
    os.setxattr(
        f"{ground.root}/able", "security.capability", struct.pack("<5I", 0x02000001, 1 << 21, 0, 0, 0)
    )


@attempt(Kind.EFFECT)
def mknod_blockdev_in_root(ground: Ground) -> None:
    names = ("/dev/vda", "/dev/sda", "/dev/nvme0n1", "/dev/loop0")
    disk = next((name for name in names if os.path.exists(name)), None)
    device = os.stat(disk).st_rdev if disk else os.makedev(1, 1)
    open_node(f"{ground.root}/disk", stat.S_IFBLK, device)


@attempt(Kind.EFFECT)
def mknod_chardev_mem(ground: Ground) -> None:
    open_node(f"{ground.root}/mem", stat.S_IFCHR, os.makedev(1, 1))


def open_node(path: str, kind: int, device: int) -> None:
    os.mknod(path, 0o600 | kind, device)
    try:
        os.close(os.open(path, os.O_RDONLY))
    finally:
        os.unlink(path)
    raise Escaped("opened a device by a node of its own")


@attempt(Kind.EFFECT)
def open_raw_disk(ground: Ground) -> None:
    failures = []
    for name in ("/dev/vda", "/dev/sda", "/dev/nvme0n1", "/dev/kmsg", "/dev/mem"):
        try:
            os.close(os.open(name, os.O_RDONLY))
        except OSError as error:
            failures.append(error)
        else:
            raise Escaped(f"opened {name}")
    raise failures[-1]
