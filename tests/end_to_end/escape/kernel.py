"""Attempts on the kernel's settings, on IPC that has no files, and on parts of it that no build needs.

Run inside. Next: mounts.py (namespaces), network.py.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import socket
import struct
from collections.abc import Callable

from tests.end_to_end.escape.attempts import Blocked, Escaped, Ground, Kind, attempt
from tests.end_to_end.escape.calls import checked, libc, number, only_x86, system_call
from tests.end_to_end.escape.persistence import open_for_writing
from tests.end_to_end.escape.runner import status

EFFECT = attempt(Kind.EFFECT)
SURFACE = attempt(Kind.SURFACE)


@EFFECT
def core_pattern_open(ground: Ground) -> None:
    open_for_writing(["/proc/sys/kernel/core_pattern"])


@EFFECT
def sysrq_open(ground: Ground) -> None:
    open_for_writing(["/proc/sysrq-trigger"])


@EFFECT
def sysfs_helper_open(ground: Ground) -> None:
    open_for_writing(["/sys/kernel/uevent_helper", "/sys/power/state", "/proc/sys/kernel/modprobe"])


@EFFECT
def sysctl_net_open(ground: Ground) -> None:
    open_for_writing(["/proc/sys/net/ipv4/ip_forward"])


@EFFECT
def binfmt_open(ground: Ground) -> None:
    open_for_writing(["/proc/sys/fs/binfmt_misc/register"])


@EFFECT
def tracing_open(ground: Ground) -> None:
    open_for_writing(["/sys/kernel/tracing/trace_marker", "/sys/kernel/debug/sched/verbose"])


@EFFECT
def cgroup_write(ground: Ground) -> None:
    below = ("cgroup.procs", "memory/cgroup.procs", "cpu/release_agent")
    open_for_writing([f"/sys/fs/cgroup/{name}" for name in below])


@EFFECT
def sethostname_same(ground: Ground) -> None:
    socket.sethostname(os.uname().nodename)
    if os.readlink("/proc/self/ns/uts") == ground.host_name_space:
        raise Escaped("can set the host's name")
    raise Blocked("the name is its own")


@EFFECT
def sysv_shm_attach(ground: Ground) -> None:
    checked(libc.shmget(ground.segment_key, 16, 0))
    raise Escaped("sees the host's segment")


@EFFECT
def sysv_queue_open(ground: Ground) -> None:
    checked(libc.msgget(ground.segment_key, 0))
    raise Escaped("sees the host's queue")


@EFFECT
def posix_mq_open(ground: Ground) -> None:
    system_call(number(240, 180), ground.queue.encode(), os.O_RDWR, 0, None)
    raise Escaped("opened the host's queue")


@SURFACE
def bpf_prog_load(ground: Ground) -> None:
    array_map = struct.pack("IIII", 2, 4, 4, 1).ljust(128, b"\0")
    system_call(number(321, 280), 0, array_map, 128)
    raise Escaped("a BPF map")


@SURFACE
def perf_event(ground: Ground) -> None:
    software = struct.pack("IIQ", 1, 128, 0).ljust(128, b"\0")
    system_call(number(298, 241), software, 0, -1, -1, 0)
    raise Escaped("a perf event")


@SURFACE
def userfaultfd_open(ground: Ground) -> None:
    system_call(number(323, 282), 0)
    raise Escaped("userfaultfd")


@SURFACE
def keyctl_session(ground: Ground) -> None:
    system_call(number(250, 219), 0, -3, 1)  # KEYCTL_GET_KEYRING_ID
    raise Escaped("the session's keyring")


@SURFACE
def keyctl_user(ground: Ground) -> None:
    system_call(number(250, 219), 0, -4, 0)
    raise Escaped("the user's keyring")


@SURFACE
def modify_ldt_write(ground: Ground) -> None:
    only_x86()
    system_call(154, 0, bytes(16), 16)
    raise Escaped("read the descriptor table")


@SURFACE
def io_uring_available(ground: Ground) -> None:
    system_call(425, 4, ctypes.create_string_buffer(128))
    raise Escaped("a ring")


@SURFACE
def setuid_honoured(ground: Ground) -> None:
    if status("self", "NoNewPrivs") == "1":
        raise Blocked("no_new_privs")
    raise Escaped("set-id programs work")


@SURFACE
def caps_left(ground: Ground) -> None:
    left = {key: status("self", key) for key in ("CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb")}
    # Without CAP_SETPCAP the bounding set cannot be emptied, and no_new_privs keeps it from use.
    if any(int(value, 16) for key, value in left.items() if key != "CapBnd"):
        raise Escaped(str(left))
    raise Blocked("none")


@SURFACE
def filter_missing(ground: Ground) -> None:
    if status("self", "Seccomp") != "2":
        raise Escaped("no filter")
    raise Blocked("filtered")


def in_a_child(call: Callable[[], int]) -> int:
    """The wait status of a child that ends with 0 when the call succeeds: some end their caller."""
    child = os.fork()
    if child == 0:
        os._exit(0 if call() > 0 else 1)
    return os.waitpid(child, 0)[1]


@SURFACE
def seccomp_foreign_arch(ground: Ground) -> None:
    """getpid by int 0x80, the i386 table, which no filter for x86-64 judges by its numbers."""
    only_x86()

    def call() -> int:
        code = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        code.write(b"\xb8\x14\0\0\0\xcd\x80\xc3")
        address = ctypes.addressof(ctypes.c_char.from_buffer(code))
        return int(ctypes.CFUNCTYPE(ctypes.c_int)(address)())

    ended = in_a_child(call)
    if ended == 0:
        raise Escaped("the i386 table is open")
    raise Blocked(f"status {ended:x}")


@SURFACE
def seccomp_x32(ground: Ground) -> None:
    only_x86()
    ended = in_a_child(lambda: int(libc.syscall(ctypes.c_long(0x4000_0000 + 39))))
    if ended == 0:
        raise Escaped("the x32 table is open")
    raise Blocked(f"status {ended:x}")
