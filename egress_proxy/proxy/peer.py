"""Who is at the other end of an accepted socket: as the log shows it, and as the kernel vouches for it.

Which client that makes is admission.py's. Next: listener.py (accepts), attachments.py (sandboxes).
"""

import os
import socket
import struct
from dataclasses import dataclass

from egress_proxy.core.access import Client


@dataclass(frozen=True, slots=True)
class Peer:
    """``address``: for the log. ``sandbox``: the client whose own listener this came in by, if any."""

    address: str
    sandbox: Client | None = None


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that opened the other end of a unix socket, and its user."""

    pid: int
    uid: int


def peer_of(address: object, sandbox: Client | None = None) -> Peer:
    """``address``: what accept() gave."""
    if not isinstance(address, tuple):
        return Peer("unix", sandbox)
    host, port = address[:2]
    return Peer(f"[{host}]:{port}" if ":" in host else f"{host}:{port}", sandbox)


def owner_of(sock: socket.socket) -> Owner | None:
    """None where the kernel does not say."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    size = struct.calcsize("3i")
    pid, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return Owner(pid, uid)


def is_own_user(owner: Owner | None) -> bool:
    """Whether it runs as our user. Where the kernel does not say: the socket's mode holds."""
    return owner is None or owner.uid == os.geteuid()
