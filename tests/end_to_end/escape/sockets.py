"""Attempts on AF_UNIX: socket files and abstract names of the host, by every way that leads to one.

Run inside; docker, the session bus and agents listen on such, and run code for who asks. Next: network.py.
"""

from __future__ import annotations

import os
import socket

from tests.end_to_end.escape.attempts import Escaped, Ground, Kind, Missing, attempt
from tests.end_to_end.escape.evidence import arrived


def connect(address: str, text: bytes = b"x") -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(2.0)
        sock.connect(address)
        sock.send(text)


@attempt(Kind.IPC, arrived("unix"))
def unix_path_connect(ground: Ground) -> None:
    connect(ground.sockets["unix"])


@attempt(Kind.IPC, arrived("unix_run"))
def unix_run_connect(ground: Ground) -> None:
    if "unix_run" not in ground.sockets:
        raise Missing("cannot make one in /run")
    connect(ground.sockets["unix_run"])


@attempt(Kind.IPC, arrived("datagram"))
def unix_dgram_sendto(ground: Ground) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"x", ground.sockets["datagram"])


@attempt(Kind.IPC, arrived("datagram"))
def unix_pair_sendto(ground: Ground) -> None:
    """A pair needs no socket(2), and its ends can be sent anywhere."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, theirs:
        ours.sendto(b"x", ground.sockets["datagram"])


@attempt(Kind.IPC, arrived("datagram"))
def unix_pair_connect(ground: Ground) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, theirs:
        ours.connect(ground.sockets["datagram"])
        ours.send(b"x")


@attempt(Kind.IPC, arrived("abstract"))
def unix_abstract(ground: Ground) -> None:
    connect("\0" + ground.sockets["abstract"])


@attempt(Kind.IPC, arrived("unix"))
def unix_symlinked_into_root(ground: Ground) -> None:
    os.symlink(ground.sockets["unix"], f"{ground.root}/s")
    connect(f"{ground.root}/s")


@attempt(Kind.IPC, arrived("unix_root"))
def unix_in_root_connect(ground: Ground) -> None:
    connect(ground.sockets["unix_root"])


@attempt(Kind.IPC)
def attach_from_inside(ground: Ground) -> None:
    """Another sandbox at the proxy, with grants of its own, or as many as the proxy takes."""
    if "attach" not in ground.sockets:
        raise Missing("no proxy in this sandbox")
    connect(ground.sockets["attach"], b'{"attach":1,"label":"from inside"}\n')
    raise Escaped("attached")
