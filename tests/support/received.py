"""What one connection brought: counted and hashed in whole, kept up to a bound, and how it ended.

Written by the thread that reads the connection, read by tests from any thread.
Used by origins.py.
"""

from __future__ import annotations

import hashlib
import socket
import threading

from tests.support.byte_stream import BLOCK_BYTES, End

KEPT_BYTES = 4 * 1_048_576  # tests that compare contents send less; bulk tests compare digests


class Received:
    """The bytes that came in on one connection. ``changed`` is the server's condition."""

    def __init__(self, sock: socket.socket, changed: threading.Condition) -> None:
        self._sock = sock
        self._changed = changed
        self._kept = bytearray()
        self._digest = hashlib.sha256()
        self.count = 0
        self.end = End.OPEN

    def read(self, limit_bytes: int = BLOCK_BYTES) -> bytes:
        """The next block, recorded; ``b""`` at the end of either kind. For the serving thread."""
        try:
            block = self._sock.recv(limit_bytes)
        except ConnectionError:
            self.mark(End.RESET)
            return b""
        if not block:
            self.mark(End.EOF)
            return b""
        with self._changed:
            self.count += len(block)
            self._digest.update(block)
            self._kept += block[: KEPT_BYTES - len(self._kept)]
            self._changed.notify_all()
        return block

    def read_to_end(self) -> None:
        while self.read():
            pass

    def mark(self, end: End) -> None:
        with self._changed:
            if self.end is End.OPEN:
                self.end = end
            self._changed.notify_all()

    def kept(self) -> bytes:
        """The first ``KEPT_BYTES`` of what came."""
        with self._changed:
            return bytes(self._kept)

    def sha256(self) -> str:
        """Of all that came, in hex."""
        with self._changed:
            return self._digest.hexdigest()
