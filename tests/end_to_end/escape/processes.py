"""Attempts on the host's processes: signals, memory, descriptors, limits.

Run inside, against a victim that the host made. Next: runner.py (against what confines the command).
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import socket
import struct

from tests.end_to_end.escape.attempts import Blocked, Escaped, Ground, Kind, attempt
from tests.end_to_end.escape.calls import (
    RUNNER,
    checked,
    libc,
    number,
    pidfd_getfd,
    pidfd_open,
    system_call,
    write,
)
from tests.end_to_end.escape.evidence import outside_changed, victim_died

EFFECT = attempt(Kind.EFFECT)
KILLS = attempt(Kind.EFFECT, victim_died)
OUTSIDE = attempt(Kind.EFFECT, outside_changed)
PTRACE_ATTACH, PTRACE_DETACH = 16, 17
F_SETOWN, F_SETSIG, O_ASYNC = 8, 10, 0x2000


def visible(ground: Ground) -> int:
    """The victim's number; a file of its folder that is not there says nothing by itself."""
    if not os.path.exists(f"/proc/{ground.victim_pid}"):
        raise Blocked("its number is not seen")
    return ground.victim_pid


@OUTSIDE
def proc_pid_root_write(ground: Ground) -> None:
    failures = []
    for process in (1, RUNNER, ground.victim_pid):
        try:
            write(f"/proc/{process}/root{ground.victim}")
        except OSError as error:
            failures.append(error)
    raise failures[-1]


@OUTSIDE
def proc_pid_cwd_write(ground: Ground) -> None:
    write(f"/proc/{ground.victim_pid}/cwd/by-cwd")


@OUTSIDE
def proc_pid_fd_write(ground: Ground) -> None:
    write(f"/proc/{ground.victim_pid}/fd/{ground.victim_descriptor}")


@EFFECT
def proc_pid_mem_write(ground: Ground) -> None:
    os.close(os.open(f"/proc/{visible(ground)}/mem", os.O_RDWR))
    raise Escaped("its memory is open")


@EFFECT
def ptrace_attach(ground: Ground) -> None:
    checked(libc.ptrace(PTRACE_ATTACH, ground.victim_pid, 0, 0))
    # __WALL: it is not our child
    os.waitpid(ground.victim_pid, 0x4000_0000)
    libc.ptrace(PTRACE_DETACH, ground.victim_pid, 0, 0)
    raise Escaped("attached")


@EFFECT
def process_vm_read(ground: Ground) -> None:
    with open(f"/proc/{visible(ground)}/maps", encoding="utf-8") as stream:
        address = int(stream.readline().split("-")[0], 16)
    buffer = ctypes.create_string_buffer(16)
    ours = struct.pack("PN", ctypes.addressof(buffer), 16)
    system_call(number(310, 270), ground.victim_pid, ours, 1, struct.pack("PN", address, 16), 1, 0)
    raise Escaped("read its memory")


@EFFECT
def pidfd_getfd_host(ground: Ground) -> None:
    pidfd_getfd(pidfd_open(ground.victim_pid), ground.victim_descriptor)
    raise Escaped("took a descriptor")


@EFFECT
def kcmp_host(ground: Ground) -> None:
    system_call(number(312, 272), os.getpid(), ground.victim_pid, 2, 0, 0)  # KCMP_VM
    raise Escaped("compared")


@EFFECT
def process_madvise_host(ground: Ground) -> None:
    pidfd = pidfd_open(ground.victim_pid)
    system_call(440, pidfd, struct.pack("PN", 0, 0), 0, 21, 0)  # MADV_PAGEOUT
    raise Escaped("advised")


@KILLS
def signal_host_process(ground: Ground) -> None:
    os.kill(ground.victim_pid, signal.SIGKILL)


@KILLS
def signal_group_host(ground: Ground) -> None:
    os.killpg(ground.victim_pid, signal.SIGKILL)


@KILLS
def pidfd_signal_host(ground: Ground) -> None:
    signal.pidfd_send_signal(os.pidfd_open(ground.victim_pid), signal.SIGKILL)


@KILLS
def proc_folder_signal_host(ground: Ground) -> None:
    """A folder of /proc is a pidfd too."""
    signal.pidfd_send_signal(os.open(f"/proc/{ground.victim_pid}", os.O_RDONLY), signal.SIGKILL)


@KILLS
def tgkill_host(ground: Ground) -> None:
    system_call(number(234, 131), ground.victim_pid, ground.victim_pid, signal.SIGKILL)


@KILLS
def sigqueue_host(ground: Ground) -> None:
    details = struct.pack("=iii", signal.SIGKILL, 0, -1).ljust(128, b"\0")  # SI_QUEUE
    system_call(number(129, 138), ground.victim_pid, signal.SIGKILL, details)


@KILLS
def sigio_setown_host(ground: Ground) -> None:
    ours, theirs = socket.socketpair()
    fcntl.fcntl(ours, F_SETOWN, ground.victim_pid)
    fcntl.fcntl(ours, F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(ours, fcntl.F_SETFL, fcntl.fcntl(ours, fcntl.F_GETFL) | O_ASYNC)
    theirs.send(b"x")


@EFFECT
def prlimit_host(ground: Ground) -> None:
    no_core = struct.pack("QQ", 0, 0)
    system_call(number(302, 261), ground.victim_pid, 4, no_core, None)
    raise Escaped("set a limit")


@EFFECT
def renice_host(ground: Ground) -> None:
    os.setpriority(os.PRIO_PROCESS, ground.victim_pid, 19)
    raise Escaped("reniced")


@EFFECT
def ioprio_host(ground: Ground) -> None:
    system_call(number(251, 30), 1, ground.victim_pid, 3 << 13)  # IOPRIO_CLASS_IDLE
    raise Escaped("set its priority")


@EFFECT
def affinity_host(ground: Ground) -> None:
    os.sched_setaffinity(ground.victim_pid, os.sched_getaffinity(0))
    raise Escaped("pinned")


@EFFECT
def scheduler_host(ground: Ground) -> None:
    os.sched_setscheduler(ground.victim_pid, os.SCHED_BATCH, os.sched_param(0))
    raise Escaped("set its scheduler")


@EFFECT
def oom_adj_host(ground: Ground) -> None:
    write(f"/proc/{visible(ground)}/oom_score_adj", "500")
    raise Escaped("set its score")
