"""What a provider saw: each connection and each request, to the byte, in order.

Written by the provider's threads, read by tests; nothing is judged or repaired here.
provider.py fills these in, exchange.py reads bodies.
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.support.byte_stream import BLOCK_BYTES, End
from tests.support.http import header_value, header_values
from tests.support.received import KEPT_BYTES


class PeerLeft(Exception):
    """The peer ended the connection before what was read for was whole."""


@dataclass(slots=True)
class RecordedRequest:
    """One request. ``whole`` turns true when its body has been read to the end."""

    connection: int  # index of the connection, from 0
    number: int  # on its connection, from 0
    raw_head: bytes  # with the blank line
    method: str
    target: str
    version: str
    headers: list[tuple[str, str]]  # in order, names as sent, values without blanks round them
    kept_body: bytearray = field(default_factory=bytearray)
    body_count: int = 0
    body_sha256: str = hashlib.sha256().hexdigest()  # of the whole body, once ``whole``
    whole: bool = False

    @property
    def body(self) -> bytes:
        """What was read of the body, decoded when chunked; its first 4 MiB."""
        return bytes(self.kept_body)

    @property
    def path(self) -> str:
        return self.target.split("?", 1)[0]

    def values(self, name: str) -> list[str]:
        """The values of all lines with this name, in order, whatever the case of the name."""
        return header_values(self.headers, name)

    def value(self, name: str) -> str | None:
        """The value of the only line with this name; None without one, an error with several."""
        return header_value(self.headers, name)


@dataclass(slots=True)
class RecordedConnection:
    """One connection."""

    index: int
    kept_raw: bytearray = field(default_factory=bytearray)
    raw_count: int = 0
    server_name: str | None = None  # SNI
    alpn: str | None = None
    tls_error: str | None = None  # why the handshake failed
    end: End = End.OPEN  # how the peer ended its direction, when it did so first
    closed: bool = False

    @property
    def raw(self) -> bytes:
        """Every application byte that came, its first 4 MiB."""
        return bytes(self.kept_raw)


def recorded_request(connection: int, number: int, raw_head: bytes) -> RecordedRequest:
    """Take a head apart leniently: what is malformed shows up as it came."""
    first, *lines = raw_head.decode("latin-1").rstrip("\r\n").split("\r\n")
    method, target, version = [*first.split(" ", 2), "", ""][:3]
    pairs = [line.partition(":") for line in lines]
    headers = [(name, value.strip(" \t")) for name, _, value in pairs]
    return RecordedRequest(connection, number, raw_head, method, target, version, headers)


class Incoming:
    """A buffered reader of one connection; all that it takes from the socket is reported once."""

    def __init__(self, sock: socket.socket, report: Callable[[bytes], None]) -> None:
        self._sock = sock
        self._report = report
        self._buffer = bytearray()

    @property
    def buffered(self) -> int:
        return len(self._buffer)

    def until(self, marker: bytes) -> bytes:
        """All bytes up to and with ``marker``."""
        while marker not in self._buffer:
            self._fill()
        return self._take(self._buffer.index(marker) + len(marker))

    def some(self, limit_bytes: int) -> bytes:
        """At least one byte, at most ``limit_bytes``."""
        if not self._buffer:
            self._fill()
        return self._take(min(limit_bytes, len(self._buffer)))

    def _fill(self) -> None:
        block = self._sock.recv(BLOCK_BYTES)
        if not block:
            raise PeerLeft
        self._report(block)
        self._buffer += block

    def _take(self, n: int) -> bytes:
        taken = bytes(self._buffer[:n])
        del self._buffer[:n]
        return taken


def keep(kept: bytearray, block: bytes) -> None:
    """Add ``block``, as far as the bound allows."""
    kept += block[: KEPT_BYTES - len(kept)]
