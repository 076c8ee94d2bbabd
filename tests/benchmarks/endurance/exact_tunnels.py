"""Tunnels whose two ends compare every byte, and how the other one ended, whatever happens in between.

What each does is drawn from a seed and told to the far end in the first line. Next: duplex.py (one end),
chaos.py (for how long, and what else goes on meanwhile).
"""

from __future__ import annotations

import itertools
import random
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from tests.benchmarks.endurance.duplex import PATIENCE_S, Fate, Got, Side, play
from tests.benchmarks.endurance.leaving import End, crowd, leave
from tests.support.byte_stream import BLOCK_BYTES, Truncated, connect, read_exactly, read_until
from tests.support.byte_stream import End as StreamEnd
from tests.support.http import read_head
from tests.support.loopback_server import LoopbackServer
from tests.support.service import Service
from tests.support.service_answers import connect_request

_READY = b"\n"
_SMALL_BYTES, _LARGE_BYTES = 5_000, 40 * BLOCK_BYTES


class FarEnd(LoopbackServer):
    """Plays its side as the first line says, and tells what it got. ``faults``: lines that nobody sent."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[str] = []
        self._got: dict[int, Got] = {}

    def serve(self, sock: socket.socket, index: int) -> None:
        try:
            line = read_until(sock, b"\n", PATIENCE_S).decode()
            client, own = map(Side.of, line.rstrip("\n").split("/"))
            sock.sendall(_READY)
        except (Truncated, OSError):
            return  # the client had gone before
        except (ValueError, KeyError) as error:
            self.faults.append(f"a tunnel began with what nobody had sent: {error}")
            return
        got = play(sock, own, client)
        with self.changed:
            self._got[client.number] = got
            self.changed.notify_all()

    def got(self, number: int) -> Got | None:
        """What came from the client of that number, once its tunnel is over; None if it never is."""
        with self.changed:
            self.changed.wait_for(lambda: number in self._got, PATIENCE_S)
            return self._got.pop(number, None)


@dataclass(slots=True)
class Tunnels:
    """What was played, and what went wrong with it."""

    kinds: Counter[str] = field(default_factory=Counter)
    exact_bytes: int = 0
    faults: list[str] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, kind: str, exact_bytes: int, faults: list[str]) -> None:
        with self._lock:
            self.kinds[kind] += 1
            self.exact_bytes += exact_bytes
            self.faults += faults

    def __str__(self) -> str:
        mib = self.exact_bytes / 1_048_576
        return f"{self.kinds.total():,} tunnels in {len(self.kinds)} ways, {mib:,.0f} MiB of them compared"


def play_tunnels(service: Service, far: FarEnd, duration_s: float, done: Tunnels, seed: int) -> None:
    """For ``duration_s``. All connections of clients have been closed on return."""

    def once(rng: random.Random) -> None:
        client, other = _drawn_side(rng, next(done.numbers)), _drawn_side(rng, next(done.numbers))
        head = connect_request(far.address) + f"{client}/{other}\n".encode()
        if rng.random() < 0.15:
            end = rng.choice(list(End))
            _leave_early(rng, service.proxy_port, head, end)
            done.add(f"gone before the 200: {end}", 0, [])
            return
        got = _play_one(service.proxy_port, head, client, other)
        theirs = far.got(client.number)
        faults = [f"{client}/{other}: {fault}" for fault in _faults(client, other, got, theirs)]
        exact = got.count + theirs.count if theirs and not faults else 0
        done.add(f"{client.fate.name} {other.fate.name}", exact, faults)

    crowd(duration_s, seed, once)


def _drawn_side(rng: random.Random, number: int) -> Side:
    size = rng.randrange(_LARGE_BYTES if rng.random() < 0.15 else _SMALL_BYTES)
    fate = rng.choices(list(Fate), (6, 2, 2))[0]
    return Side(number, size, fate, rng.randrange(size + 1), is_slow=rng.random() < 0.2)


def _leave_early(rng: random.Random, port: int, head: bytes, end: End) -> None:
    """In the head, or while the proxy dials."""
    sent = head if rng.random() < 0.7 else head[: rng.randrange(len(head))]
    with connect(port, timeout_s=PATIENCE_S) as sock, suppress(ConnectionError):
        sock.sendall(sent)
        leave(end, rng, sock)


def _play_one(port: int, head: bytes, client: Side, other: Side) -> Got:
    with connect(port, timeout_s=PATIENCE_S) as sock:
        sock.sendall(head)
        answer = read_head(sock, PATIENCE_S)
        if answer.status != 200:
            raise AssertionError(f"a tunnel was refused: {answer.status_line}")
        # Not earlier: a reset overtakes what was sent before it, also the line that says what to play.
        read_exactly(sock, len(_READY), PATIENCE_S)
        return play(sock, client, other)


def _faults(client: Side, other: Side, got: Got, theirs: Got | None) -> Iterator[str]:
    if theirs is None:
        yield "its far end heard of no end"
        return
    yield from (f"to the far end: {fault}" for fault in _of_one_way(client, other, theirs))
    yield from (f"to the client: {fault}" for fault in _of_one_way(other, client, got))


def _of_one_way(sender: Side, reader: Side, got: Got) -> Iterator[str]:
    """What the reader may not have got from the sender."""
    if not got.is_exact:
        yield f"other bytes than were sent, within {got.count} of {sender.size}"
    if got.is_stuck:
        yield f"after {got.count} of {sender.size} bytes nothing moved for {PATIENCE_S:g} s"
    if got.end is StreamEnd.EOF and (got.count != sender.size or sender.fate is Fate.RESET):
        yield f"{got.count} of {sender.size} bytes and a clean end, but it {sender.fate}"
    peaceful = sender.fate is Fate.END and reader.fate is Fate.END
    if peaceful and got.end is StreamEnd.RESET:
        yield f"a reset after {got.count} of {sender.size} bytes, and nobody had made one"
