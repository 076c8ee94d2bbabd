"""Attempts on what confines the command: bwrap's first process, or the supervisor of the Landlock rung.

Run inside, never without a sandbox: the parent would be the host's own. Next: processes.py, lifetime.py.
"""

from __future__ import annotations

import os
import signal
import time

from tests.end_to_end.escape.attempts import Blocked, Escaped, Ground, Kind, attempt
from tests.end_to_end.escape.calls import RUNNER, checked, libc, pidfd_getfd, pidfd_open
from tests.end_to_end.escape.evidence import runner_ended
from tests.end_to_end.escape.processes import PTRACE_ATTACH, PTRACE_DETACH

_CONFINES = ("CapEff", "CapPrm", "CapBnd", "NoNewPrivs", "Seccomp")
STOP_S = 0.3  # on a busy machine it takes a moment
ON_RUNNER = attempt(Kind.EFFECT, only_confined=True)


@attempt(Kind.EFFECT, runner_ended, only_confined=True)
def runner_kill(ground: Ground) -> None:
    os.kill(RUNNER, signal.SIGKILL)


@ON_RUNNER
def runner_stop(ground: Ground) -> None:
    """A stopped one would never say that the command has ended."""
    os.kill(RUNNER, signal.SIGSTOP)
    end = time.monotonic() + STOP_S
    while not (stopped := status(RUNNER, "State").startswith("T")) and time.monotonic() < end:
        time.sleep(STOP_S / 10)
    os.kill(RUNNER, signal.SIGCONT)
    if stopped:
        raise Escaped("stopped")
    raise Blocked("it goes on")


@ON_RUNNER
def runner_ptrace(ground: Ground) -> None:
    checked(libc.ptrace(PTRACE_ATTACH, RUNNER, 0, 0))
    os.waitpid(RUNNER, 0x4000_0000)
    libc.ptrace(PTRACE_DETACH, RUNNER, 0, 0)
    raise Escaped("attached")


@ON_RUNNER
def runner_descriptors_taken(ground: Ground) -> None:
    pidfd = pidfd_open(RUNNER)
    failures = []
    for descriptor in range(64):
        try:
            pidfd_getfd(pidfd, descriptor)
        except OSError as error:
            failures.append(error)
        else:
            raise Escaped(f"took descriptor {descriptor}")
    raise failures[-1]


@ON_RUNNER
def runner_descriptors_opened(ground: Ground) -> None:
    """Its memory files and its connection to the proxy, by /proc; the streams are the command's too."""
    folder = f"/proc/{RUNNER}/fd"
    known = {os.readlink(f"/proc/self/fd/{stream}") for stream in range(3)}
    failures = [OSError("none")]
    for name in os.listdir(folder):
        try:
            os.close(os.open(f"{folder}/{name}", os.O_RDWR | os.O_NONBLOCK))
        except OSError as error:
            failures.append(error)
            continue
        if os.readlink(f"{folder}/{name}") not in known:
            raise Escaped(f"opened {os.readlink(f'{folder}/{name}')}")
    raise failures[-1]


@ON_RUNNER
def runner_memory_open(ground: Ground) -> None:
    """Code written there runs as it may: that is no more than the command only where it is confined alike."""
    os.close(os.open(f"/proc/{RUNNER}/mem", os.O_RDWR))
    freer = [key for key in _CONFINES if status(RUNNER, key) != status("self", key)]
    if freer:
        raise Escaped(f"its memory is open, and it is another's in {', '.join(freer)}")
    raise Blocked("its memory is open, and it may do no more than we")


def status(process: int | str, key: str) -> str:
    with open(f"/proc/{process}/status", encoding="utf-8") as stream:
        return dict(line.split(":\t", 1) for line in stream.read().splitlines())[key].strip()
