"""System calls that Python has no function for, with their numbers on both machines, and socket helpers.

The standard library alone: runs inside the sandbox. Next: attempts.py.
"""

from __future__ import annotations

import ctypes
import os
import struct

from tests.end_to_end.escape.attempts import Missing

IS_X86 = os.uname().machine == "x86_64"
AT_FDCWD = -100
RUNNER = os.getppid()
"""What confines the command. Asked when this is loaded: the processes of a batch have another parent."""

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def number(x86: int, arm: int | None) -> int:
    """A call's number here (<asm/unistd.h>); None: the machine has no such call."""
    if IS_X86:
        return x86
    if arm is None:
        raise Missing("no such call on this machine")
    return arm


def only_x86() -> None:
    if not IS_X86:
        raise Missing("only x86-64 has it")


def system_call(call: int, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None) -> int:
    """Raises OSError. Integers go at full width, None is a null pointer."""
    wide = (ctypes.c_long(value) if isinstance(value, int) else value for value in arguments)
    return checked(int(libc.syscall(ctypes.c_long(call), *wide)))


def checked(answer: int) -> int:
    if answer < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return answer


def rename_exchange(first: str, second: str) -> None:
    """renameat2(2) with RENAME_EXCHANGE."""
    system_call(number(316, 276), AT_FDCWD, first.encode(), AT_FDCWD, second.encode(), 2)


def pidfd_open(process: int) -> int:
    return system_call(434, process, 0)


def pidfd_getfd(pidfd: int, descriptor: int) -> int:
    return system_call(438, pidfd, descriptor, 0)


def loopback(port: int) -> bytes:
    """struct sockaddr_in of 127.0.0.1."""
    return struct.pack("=H", 2) + struct.pack("!H4B8x", port, 127, 0, 0, 1)


def write(path: str, text: str = "x", mode: str = "w") -> None:
    with open(path, mode, encoding="utf-8") as stream:
        stream.write(text)
