"""What every socket of ours is set to: no waiting in calls, no waiting to fill a segment, early keep-alive.

No reading and no writing. Next: listener.py and dialer.py (whose sockets these are), stream.py (reads them).
"""

import socket
import sys

# Gateways forget a quiet connection after 350 s and less, and a model may think for longer. The kernel's own
# default is two hours; curl has 60 s, Go 15 s.
TCP_KEEPALIVE_S = 45
# macOS calls it otherwise.
_IDLE: int = getattr(socket, "TCP_KEEPIDLE", 0) or getattr(socket, "TCP_KEEPALIVE", 0)


def prepare(sock: socket.socket, keepalive_s: int = TCP_KEEPALIVE_S) -> None:
    """For any socket. ``keepalive_s``: how long a connection is quiet before the kernel probes it."""
    sock.setblocking(False)
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        prepare_tcp(sock, keepalive_s)


def prepare_tcp(sock: socket.socket, keepalive_s: int = TCP_KEEPALIVE_S) -> None:
    """The part of `prepare` for a TCP socket that is non-blocking from birth."""
    # An event stream must not wait for the peer's acknowledgement (RFC 896).
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, _IDLE, keepalive_s)
    # An urgent byte is a byte: kept apart it would be lost, and a read would stop in front of it.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)


def prepare_accepted(sock: socket.socket, keepalive_s: int = TCP_KEEPALIVE_S) -> None:
    """`prepare` for a socket from a prepared listener. Linux hands the listener's options down: four system
    calls less for each client."""
    if sys.platform == "linux":
        sock.setblocking(False)
    else:
        prepare(sock, keepalive_s)
