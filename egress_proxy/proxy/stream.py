"""A byte stream over a non-blocking socket: the small seam that TLS, heads and bodies are read through.

No protocol and no policy here. Tunnels do not use it: relay.py owns their sockets. Next: tls.py (the same
seam over TLS), connection.py (who reads heads from it).
"""

import asyncio
import contextlib
import socket
import struct
from typing import Protocol

# What one read may bring. Larger reads do not pay on loopback and hold memory for each connection.
READ_BYTES = 65_536
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class StreamReset(Exception):
    """The peer reset the connection, or it broke."""


class StreamTruncated(Exception):
    """The peer ended the stream without saying that it was complete (TLS without close_notify)."""


class Stream(Protocol):
    """Ordered bytes both ways. One reader and one writer at a time."""

    async def receive(self) -> bytes:
        """The next bytes, at most READ_BYTES; empty at the end. Raises StreamReset, StreamTruncated."""

    async def send(self, data: bytes) -> None:
        """Send all of it; waits while the peer does not read. Raises StreamReset."""

    def close(self) -> None:
        """End the stream; what was sent is still delivered."""

    def abort(self) -> None:
        """End the stream with a reset, so that the peer cannot take it for complete."""

    def is_quiet(self) -> bool:
        """Whether an idle stream is still open and has brought nothing: it may be used again."""


def reset_on_close(sock: socket.socket) -> None:
    """Make the next close() a reset."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)


def prepare(sock: socket.socket) -> None:
    """What every socket of ours gets: no waiting in calls, and no waiting to fill a segment."""
    sock.setblocking(False)
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        # An event stream must not wait for the peer's acknowledgement (RFC 896).
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # An urgent byte is a byte: kept apart it would be lost, and a read would stop in front of it.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)


class SocketStream:
    """The plain stream. `unread` gives bytes back that belong to whoever reads next."""

    __slots__ = ("_loop", "_unread", "sock")

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
        self.sock = sock
        self._loop = loop
        self._unread = b""

    async def receive(self) -> bytes:
        if self._unread:
            return self.take_unread()
        try:
            return await self._loop.sock_recv(self.sock, READ_BYTES)
        except OSError as error:
            raise StreamReset from error

    async def send(self, data: bytes) -> None:
        try:
            await self._loop.sock_sendall(self.sock, data)
        except OSError as error:
            raise StreamReset from error

    def unread(self, data: bytes) -> None:
        self._unread = data + self._unread

    def take_unread(self) -> bytes:
        data, self._unread = self._unread, b""
        return data

    def end_output(self) -> None:
        """Send our FIN; the peer may still send."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.sock.close()

    def abort(self) -> None:
        reset_on_close(self.sock)
        self.sock.close()

    def poll(self) -> bytes | None:
        """Bytes that are there already, empty at the end of the stream, None when there is nothing."""
        if self._unread:
            return self.take_unread()
        try:
            return self.sock.recv(READ_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def is_quiet(self) -> bool:
        return self.poll() is None
