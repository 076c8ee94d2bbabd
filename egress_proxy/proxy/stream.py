"""A byte stream over a non-blocking socket: the small seam that TLS, heads and bodies are read through.

No protocol and no policy here. Tunnels do not use it: relay.py owns their sockets. Next: deadline.py, tls.py
(the same seam over TLS), exchange.py (moves bodies through it), connection.py (reads heads from it).
"""

import asyncio
import contextlib
import select
import socket
import struct
from collections.abc import Callable
from typing import Protocol

from egress_proxy.proxy.deadline import Deadline

# What one read may bring. Larger reads do not pay on loopback and hold memory for each connection.
READ_BYTES = 65_536
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class StreamReset(Exception):
    """The peer reset the connection, or it broke."""


class StreamTruncated(Exception):
    """The peer ended the stream without saying that it was complete (TLS without close_notify)."""


def unheard() -> None:
    """For `on_room` when nobody wants to know."""


class Stream(Protocol):
    """Ordered bytes both ways, without waiting: whoever waits is told."""

    on_room: Callable[[], None]
    """Called when what was given has gone out, or never will (`is_broken`)."""

    def take(self, limit_bytes: int | None = None) -> bytes | None:
        """The next bytes, of one read of READ_BYTES or less; empty at the end, None while there is nothing.

        Raises StreamReset, StreamTruncated.
        """

    def has_more(self) -> bool:
        """Whether `take` has something that no further input will tell of."""

    def give(self, data: bytes) -> None:
        """Send it, now or as the peer reads. Whoever gives looks at `is_clogged`, or memory grows.

        Raises StreamReset.
        """

    def is_clogged(self) -> bool:
        """Whether something that was given has not gone out yet."""

    def is_broken(self) -> bool:
        """Whether it broke while something that was given waited for room."""

    def look_on(self, onlooker: Callable[[], None] | None) -> None:
        """Tell ``onlooker`` whenever there is input, or the end; None: no longer."""

    def close(self) -> None:
        """End the stream; what was sent is still delivered."""

    def abort(self) -> None:
        """End the stream with a reset, so that the peer cannot take it for complete."""

    def is_quiet(self) -> bool:
        """Whether an idle stream is still open and has brought nothing: it may be used again.

        To find out it may take in what has come, so it is for streams that nobody waits for.
        """


def reset_on_close(sock: socket.socket) -> None:
    """Make the next close() a reset."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)


class SocketStream:
    """The plain stream. `receive` and `send` wait, for those who have a task.

    The event loop watches the socket from the first wait on, and tells of input while nobody waits for it
    once: so a connection that takes turns with its peer costs no `epoll_ctl`, and no timer, for each turn.
    ``deadline`` is for whoever the stream belongs to just now. `unread` gives bytes back that belong to
    whoever reads next.
    """

    __slots__ = (
        *("_is_broken", "_is_watched", "_loop", "_onlooker", "_poller", "_unread", "_unsent", "_waiter"),
        *("deadline", "on_room", "sock"),
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
        self.sock = sock
        self.deadline = Deadline(loop)
        self.on_room: Callable[[], None] = unheard
        self._loop = loop
        self._unread = self._unsent = b""
        self._is_watched = self._is_broken = False
        self._waiter: asyncio.Future[None] | None = None
        self._onlooker: Callable[[], None] | None = None
        self._poller: select.poll | None = None

    async def receive(self, limit_s: float | None = None) -> bytes:
        """The next bytes, at most READ_BYTES; empty at the end.

        Raises StreamReset, and TimeoutError when nothing came within ``limit_s``.
        """
        if self._unread:
            return self.take_unread()
        # Waits where bytes are there already, too: after each read everybody else has a turn.
        self._watch()
        self._waiter = waiter = self._loop.create_future()
        self.deadline.set(limit_s, self._on_time)
        try:
            await waiter
        finally:
            self._waiter = None
            self.deadline.clear()
        return self.take_unread()  # nothing: the end

    async def send(self, data: bytes, limit_s: float | None = None) -> None:
        """Send all of it; waits while the peer does not read. Raises StreamReset, TimeoutError."""
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

    def take(self, limit_bytes: int | None = None) -> bytes | None:
        if self._unread:
            return self.take_unread()
        try:
            return self.sock.recv(limit_bytes or READ_BYTES)
        except BlockingIOError:
            return None
        except OSError as error:
            raise StreamReset from error

    def has_more(self) -> bool:
        return bool(self._unread)

    def give(self, data: bytes) -> None:
        if self._unsent:
            self._unsent += data
            return
        try:
            sent = self.sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            raise StreamReset from error
        if sent < len(data):
            self._unsent = data[sent:]
            self._loop.add_writer(self.sock.fileno(), self._send_unsent)

    def is_clogged(self) -> bool:
        return bool(self._unsent)

    def is_broken(self) -> bool:
        return self._is_broken

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
        if self._unsent:
            self._loop.remove_writer(self.sock.fileno())
            self._unsent = b""
        self.deadline.cancel()
        return self.sock

    def close(self) -> None:
        self.release().close()

    def abort(self) -> None:
        reset_on_close(self.sock)
        self.close()

    def has_input(self) -> bool:
        """Whether a read would bring bytes, the end or an error."""
        if self._poller is None:
            # Asked of idle connections, which have none: a failing read costs five times as much.
            self._poller = select.poll()
            self._poller.register(self.sock, select.POLLIN)
        return bool(self._poller.poll(0))

    def is_quiet(self) -> bool:
        return not self._unread and not self.has_input()

    def look_on(self, onlooker: Callable[[], None] | None) -> None:
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

    def _on_time(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(TimeoutError())

    def _send_unsent(self) -> None:
        try:
            self._unsent = self._unsent[self.sock.send(self._unsent) :]
        except BlockingIOError:
            return
        except OSError:
            self._is_broken = True
        if self._is_broken or not self._unsent:
            self._loop.remove_writer(self.sock.fileno())
            self._unsent = b""
            self.on_room()
