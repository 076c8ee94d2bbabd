"""One end of a tunnel that sends what is its own, takes in what is the other's, and compares every byte.

The same on both sides: a client here, a server there. Next: exact_tunnels.py (who plays what, and judges).
"""

from __future__ import annotations

import enum
import select
import socket
import time
from dataclasses import dataclass

from tests.benchmarks.endurance.leaving import LONGEST_S
from tests.benchmarks.endurance.obedient_upstream import NARROW_BYTES, SLOW_S, content
from tests.support.byte_stream import BLOCK_BYTES, End, close_with_reset

PATIENCE_S = 20.0  # a tunnel that is not over by then hangs


class Fate(enum.StrEnum):
    """What one side does when it has sent all that it sends."""

    END = "ends its direction, and reads on"
    CLOSE = "closes, whatever still comes"
    RESET = "resets"


@dataclass(frozen=True, slots=True)
class Side:
    """``number`` is its alone and fills what it sends; ``stall_at``: after so many bytes it pauses."""

    number: int
    size: int
    fate: Fate
    stall_at: int
    is_slow: bool  # it reads late, and there is little room for what it has not read yet

    def __str__(self) -> str:
        return f"{self.number} {self.size} {self.fate.name} {self.stall_at} {int(self.is_slow)}"

    @classmethod
    def of(cls, text: str) -> Side:
        """Raises ValueError, KeyError for what str() of no side is."""
        number, size, fate, stall_at, is_slow = text.split(" ")
        return cls(int(number), int(size), Fate[fate], int(stall_at), bool(int(is_slow)))


@dataclass(slots=True)
class Got:
    """What came. ``end`` OPEN: it left before the other did; or, if ``is_stuck``, nothing moved any more."""

    count: int = 0
    is_exact: bool = True
    end: End = End.OPEN
    is_stuck: bool = False


def play(sock: socket.socket, own: Side, other: Side) -> Got:
    """Send, read and compare until both directions are over. Closes the socket where its fate says so."""
    got = Got()
    if own.is_slow:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, NARROW_BYTES)
        time.sleep(SLOW_S if other.size > NARROW_BYTES else 0)
    sock.setblocking(False)
    try:
        _converse(sock, own, content(other.number, other.size), got)
    except OSError:  # also "not connected", of a socket whose reset has been told of already
        got.end = End.RESET
    return got


def _converse(sock: socket.socket, own: Side, wanted: bytes, got: Got) -> None:
    left = memoryview(content(own.number, own.size))
    is_sending, stall_left = True, own.size - own.stall_at
    ends_at = time.monotonic() + PATIENCE_S
    poll = select.poll()
    while is_sending or got.end is End.OPEN:
        if is_sending and not left:
            is_sending = False
            if _leave(sock, own.fate):
                return
            continue
        reading = select.POLLIN if got.end is End.OPEN else 0
        poll.register(sock, reading | (select.POLLOUT if is_sending else 0))
        events = poll.poll(max(0.0, ends_at - time.monotonic()) * 1000)
        if not events:
            got.is_stuck = True
            return
        if events[0][1] & ~select.POLLOUT and got.end is End.OPEN:
            _take(sock, wanted, got)
        if events[0][1] & (select.POLLOUT | select.POLLERR) and is_sending:
            left = left[sock.send(left[:BLOCK_BYTES]) :]
            if len(left) <= stall_left:
                stall_left = -1
                time.sleep(own.stall_at % 100 / 100 * LONGEST_S)


def _leave(sock: socket.socket, fate: Fate) -> bool:
    """Whether it is gone altogether."""
    match fate:
        case Fate.END:
            sock.shutdown(socket.SHUT_WR)
            return False
        case Fate.CLOSE:
            sock.close()
        case Fate.RESET:
            close_with_reset(sock)
    return True


def _take(sock: socket.socket, wanted: bytes, got: Got) -> None:
    block = sock.recv(BLOCK_BYTES)
    if not block:
        got.end = End.EOF
    got.is_exact &= wanted[got.count : got.count + len(block)] == block
    got.count += len(block)
