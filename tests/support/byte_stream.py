"""Bytes from a socket: exactly as many as asked for, within a time. http.py and origins use it.

Nothing is read ahead: what a function does not return is still in the socket for the next one.
An early end is ``Truncated``, a reset is ``ConnectionResetError``, lateness is ``TimeoutError``.
"""

from __future__ import annotations

import contextlib
import enum
import socket
import ssl
import struct

from tests.support.deadline import DEFAULT_S, Deadline

BLOCK_BYTES = 65_536
_LONGEST_HEAD = 1_048_576  # a test that reads more than this for a marker has lost its way


class End(enum.StrEnum):
    """How the other side's direction of a connection stands."""

    OPEN = "open"
    EOF = "eof"
    RESET = "reset"


class Truncated(Exception):
    """The stream ended before what was asked for was whole; ``received`` is what came."""

    def __init__(self, what: str, received: bytes) -> None:
        super().__init__(f"the stream ended within {what}, after {len(received)} bytes")
        self.received = received


def connect(port: int, host: str = "127.0.0.1", timeout_s: float = DEFAULT_S) -> socket.socket:
    """A connected TCP socket with no delay; ``timeout_s`` also bounds each plain call on it."""
    sock = socket.create_connection((host, port), timeout_s)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def read_some(sock: socket.socket, timeout_s: float = DEFAULT_S) -> bytes:
    """What there is, at least one byte; ``b""`` at the end of the stream."""
    sock.settimeout(timeout_s)
    return sock.recv(BLOCK_BYTES)


def read_exactly(sock: socket.socket, n: int, timeout_s: float = DEFAULT_S) -> bytes:
    deadline = Deadline(timeout_s, f"{n} bytes")
    received = bytearray()
    while len(received) < n:
        sock.settimeout(deadline.remaining_s())
        block = sock.recv(min(n - len(received), BLOCK_BYTES))
        if not block:
            raise Truncated(f"{n} bytes", bytes(received))
        received += block
    return bytes(received)


def read_until(sock: socket.socket, marker: bytes, timeout_s: float = DEFAULT_S) -> bytes:
    """All bytes up to and with ``marker``, and not one more."""
    deadline = Deadline(timeout_s, f"{marker!r}")
    received = bytearray()
    while marker not in received:
        sock.settimeout(deadline.remaining_s())
        block = _next_towards(sock, marker, received)
        if not block:
            raise Truncated(f"the bytes before {marker!r}", bytes(received))
        received += block
        if len(received) > _LONGEST_HEAD:
            raise ValueError(f"no {marker!r} in {len(received)} bytes")
    return bytes(received)


def _next_towards(sock: socket.socket, marker: bytes, received: bytearray) -> bytes:
    """The next block, cut behind ``marker`` when that is completed in it."""
    if isinstance(sock, ssl.SSLSocket):
        return sock.recv(1)  # TLS cannot peek
    seen = sock.recv(BLOCK_BYTES, socket.MSG_PEEK)
    overlap = min(len(received), len(marker) - 1)
    tail = bytes(received[len(received) - overlap :]) + seen
    at = tail.find(marker)
    wanted = len(seen) if at < 0 else at + len(marker) - overlap
    return sock.recv(wanted)


def read_to_end(sock: socket.socket, timeout_s: float = DEFAULT_S, limit_bytes: int = 1 << 30) -> bytes:
    """All bytes until the other side ends; a reset raises, so it is never taken for an end."""
    received, end = read_until_end(sock, timeout_s, limit_bytes)
    if end is End.RESET:
        raise ConnectionResetError(f"reset after {len(received)} bytes")
    if end is End.OPEN:
        raise TimeoutError(f"no end of the stream in {timeout_s:g} s, {len(received)} bytes came")
    return received


def read_until_end(
    sock: socket.socket, timeout_s: float = DEFAULT_S, limit_bytes: int = 1 << 30
) -> tuple[bytes, End]:
    """All bytes until the end or the deadline, and how it ended; ``End.OPEN`` is the deadline."""
    deadline = Deadline(timeout_s, "the end of the stream")
    received = bytearray()
    while len(received) < limit_bytes:
        try:
            sock.settimeout(deadline.remaining_s())
            block = sock.recv(min(BLOCK_BYTES, limit_bytes - len(received)))
        except TimeoutError:
            return bytes(received), End.OPEN
        except ConnectionError:
            return bytes(received), End.RESET
        if not block:
            return bytes(received), End.EOF
        received += block
    raise ValueError(f"more than {limit_bytes} bytes came")


def read_end(sock: socket.socket, timeout_s: float = DEFAULT_S) -> End:
    """Wait for the end of a stream on which nothing more may come; a byte is an error."""
    received, end = read_until_end(sock, timeout_s)
    if received:
        raise ValueError(f"expected the end of the stream, got {received[:200]!r}")
    return end


def end_direction(sock: socket.socket) -> None:
    """End what we send, cleanly: with TLS a close_notify, then FIN. What comes can still be read.

    (Below TLS, that is: after this an ``SSLSocket`` is good for ``close`` only.)
    """
    if isinstance(sock, ssl.SSLSocket):
        sock.settimeout(0)  # send close_notify, do not wait for the peer's
        with contextlib.suppress(OSError):
            sock.unwrap()
    with contextlib.suppress(OSError):
        socket.socket.shutdown(sock, socket.SHUT_WR)


def close_with_reset(sock: socket.socket) -> None:
    """Close so that the other side sees RST, not FIN."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
