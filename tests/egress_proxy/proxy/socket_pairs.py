"""Connected pairs of sockets for the tests of flows and tunnels: our end, as a relay has it, and the peer's.

No expectations here. Our ends do not block; peers have a time limit. Over TCP, since a unix socket knows
no reset.
"""

from __future__ import annotations

import contextlib
import fcntl
import select
import socket
import struct
import termios
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from egress_proxy.proxy.socket_options import prepare
from tests.support.byte_stream import BLOCK_BYTES, close_with_reset
from tests.support.deadline import DEFAULT_S, eventually
from tests.support.origins import pattern

# A sink would otherwise take megabytes before it says that it is full, a source show 64 KiB at most.
SMALL_BUFFER_BYTES = 16_384
LARGE_BUFFER_BYTES = 212_992  # what Linux allows by default


class OurSocket(socket.socket):
    """Counts what was read from it."""

    taken_bytes = 0

    def recv_into(self, *args: Any) -> int:
        count = super().recv_into(*args)
        self.taken_bytes += count
        return count


@dataclass(frozen=True, slots=True)
class Pair:
    """One connection: ``ours`` is the proxy's socket, ``peer`` is who is at the other end."""

    ours: OurSocket
    peer: socket.socket

    def reset_by_peer(self) -> None:
        """The peer resets, and our end has heard of it."""
        close_with_reset(self.peer)
        await_event(self.ours, select.POLLHUP)

    def end_by_peer(self) -> None:
        """The peer ends its direction, and our end has heard of it."""
        self.peer.shutdown(socket.SHUT_WR)
        await_event(self.ours, select.POLLRDHUP)


def connected_pair(*, small: bool = False, slow_peer: bool = False) -> Pair:
    """``small``: both ends take little in; ``slow_peer``: the peer does, and our end keeps it for it."""
    with socket.socket() as listener:
        if small:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BUFFER_BYTES)
        else:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, LARGE_BUFFER_BYTES)
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        peer = socket.socket()
        if small or slow_peer:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER_BYTES)
        peer.settimeout(DEFAULT_S)
        peer.connect(listener.getsockname())
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ours = OurSocket(fileno=listener.accept()[0].detach())
    prepare(ours)
    return Pair(ours, peer)


@contextlib.contextmanager
def two_pairs(*, small: bool = False) -> Iterator[tuple[Pair, Pair]]:
    """The two connections of a tunnel: the client's and the upstream's."""
    client, upstream = connected_pair(small=small), connected_pair(small=small)
    with client.ours, client.peer, upstream.ours, upstream.peer:
        yield client, upstream


def await_event(sock: socket.socket, event: int) -> None:
    """Wait until poll() reports ``event`` of the socket."""
    poll = select.poll()
    poll.register(sock, event)
    if not poll.poll(DEFAULT_S * 1000):
        raise TimeoutError("the event did not come")


def unread_bytes(sock: socket.socket) -> int:
    """How much has arrived at the socket and was not read yet."""
    return int(struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.FIONREAD, bytes(4)))[0])


def await_unread(sock: socket.socket, n: int) -> None:
    """Wait until at least ``n`` bytes have arrived, without reading them."""
    eventually(lambda: unread_bytes(sock) >= n, what=f"{n} bytes to arrive")


def fill(sock: socket.socket) -> int:
    """Send the pattern until nothing is taken any more, by the relay or any buffer; how much that was."""
    period = BLOCK_BYTES + 1
    twice, sent = pattern(2 * period), 0
    sock.setblocking(False)
    poll = select.poll()
    poll.register(sock, select.POLLOUT)
    while poll.poll(150):
        with contextlib.suppress(BlockingIOError):
            sent += sock.send(twice[sent % period :][:period])
    sock.settimeout(DEFAULT_S)
    return sent
