"""Attempts to change what files outside the root hold, or which there are.

Run inside; the host looks at the victim and the folder that it is in. Next: metadata.py, mounts.py.
"""

from __future__ import annotations

import mmap
import os
import socket
import subprocess
import threading

from tests.end_to_end.escape.attempts import (
    Blocked,
    Escaped,
    Ground,
    Kind,
    Missing,
    Setting,
    Witness,
    attempt,
)
from tests.end_to_end.escape.calls import AT_FDCWD, number, rename_exchange, system_call, write
from tests.end_to_end.escape.evidence import exists, outside_changed

OUTSIDE = attempt(Kind.EFFECT, outside_changed)
OTHER_RUN = "/tmp/egress-sandbox-{tag}"  # as the supervisor names them
RACES = 1500


@OUTSIDE
def write_open(ground: Ground) -> None:
    write(ground.victim)


@OUTSIDE
def append_open(ground: Ground) -> None:
    write(ground.victim, mode="a")


@OUTSIDE
def create_new(ground: Ground) -> None:
    write(f"{ground.out}/new")


@OUTSIDE
def truncate_path(ground: Ground) -> None:
    os.truncate(ground.victim, 0)


@OUTSIDE
def truncate_rdonly_open(ground: Ground) -> None:
    os.close(os.open(ground.victim, os.O_RDONLY | os.O_TRUNC))


@OUTSIDE
def ftruncate_rdonly(ground: Ground) -> None:
    os.ftruncate(os.open(ground.victim, os.O_RDONLY), 0)


@OUTSIDE
def fallocate_punch(ground: Ground) -> None:
    os.posix_fallocate(os.open(ground.victim, os.O_RDWR), 0, 4096)


@OUTSIDE
def mmap_shared_write(ground: Ground) -> None:
    descriptor = os.open(ground.victim, os.O_RDONLY)
    with mmap.mmap(descriptor, 9, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE) as memory:
        memory[0:1] = b"X"
        memory.flush()


@OUTSIDE
def magic_link_reopen(ground: Ground) -> None:
    descriptor = os.open(ground.victim, os.O_RDONLY)
    write(f"/proc/self/fd/{descriptor}")


@OUTSIDE
def dotdot_write(ground: Ground) -> None:
    write(f"{ground.root}/../out/victim")


@OUTSIDE
def proc_self_root_write(ground: Ground) -> None:
    write(f"/proc/self/root{ground.victim}")


@OUTSIDE
def proc_self_cwd_write(ground: Ground) -> None:
    write("/proc/self/cwd/../out/victim")


@OUTSIDE
def rename_over(ground: Ground) -> None:
    write(f"{ground.root}/over")
    os.rename(f"{ground.root}/over", ground.victim)


@OUTSIDE
def rename_steal(ground: Ground) -> None:
    os.rename(ground.victim, f"{ground.root}/stolen")


@OUTSIDE
def rename_swap(ground: Ground) -> None:
    write(f"{ground.root}/swapped")
    rename_exchange(f"{ground.root}/swapped", ground.victim)


@OUTSIDE
def hardlink_in_then_write(ground: Ground) -> None:
    os.link(ground.victim, f"{ground.root}/link")
    write(f"{ground.root}/link")


@OUTSIDE
def hardlink_out(ground: Ground) -> None:
    write(f"{ground.root}/mine")
    os.link(f"{ground.root}/mine", f"{ground.out}/mine")


@OUTSIDE
def hardlink_by_descriptor(ground: Ground) -> None:
    descriptor = os.open(ground.victim, os.O_RDONLY)
    target = f"{ground.root}/by-descriptor"
    system_call(number(265, 37), AT_FDCWD, b"/proc/self/fd/%d" % descriptor, AT_FDCWD, target.encode(), 0x400)
    write(target)


@OUTSIDE
def symlink_write_through(ground: Ground) -> None:
    os.symlink(ground.victim, f"{ground.root}/symlink")
    write(f"{ground.root}/symlink")


@OUTSIDE
def symlink_create_outside(ground: Ground) -> None:
    os.symlink("x", f"{ground.out}/symlink")


