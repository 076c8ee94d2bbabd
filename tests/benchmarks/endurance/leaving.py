"""How one side of a connection goes, and many clients at once, each with a seed of its own.

What they do until then: killing.py (tunnels), killing_injected.py (requests to an inject rule).
"""

from __future__ import annotations

import enum
import random
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from tests.support.byte_stream import BLOCK_BYTES, close_with_reset, end_direction

WORKERS = 8
LONGEST_S = 0.05  # until somebody goes; long enough for bulk to be under way


class End(enum.StrEnum):
    """How one side goes: with FIN, with RST, its writing side first, or saying and reading nothing first."""

    CLOSE = "close"
    RESET = "reset"
    HALF = "half-close"
    STALL = "stall"


def leave(end: End, rng: random.Random, sock: socket.socket) -> None:
    """Whoever calls closes ``sock`` at last."""
    match end:
        case End.CLOSE:
            sock.close()
        case End.RESET:
            close_with_reset(sock)
        case End.HALF:
            end_direction(sock)
            read_for(rng.random() * LONGEST_S, sock)
        case End.STALL:
            time.sleep(rng.random() * LONGEST_S)


def read_for(seconds: float, sock: socket.socket) -> None:
    """Until the time is over or the peer has ended: against one that floods, the first."""
    end = time.monotonic() + seconds
    with suppress(TimeoutError):
        while (left := end - time.monotonic()) > 0:
            sock.settimeout(left)
            if not sock.recv(BLOCK_BYTES):
                return


def crowd(duration_s: float, seed: int, once: Callable[[random.Random], None]) -> None:
    """Call ``once`` again and again for ``duration_s``, in WORKERS threads. None is under way on return."""
    end = time.monotonic() + duration_s

    def work(number: int) -> None:
        rng = random.Random(seed * 1000 + number)
        while time.monotonic() < end:
            once(rng)

    with ThreadPoolExecutor(WORKERS) as pool:
        for worked in [pool.submit(work, number) for number in range(WORKERS)]:
            worked.result()
