"""Peers of tunnels that vanish at any moment: the client, the far end, both, by FIN, by reset or stalling.

Each moment is drawn from a seed; what is done in it is one of the enums. Next: leaving.py (how one goes),
remains.py (what the service must not keep), check.py (for how long).
"""

from __future__ import annotations

import enum
import random
import socket
import threading
import time
from collections import Counter
from contextlib import suppress

from tests.benchmarks.endurance.leaving import LONGEST_S, End, crowd, leave, read_for
from tests.support.byte_stream import BLOCK_BYTES, close_with_reset, connect, read_until
from tests.support.loopback_server import LoopbackServer
from tests.support.service import Service
from tests.support.service_answers import connect_request

_PATIENCE_S = 2.0


class Moment(enum.StrEnum):
    """When the client goes."""

    IN_THE_HEAD = "in the head"
    DURING_THE_DIAL = "during the dial"
    IN_THE_TUNNEL = "in the tunnel"


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
                    self.changed.wait_for(lambda: self.stopping, 2 * LONGEST_S)
            case Order.CLOSE | Order.RESET:
                read_for(rng.random() * LONGEST_S, sock)
                if order is Order.RESET:
                    close_with_reset(sock)


def kill_peers(service: Service, duration_s: float, seed: int = 1) -> Counter[str]:
    """How often each kind was done, in ``duration_s``. All connections have been closed on return."""
    done: Counter[str] = Counter()
    lock = threading.Lock()

    def once(rng: random.Random) -> None:
        kind = _kill_one(rng, service.proxy_port, origin.address)
        with lock:
            done[kind] += 1

    with ObedientOrigin() as origin:
        crowd(duration_s, seed, once)
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
        leave(end, rng, sock)
    except (ConnectionError, TimeoutError):
        pass  # the far end was first
    finally:
        sock.close()
    return f"{moment}: {end}, far end {order.name.lower()}"


def _talk(rng: random.Random, sock: socket.socket) -> None:
    """Write and read what goes, for a while."""
    end = time.monotonic() + rng.random() * LONGEST_S
    reads, writes = rng.random() < 0.7, rng.random() < 0.7
    while (left := end - time.monotonic()) > 0:
        sock.settimeout(left)
        if writes:
            sock.send(b"x" * rng.randrange(1, BLOCK_BYTES))
        if reads and not sock.recv(BLOCK_BYTES):
            return
        if not reads and not writes:
            time.sleep(left)  # the stall itself