@OUTSIDE
def symlink_swap_race(ground: Ground) -> None:
    """A folder of the root and a link out of it, swapped while files are made in it."""
    folder, link = f"{ground.root}/race", f"{ground.root}/race-link"
    os.mkdir(folder)
    os.symlink(ground.out, link)
    is_over = threading.Event()

    def swap() -> None:
        while not is_over.is_set():
            try:
                rename_exchange(folder, link)
            except OSError:
                return

    swapper = threading.Thread(target=swap, daemon=True)
    swapper.start()
    for _ in range(RACES):
        try:
            write(f"{folder}/raced")
        except OSError:
            continue
    is_over.set()


@OUTSIDE
def unlink_outside(ground: Ground) -> None:
    os.unlink(ground.victim)


@OUTSIDE
def mkdir_outside(ground: Ground) -> None:
    os.mkdir(f"{ground.out}/folder")


@OUTSIDE
def rmdir_outside(ground: Ground) -> None:
    os.rmdir(f"{ground.out}/empty")


@OUTSIDE
def mkfifo_outside(ground: Ground) -> None:
    os.mkfifo(f"{ground.out}/pipe")


@OUTSIDE
def unix_bind_outside(ground: Ground) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(f"{ground.out}/bound")


@OUTSIDE
def otmpfile_linkat(ground: Ground) -> None:
    descriptor = os.open(ground.out, os.O_TMPFILE | os.O_RDWR, 0o600)
    target = f"{ground.out}/linked".encode()
    system_call(number(265, 37), AT_FDCWD, b"/proc/self/fd/%d" % descriptor, AT_FDCWD, target, 0x400)


@OUTSIDE
def dirfd_openat(ground: Ground) -> None:
    folder = os.open(ground.out, os.O_PATH)
    os.close(os.open("by-folder", os.O_CREAT | os.O_WRONLY, dir_fd=folder))


@OUTSIDE
def memfd_exec_writes(ground: Ground) -> None:
    descriptor = os.memfd_create("script", 0)
    os.write(descriptor, b'#!/bin/sh\necho x > "$1"\n')
    run_writer([f"/proc/self/fd/{descriptor}", ground.victim], descriptor)


@OUTSIDE
def dynlinker_exec(ground: Ground) -> None:
    linker = "/lib64/ld-linux-x86-64.so.2" if os.path.exists("/lib64") else "/lib/ld-linux-aarch64.so.1"
    if not os.path.exists(linker):
        raise Missing("no dynamic linker where it usually is")
    run_writer([linker, "/bin/sh", "-c", 'echo x > "$1"', "sh", ground.victim])


def run_writer(argv: list[str], *descriptors: int) -> None:
    done = subprocess.run(argv, pass_fds=descriptors, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        raise Blocked(done.stderr.decode()[-60:].strip())


@attempt(Kind.EFFECT, exists("/tmp"))
def shared_tmp_write(ground: Ground) -> None:
    write(f"/tmp/{ground.tag}")


@attempt(Kind.EFFECT, exists("/var/tmp"))
def shared_var_tmp_write(ground: Ground) -> None:
    write(f"/var/tmp/{ground.tag}")


@attempt(Kind.EFFECT, exists("/dev/shm"))
def shared_devshm_write(ground: Ground) -> None:
    write(f"/dev/shm/{ground.tag}")


def in_tmp_of_other_run(witness: Witness, name: str) -> str:
    return exists(OTHER_RUN.format(tag=witness.ground.tag))(witness, name)


@attempt(Kind.EFFECT, in_tmp_of_other_run)
def tmp_of_other_run_write(ground: Ground) -> None:
    write(f"{OTHER_RUN.format(tag=ground.tag)}/{ground.tag}")


@attempt(Kind.READ)
def read_tmp_other_sessions(ground: Ground) -> None:
    with open(f"/tmp/{ground.tag}-other", encoding="utf-8") as stream:
        if stream.read():
            raise Escaped("another session's file in /tmp")


@attempt(Kind.EFFECT, outside_changed, Setting.FILE_ON_STDIN)
def stdin_file_reopened(ground: Ground) -> None:
    write("/proc/self/fd/0")


@attempt(Kind.EFFECT, outside_changed, Setting.FILE_ON_STDIN)
def stdin_file_chmod(ground: Ground) -> None:
    os.fchmod(0, 0o600)
