"""Peers that vanish at any moment: the client, the far end, both, by FIN, by reset, or by doing nothing more.

Each moment is drawn from a seed; what is done in it is one of the enums below. Next: remains.py (what the
service must not keep), check.py (for how long).
"""

from __future__ import annotations

import enum
import random
import socket
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from tests.support.byte_stream import BLOCK_BYTES, close_with_reset, connect, end_direction, read_until
from tests.support.loopback_server import LoopbackServer
from tests.support.service import Service
from tests.support.service_answers import connect_request

WORKERS = 8
_LONGEST_S = 0.05  # until the kill; long enough for bulk to be under way
_PATIENCE_S = 2.0


class Moment(enum.StrEnum):
    """When the client goes."""

    IN_THE_HEAD = "in the head"
    DURING_THE_DIAL = "during the dial"
    IN_THE_TUNNEL = "in the tunnel"


class End(enum.StrEnum):
    """How one side goes: with FIN, with RST, its writing side first, or saying and reading nothing first."""

    CLOSE = "close"
    RESET = "reset"
    HALF = "half-close"
    STALL = "stall"


class Order(enum.IntEnum):
    """The first byte through a tunnel: what the far end does from then on, until the peer goes or it does."""

    ECHO = ord("e")
    FLOOD = ord("f")
    SILENCE = ord("s")
    CLOSE = ord("c")
    RESET = ord("r")


class ObedientOrigin(LoopbackServer):
    """Does what the first byte of each connection says; at a moment of its own where that is to go."""

    def serve(self, sock: socket.socket, index: int) -> None:
        with suppress(OSError):
            first = sock.recv(1)
            if first:
                self._obey(sock, Order(first[0]), random.Random(index))

    def _obey(self, sock: socket.socket, order: Order, rng: random.Random) -> None:
        match order:
            case Order.ECHO:
                while block := sock.recv(BLOCK_BYTES):
                    sock.sendall(block)
            case Order.FLOOD:
                while True:
                    sock.sendall(b"f" * BLOCK_BYTES)
            case Order.SILENCE:
                with self.changed:
                    self.changed.wait_for(lambda: self.stopping, 2 * _LONGEST_S)
            case Order.CLOSE | Order.RESET:
                _read_for(rng.random() * _LONGEST_S, sock)
                if order is Order.RESET:
                    close_with_reset(sock)


def kill_peers(service: Service, duration_s: float, seed: int = 1) -> Counter[str]:
    """How often each kind was done, in ``duration_s``. All connections have been closed on return."""
    end = time.monotonic() + duration_s
    done: Counter[str] = Counter()
    lock = threading.Lock()

    def work(number: int) -> None:
        rng = random.Random(seed * 1000 + number)
        while time.monotonic() < end:
            kind = _kill_one(rng, service.proxy_port, origin.address)
            with lock:
                done[kind] += 1

    with ObedientOrigin() as origin, ThreadPoolExecutor(WORKERS) as pool:
        for worked in [pool.submit(work, number) for number in range(WORKERS)]:
            worked.result()
    return done


def _kill_one(rng: random.Random, port: int, address: str) -> str:
    """One connection from its beginning to its sudden end."""
    # Most go in the tunnel, where most can be left behind.
    moment = rng.choices(list(Moment), (1, 2, 7))[0]
    end, order = rng.choice(list(End)), rng.choice(list(Order))
    head = connect_request(address)
    sock = connect(port, timeout_s=_PATIENCE_S)
    try:
        match moment:
            case Moment.IN_THE_HEAD:
                sock.sendall(head[: rng.randrange(len(head))])
            case Moment.DURING_THE_DIAL:
                sock.sendall(head + bytes([order]))
            case Moment.IN_THE_TUNNEL:
                sock.sendall(head)
                read_until(sock, b"\r\n\r\n", _PATIENCE_S)
                sock.sendall(bytes([order]))
                with suppress(TimeoutError):  # it was stuck when its time came
                    _talk(rng, sock)
        _go(end, rng, sock)
    except (ConnectionError, TimeoutError):
        pass  # the far end was first
    finally:
        sock.close()
    return f"{moment}: {end}, far end {order.name.lower()}"


def _talk(rng: random.Random, sock: socket.socket) -> None:
    """Write and read what goes, for a while."""
    end = time.monotonic() + rng.random() * _LONGEST_S
    reads, writes = rng.random() < 0.7, rng.random() < 0.7
    while (left := end - time.monotonic()) > 0:
        sock.settimeout(left)
        if writes:
            sock.send(b"x" * rng.randrange(1, BLOCK_BYTES))
        if reads and not sock.recv(BLOCK_BYTES):
            return
        if not reads and not writes:
            time.sleep(left)  # the stall itself


def _read_for(seconds: float, sock: socket.socket) -> None:
    """Until the time is over or the peer has ended: against one that floods, the first."""
    end = time.monotonic() + seconds
    with suppress(TimeoutError):
        while (left := end - time.monotonic()) > 0:
            sock.settimeout(left)
            if not sock.recv(BLOCK_BYTES):
                return


def _go(end: End, rng: random.Random, sock: socket.socket) -> None:
    match end:
        case End.CLOSE:
            sock.close()
        case End.RESET:
            close_with_reset(sock)
        case End.HALF:
            end_direction(sock)
            _read_for(rng.random() * _LONGEST_S, sock)
        case End.STALL:
            time.sleep(rng.random() * _LONGEST_S)
