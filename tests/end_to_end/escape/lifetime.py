"""Attempts to outlive the command: what still runs holds the lock on a file in the root.

Run inside; each process here ends by itself some seconds later, whatever becomes of it. Next: runner.py.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable

from tests.end_to_end.escape.attempts import Ground, Kind, Setting, attempt
from tests.end_to_end.escape.evidence import lives_on

LOCK = "alive.lock"
LIFE_S = 5.0
LIFE = attempt(Kind.LIFE, lives_on)


def daemon(ground: Ground, then: Callable[[], None]) -> None:
    """A process of another session and with no parent of ours, that has the lock when this returns."""
    ready, told = os.pipe()
    child = os.fork()
    if child:
        os.close(told)
        os.waitpid(child, 0)
        os.read(ready, 1)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    lock = os.open(f"{ground.root}/{LOCK}", os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    for stream in range(3):
        os.close(stream)
    os.write(told, b"r")
    os.close(told)
    then()
    os._exit(0)


def linger() -> None:
    time.sleep(LIFE_S)


def chain() -> None:
    """Fork and end, again and again: whoever looks for processes to kill comes late."""
    end = time.monotonic() + LIFE_S
    while time.monotonic() < end:
        if os.fork():
            os._exit(0)


@LIFE
def daemon_outlives(ground: Ground) -> None:
    daemon(ground, linger)


@LIFE
def fork_chain_outlives(ground: Ground) -> None:
    daemon(ground, chain)


@attempt(Kind.LIFE, lives_on, Setting.KILLED, only_confined=True)
def daemon_outlives_killed_runner(ground: Ground) -> None:
    daemon(ground, linger)
    print("READY", flush=True)
    time.sleep(LIFE_S)
