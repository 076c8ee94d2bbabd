"""Attempts by io_uring, which makes and connects sockets where no seccomp filter sees it.

Run inside. Next: network.py (the same with system calls).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import socket
import struct

from tests.end_to_end.escape.attempts import Ground, Kind, attempt
from tests.end_to_end.escape.calls import loopback, system_call
from tests.end_to_end.escape.evidence import arrived

OP_CONNECT, OP_SOCKET = 16, 45
ENTRIES_OFFSET = 0x1000_0000  # IORING_OFF_SQES


class Ring:
    """One with a queue of four, of which the first is used: <linux/io_uring.h>."""

    def __init__(self) -> None:
        parameters = ctypes.create_string_buffer(120)
        self._ring = system_call(425, 4, parameters)
        _, self._tail, _, _, _, _, self._array = struct.unpack("7I", parameters.raw[40:68])
        *_, self._completions = struct.unpack("6I", parameters.raw[80:104])
        size = max(self._array + 16, self._completions + 16 * 8)
        access = mmap.PROT_READ | mmap.PROT_WRITE
        self._queue = mmap.mmap(self._ring, size, mmap.MAP_SHARED, access)
        self._entries = mmap.mmap(self._ring, 4 * 64, mmap.MAP_SHARED, access, offset=ENTRIES_OFFSET)

    def submit(self, entry: bytes) -> int:
        """The result; raises OSError."""
        self._entries[0:64] = entry.ljust(64, b"\0")
        self._queue[self._array : self._array + 4] = struct.pack("I", 0)
        self._queue[self._tail : self._tail + 4] = struct.pack("I", 1)
        system_call(426, self._ring, 1, 1, 1, None, 0)
        at = self._completions + 8
        (result,) = struct.unpack("i", self._queue[at : at + 4])
        if result < 0:
            raise OSError(-result, os.strerror(-result))
        return int(result)


@attempt(Kind.NET, arrived("tcp"))
def io_uring_connect(ground: Ground) -> None:
    ring = Ring()
    address = ctypes.create_string_buffer(loopback(ground.ports["tcp"]))
    with socket.socket() as sock:
        ring.submit(
            struct.pack("=BBHiQQII", OP_CONNECT, 0, 0, sock.fileno(), 16, ctypes.addressof(address), 0, 0)
        )
        sock.send(b"x")


@attempt(Kind.NET, arrived("udp"))
def io_uring_udp_socket(ground: Ground) -> None:
    descriptor = Ring().submit(struct.pack("=BBHiQQIII", OP_SOCKET, 0, 0, 2, 2, 0, 0, 0, 0))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 0, descriptor) as sock:
        sock.sendto(b"x", ("127.0.0.1", ground.ports["udp"]))
