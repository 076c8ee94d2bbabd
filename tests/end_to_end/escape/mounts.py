"""Attempts on the view of the file system: mounts, other roots, files by handle, new namespaces.

Run inside. Next: files.py, kernel.py.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct

from tests.end_to_end.escape.attempts import Escaped, Ground, Kind, attempt
from tests.end_to_end.escape.calls import (
    AT_FDCWD,
    RUNNER,
    checked,
    libc,
    number,
    only_x86,
    system_call,
    write,
)
from tests.end_to_end.escape.evidence import MARK, outside_changed, planted

OUTSIDE = attempt(Kind.EFFECT, outside_changed)
SURFACE = attempt(Kind.SURFACE)
CLONE_NEWUSER, CLONE_NEWNS = 0x1000_0000, 0x2_0000
MS_REMOUNT, MS_BIND, MS_REC, MS_RELATIME = 32, 4096, 16_384, 0x20_0000
MNT_DETACH = 2
OPEN_TREE_CLONE, MOVE_MOUNT_F_EMPTY_PATH = 1, 4
SIGCHLD = 17


def mount(source: str, target: str, flags: int) -> None:
    checked(libc.mount(source.encode(), target.encode(), None, ctypes.c_ulong(flags), None))


@OUTSIDE
def open_by_handle(ground: Ground) -> None:
    handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128))
    mount_number = ctypes.create_string_buffer(4)
    system_call(number(303, 264), AT_FDCWD, ground.victim.encode(), handle, mount_number, 0)
    folder = os.open(ground.root, os.O_RDONLY)
    os.write(system_call(number(304, 265), folder, handle, os.O_WRONLY), b"x")


@OUTSIDE
def userns_remount_rw(ground: Ground) -> None:
    checked(libc.unshare(CLONE_NEWUSER | CLONE_NEWNS))
    for place in ("/", ground.out):
        with contextlib.suppress(OSError):
            mount("none", place, MS_REMOUNT | MS_BIND)
    with contextlib.suppress(OSError):
        mount(ground.out, ground.root, MS_BIND | MS_REC)
    with contextlib.suppress(OSError):
        write(f"{ground.root}/victim")
    write(ground.victim)


@OUTSIDE
def remount_rw_no_userns(ground: Ground) -> None:
    mount("none", "/", MS_REMOUNT | MS_BIND | MS_RELATIME)
    write(ground.victim)


@OUTSIDE
def mount_api_clone_tree(ground: Ground) -> None:
    tree = system_call(428, AT_FDCWD, ground.out.encode(), OPEN_TREE_CLONE | os.O_CLOEXEC)
    system_call(429, tree, b"", AT_FDCWD, ground.root.encode(), MOVE_MOUNT_F_EMPTY_PATH)
    try:
        write(f"{ground.root}/new")
    finally:
        libc.umount2(ground.root.encode(), MNT_DETACH)


@attempt(Kind.PERSIST, planted(".git/hooks/pre-commit"))
def git_hook_by_umount(ground: Ground) -> None:
    libc.umount2(f"{ground.root}/.git/hooks".encode(), MNT_DETACH)
    libc.umount2(f"{ground.root}/.git".encode(), MNT_DETACH)
    write(f"{ground.root}/.git/hooks/pre-commit", MARK)


@SURFACE
def fsopen_tmpfs(ground: Ground) -> None:
    system_call(430, b"tmpfs", 0)
    raise Escaped("a file system of its own")


@SURFACE
def fanotify_watch(ground: Ground) -> None:
    system_call(number(300, 262), 0x200, 0)  # FAN_REPORT_FID, which every user may
    raise Escaped("a fanotify group")


@SURFACE
def chroot_into_root(ground: Ground) -> None:
    os.chroot(ground.root)
    raise Escaped("a root of its own")


@SURFACE
def userns_create(ground: Ground) -> None:
    checked(libc.unshare(CLONE_NEWUSER))
    raise Escaped("a new user namespace")


@SURFACE
def userns_by_clone(ground: Ground) -> None:
    only_x86()
    in_a_child(system_call(56, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0))


@SURFACE
def userns_by_clone3(ground: Ground) -> None:
    arguments = struct.pack("=8Q", CLONE_NEWUSER, 0, 0, 0, SIGCHLD, 0, 0, 0)
    in_a_child(system_call(435, arguments, len(arguments)))


def in_a_child(child: int) -> None:
    """What a clone has answered, in both processes."""
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    raise Escaped("a child in a new user namespace")


@attempt(Kind.EFFECT)
def setns_host(ground: Ground) -> None:
    join_spaces(ground, lambda process, name: os.open(f"/proc/{process}/ns/{name}", os.O_RDONLY))


@attempt(Kind.EFFECT)
def setns_by_pidfd(ground: Ground) -> None:
    join_spaces(ground, lambda process, name: os.pidfd_open(process))


def join_spaces(ground: Ground, opened: object) -> None:
    assert callable(opened)
    failures: list[OSError] = []
    for process in (1, RUNNER, ground.victim_pid):
        for name, flag in (("net", 0x4000_0000), ("mnt", CLONE_NEWNS)):
            try:
                if os.readlink(f"/proc/{process}/ns/{name}") == os.readlink(f"/proc/self/ns/{name}"):
                    continue
                checked(libc.setns(opened(process, name), flag))
            except OSError as error:
                failures.append(error)
            else:
                raise Escaped(f"joined {name} of {process}")
    raise failures[-1] if failures else OSError("nothing to join")
