"""A byte stream over a non-blocking socket: the small seam that TLS, heads and bodies are read through.

No protocol and no policy here. Tunnels do not use it: relay.py owns their sockets. Next: tls.py (the same
seam over TLS), connection.py (who reads heads from it).
"""

import asyncio
import contextlib
import socket
import struct
import sys
from collections.abc import Callable
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

    async def receive(self, limit_s: float | None = None) -> bytes:
        """The next bytes, at most READ_BYTES; empty at the end.

        Raises StreamReset, StreamTruncated, and TimeoutError when nothing came within ``limit_s``.
        """

    async def send(self, data: bytes, limit_s: float | None = None) -> None:
        """Send all of it; waits while the peer does not read. Raises StreamReset, TimeoutError."""

    def limit_wait(self, limit_s: float) -> None:
        """Give whoever waits in `receive` so long from now on, instead of what it asked for."""

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
        prepare_tcp(sock)


def prepare_tcp(sock: socket.socket) -> None:
    """The part of `prepare` for a TCP socket that is non-blocking from birth."""
    # An event stream must not wait for the peer's acknowledgement (RFC 896).
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # An urgent byte is a byte: kept apart it would be lost, and a read would stop in front of it.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)


def prepare_accepted(sock: socket.socket) -> None:
    """`prepare` for a socket from a prepared listener. Linux hands the listener's options down: three system
    calls less for each client."""
    if sys.platform == "linux":
        sock.setblocking(False)
    else:
        prepare(sock)


class SocketStream:
    """The plain stream. `unread` gives bytes back that belong to whoever reads next.

    The event loop watches the socket from the first wait on, and tells of input while nobody waits for it
    once: so a connection that takes turns with its peer costs no `epoll_ctl`, and no timer, for each turn.
    """

    __slots__ = ("_due_at", "_is_watched", "_loop", "_onlooker", "_timer", "_unread", "_waiter", "sock")

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
        self.sock = sock
        self._loop = loop
        self._unread = b""
        self._is_watched = False
        self._waiter: asyncio.Future[None] | None = None
        self._onlooker: Callable[[], None] | None = None
        self._due_at: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def receive(self, limit_s: float | None = None) -> bytes:
        if self._unread:
            return self.take_unread()
        # Waits where bytes are there already, too: after each read everybody else has a turn.
        self._watch()
        self._waiter = waiter = self._loop.create_future()
        self._limit(limit_s)
        try:
            await waiter
        finally:
            self._waiter = self._due_at = None
        return self.take_unread()  # nothing: the end

    async def send(self, data: bytes, limit_s: float | None = None) -> None:
        try:
            sent = self.sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            raise StreamReset from error
        if sent < len(data):
            async with asyncio.timeout(limit_s):
                await self._send_rest(memoryview(data)[sent:])

    async def _send_rest(self, rest: memoryview) -> None:
        try:
            await self._loop.sock_sendall(self.sock, rest)
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

    def release(self) -> socket.socket:
        """The socket for somebody else; this stream is over."""
        self._stop_watching()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return self.sock

    def close(self) -> None:
        self.release().close()

    def abort(self) -> None:
        reset_on_close(self.sock)
        self.close()

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

    def limit_wait(self, limit_s: float) -> None:
        if self._waiter is not None:
            self._limit(limit_s)

    def look_on(self, onlooker: Callable[[], None] | None) -> None:
        """Tell ``onlooker`` of input, or the end, while nobody waits for it; None: no longer."""
        self._onlooker = onlooker
        if onlooker is not None:
            self._watch()

    def _watch(self) -> None:
        if not self._is_watched:
            if self.sock.fileno() < 0:
                raise StreamReset
            # By its number: asked about a socket that it does not know, a selector describes it, at length.
            self._loop.add_reader(self.sock.fileno(), self._on_input)
            self._is_watched = True

    def _stop_watching(self) -> None:
        if self._is_watched:
            self._loop.remove_reader(self.sock.fileno())
            self._is_watched = False

    def _on_input(self) -> None:
        if self._waiter is not None:
            self._take_in(self._waiter)
        elif self._onlooker is not None:
            self._onlooker()
        else:
            self._stop_watching()  # it would be told again and again

    def _take_in(self, waiter: asyncio.Future[None]) -> None:
        """Read at once: until the waiter has its turn the loop would tell of the same bytes again."""
        if waiter.done():
            return
        try:
            self._unread += self.sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            reset = StreamReset()
            reset.__cause__ = error
            waiter.set_exception(reset)
        else:
            waiter.set_result(None)

    def _limit(self, limit_s: float | None) -> None:
        """The timer is set anew only where it would come too late: most waits end long before it."""
        self._due_at = None if limit_s is None else self._loop.time() + limit_s
        if self._due_at is None or (self._timer is not None and self._timer.when() <= self._due_at):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._due_at, self._on_time)

    def _on_time(self) -> None:
        timer, self._timer = self._timer, None
        if self._waiter is None or self._due_at is None or timer is None:
            return
        if timer.when() < self._due_at:
            self._timer = self._loop.call_at(self._due_at, self._on_time)
        elif not self._waiter.done():
            self._waiter.set_exception(TimeoutError())
