"""The only file that opens sockets to the outside: dials exactly the addresses that were judged.

No names here, so there is no second lookup that could answer otherwise (DNS rebinding). Next: resolver.py
(where addresses come from), core/dial_policy.py (who judged them).
"""

import asyncio
import errno
import os
import socket
from collections.abc import Sequence
from ipaddress import IPv4Address

from egress_proxy.core.address import Address
from egress_proxy.proxy.stream import prepare

# RFC 8305 5: how long one attempt is alone before the next address is tried beside it.
ATTEMPT_DELAY_S = 0.25


class DialFailed(Exception):
    """No address accepted the connection. The message says what the kernel said."""


def in_dialling_order(addresses: Sequence[Address]) -> list[Address]:
    """The families in turn (RFC 8305 4), so that one broken family costs one delay, not many."""
    v4: list[Address] = [address for address in addresses if isinstance(address, IPv4Address)]
    v6: list[Address] = [address for address in addresses if not isinstance(address, IPv4Address)]
    first, second = (v6, v4) if addresses and addresses[0] in v6 else (v4, v6)
    ordered: list[Address] = []
    for index in range(max(len(first), len(second))):
        ordered += first[index : index + 1] + second[index : index + 1]
    return ordered


async def dial(addresses: Sequence[Address], port: int) -> tuple[socket.socket, Address]:
    """Connect to the first address that answers, attempts staggered; the caller bounds the time.

    Returns a connected non-blocking socket and its address. Raises DialFailed when all have failed.
    """
    if len(addresses) == 1:
        return await _attempt(addresses[0], port), addresses[0]
    return await _race(in_dialling_order(addresses), port)


async def _race(addresses: Sequence[Address], port: int) -> tuple[socket.socket, Address]:
    running: dict[asyncio.Task[socket.socket], Address] = {}
    waiting = list(addresses)
    failure = DialFailed("no address")
    try:
        while waiting or running:
            if waiting:
                address = waiting.pop(0)
                task = asyncio.get_running_loop().create_task(_attempt(address, port))
                running[task] = address
            delay = ATTEMPT_DELAY_S if waiting else None
            done, _ = await asyncio.wait(running, timeout=delay, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                address = running.pop(task)
                error = task.exception()
                if error is None:
                    return task.result(), address
                if not isinstance(error, DialFailed):
                    raise error
                failure = error
        raise failure
    finally:
        await _stop(running)


async def _stop(running: dict[asyncio.Task[socket.socket], Address]) -> None:
    """End the attempts that lost; one that connected in the same moment is closed, not leaked."""
    for task in running:
        task.cancel()
    for result in await asyncio.gather(*running, return_exceptions=True):
        if isinstance(result, socket.socket):
            result.close()


async def _attempt(address: Address, port: int) -> socket.socket:
    family = socket.AF_INET if isinstance(address, IPv4Address) else socket.AF_INET6
    try:
        sock = socket.socket(family, socket.SOCK_STREAM | _CLOEXEC)
    except OSError as error:
        raise DialFailed(_words(error)) from error
    try:
        prepare(sock)
        await asyncio.get_running_loop().sock_connect(sock, (str(address), port))
    except OSError as error:
        sock.close()
        raise DialFailed(_words(error)) from error
    except BaseException:
        sock.close()
        raise
    return sock


def begin_dial(address: Address, port: int) -> socket.socket:
    """Start connecting without waiting; `dial_error` tells how it went once the socket is writable.

    Raises OSError where the kernel refuses at once.
    """
    family = socket.AF_INET if isinstance(address, IPv4Address) else socket.AF_INET6
    sock = socket.socket(family, socket.SOCK_STREAM | _CLOEXEC)
    try:
        prepare(sock)
        code = sock.connect_ex((str(address), port))
        if code not in (0, errno.EINPROGRESS):
            raise OSError(code, os.strerror(code))
    except OSError:
        sock.close()
        raise
    return sock


def dial_error(sock: socket.socket) -> str | None:
    """Why a connection that was begun has failed, in the kernel's words; None when it stands."""
    code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    return os.strerror(code).lower() if code else None


_CLOEXEC = getattr(socket, "SOCK_CLOEXEC", 0)  # Python sets it afterwards where the kernel has no flag


def _words(error: OSError) -> str:
    return (error.strerror or "the connection failed").lower()
