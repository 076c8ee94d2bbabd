"""Whose a TCP connection on this machine is: the user of the socket at the other end, as the kernel has it.

Linux alone: sock_diag(7), or /proc/net/tcp where that is refused. Decides nothing. Next: listener.py (which
does), peer.py (the same for unix sockets).
"""

import contextlib
import os
import socket
import struct
import sys
from dataclasses import dataclass
from ipaddress import ip_address

# linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h
_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _REQUEST = 4, 20, 1
_HEADER = struct.Struct("=IHHII")  # nlmsghdr
_WANTED = struct.Struct("=BBBxI")  # family, protocol, extensions, states
_PORTS = struct.Struct("!HH")
_ANY_COOKIE = b"\0\0\0\0" + b"\xff" * 8  # no interface, INET_DIAG_NOCOOKIE
_FOUND = struct.Struct("=16x4x48x12xII")  # nlmsghdr and inet_diag_msg: user and inode
_ALL_STATES = 0xFFFFFFFF
_ANSWER_BYTES = 8192
_Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class _Socket:
    uid: int
    inode: int


def peer_uid(sock: socket.socket) -> int | None:
    """The user of the process at the other end of an accepted connection; None where none is known: it came
    from another machine or network namespace, or its process has let go of it."""
    try:
        here, there = _place(sock.getsockname()), _place(sock.getpeername())
    except OSError:
        return None
    found = _find(sock.family, there, here)
    # Without an inode no process holds it any more, and its user reads as 0: who sends and closes at once
    # would pass for root.
    return found.uid if found is not None and found.inode else None


def is_in_own_network(listener: socket.socket) -> bool:
    """Whether others on this machine can connect to it: False in a network namespace of its own. Where it
    cannot be told it is taken to be so."""
    here = _place(listener.getsockname())
    nowhere = ("::" if listener.family == socket.AF_INET6 else "0.0.0.0", 0)  # noqa: S104  in a question
    try:
        found = _find(listener.family, here, nowhere)
    except OSError:
        return True
    return found is not None and found.inode == os.fstat(listener.fileno()).st_ino


def is_supported() -> bool:
    return sys.platform == "linux"


def _place(address: tuple[str, int]) -> _Place:
    return address[0].partition("%")[0], address[1]


def _find(family: int, local: _Place, remote: _Place) -> _Socket | None:
    """The socket that is bound to ``local`` and connected to ``remote``. None: there is no such socket."""
    with contextlib.suppress(OSError):
        return _by_netlink(family, local, remote)
    return _by_listing(family, local, remote)


def _by_netlink(family: int, local: _Place, remote: _Place) -> _Socket | None:
    """Raises OSError where the kernel or a filter refuses the question."""
    addresses = b"".join(_packed(place).ljust(16, b"\0") for place in (local, remote))
    wanted = _WANTED.pack(family, socket.IPPROTO_TCP, 0, _ALL_STATES)
    question = wanted + _PORTS.pack(local[1], remote[1]) + addresses + _ANY_COOKIE
    header = _HEADER.pack(_HEADER.size + len(question), _SOCK_DIAG_BY_FAMILY, _REQUEST, 0, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG) as netlink:
        netlink.sendto(header + question, (0, 0))
        answer = netlink.recv(_ANSWER_BYTES, socket.MSG_DONTWAIT)  # it is there when sendto returns
    if _HEADER.unpack_from(answer)[1] != _SOCK_DIAG_BY_FAMILY:
        number = -struct.unpack_from("=i", answer, _HEADER.size)[0]
        if number == 2:  # ENOENT: there is none
            return None
        raise OSError(number, os.strerror(number))
    return _Socket(*_FOUND.unpack_from(answer))


def _by_listing(family: int, local: _Place, remote: _Place) -> _Socket | None:
    """Raises OSError where /proc does not show it."""
    wanted = [_listed(place) for place in (local, remote)]
    name = "tcp6" if family == socket.AF_INET6 else "tcp"
    with open(f"/proc/net/{name}", encoding="ascii") as lines:
        for line in lines:
            fields = line.split()
            if fields[1:3] == wanted:
                return _Socket(int(fields[7]), int(fields[9]))
    return None


def _packed(place: _Place) -> bytes:
    return ip_address(place[0]).packed


def _listed(place: _Place) -> str:
    """As /proc/net/tcp writes it: each word of the address as a number of this machine."""
    packed = _packed(place)
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{place[1]:04X}"
