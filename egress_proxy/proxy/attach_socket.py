"""The attach socket's place in the file system, and what comes through it: bytes, and one listener.

What is said there is core/attach.py's, when is attachments.py's. Next: unix_socket.py (opens it).
"""

import array
import errno
import os
import socket
import stat
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from egress_proxy.core.attach import AttachError
from egress_proxy.core.host import Target
from egress_proxy.proxy.unix_socket import ListenError, UnixListener, listen_unix

# The most that one message can carry (SCM_MAX_FD): all that came is seen, and closed.
_DESCRIPTORS_LIMIT = 253
_ROOM = socket.CMSG_SPACE(_DESCRIPTORS_LIMIT * array.array("i").itemsize)
_CLOEXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_SO_NETNS_COOKIE = 71  # <asm-generic/socket.h>
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def listen_attach(path: Path) -> UnixListener:
    """Make the folder (0700) and the socket (0600); a stale one is replaced. Raises ListenError."""
    try:
        _private_folder(path.parent)
    except OSError as error:
        raise ListenError(f"cannot listen on {path}: {(error.strerror or str(error)).lower()}") from None
    return listen_unix(path)


def _private_folder(folder: Path) -> None:
    before = os.umask(0o077)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    finally:
        os.umask(before)
    status = folder.stat()
    if status.st_uid != os.geteuid():
        raise OSError(errno.EPERM, f"its folder {folder} belongs to another user; name one of your own")
    if status.st_mode & _OTHERS_MAY_WRITE:
        # Whoever can write there could put a socket of his own in the place of ours.
        raise OSError(errno.EPERM, f"others may write to its folder {folder}; chmod go-w it, or name another")


@dataclass(frozen=True, slots=True)
class Received:
    """What one read brought. Whoever has it owns the descriptors. ``cut``: there was more of them."""

    octets: bytes
    descriptors: tuple[int, ...] = ()
    cut: bool = False

    def close(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)


def receive(sock: socket.socket, limit_bytes: int) -> Received:
    """One read; no octets at the end. Raises BlockingIOError when there is nothing, OSError when it broke."""
    octets, ancillary, flags, _ = sock.recvmsg(limit_bytes, _ROOM, _CLOEXEC)
    descriptors = array.array("i")
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
    return Received(octets, tuple(descriptors), bool(flags & socket.MSG_CTRUNC))


def adopt(descriptor: int) -> tuple[socket.socket, Target]:
    """The listener of a sandbox and where it listens. Takes the descriptor over.

    Raises AttachError for whatever is no listening TCP socket on loopback, which is closed then.
    """
    try:
        listener = socket.socket(fileno=descriptor)
    except OSError:
        os.close(descriptor)
        raise AttachError("that is no socket") from None
    try:
        target = _listens_on(listener)
    except (AttachError, OSError):
        listener.close()
        raise AttachError("that is no TCP socket that listens on loopback") from None
    listener.setblocking(False)
    return listener, target


def is_within_reach(listener: socket.socket) -> bool:
    """Whether we would come out at it by dialling its address: it listens in our own network namespace.

    Else the address is somebody else's here, a model server's perhaps, and stays in reach. Where the kernel
    has no number for namespaces (Linux before 5.14), the answer is yes.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as ours:
        try:
            numbers = {sock.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8) for sock in (listener, ours)}
        except OSError:
            return True
    return len(numbers) == 1


def _listens_on(listener: socket.socket) -> Target:
    is_tcp = listener.family in (socket.AF_INET, socket.AF_INET6) and listener.type == socket.SOCK_STREAM
    if not is_tcp or not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        raise AttachError("not listening")
    address, port = listener.getsockname()[:2]
    if not ip_address(address).is_loopback:
        raise AttachError("not loopback")
    return Target(ip_address(address), port)
