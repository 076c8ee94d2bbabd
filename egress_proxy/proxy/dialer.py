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

from egress_proxy.core.address import Address, address_text
from egress_proxy.proxy.socket_options import TCP_KEEPALIVE_S, prepare_tcp

# RFC 8305 5: how long one attempt is alone before the next address is tried beside it.
ATTEMPT_DELAY_S = 0.25
# More at a time, or more addresses, and one name could cost a descriptor for each of its records.
ATTEMPTS_AT_A_TIME = 2
ADDRESS_LIMIT = 6
# So long an attempt may stay silent while other addresses wait: longer than a round trip by satellite, and
# four dead addresses cost less than 2 s. The last two may take all the time that is left.
ATTEMPT_LIMIT_S = 0.8


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


async def dial(
    addresses: Sequence[Address], port: int, keepalive_s: int = TCP_KEEPALIVE_S
) -> tuple[socket.socket, Address]:
    """Connect to the first address that answers, attempts staggered; the caller bounds the time.

    ``keepalive_s``: how long the connection is quiet before it is probed. Returns a connected
    non-blocking socket and its address. Raises DialFailed when all have failed.
    """
    if len(addresses) == 1:
        return await _attempt(addresses[0], port, keepalive_s), addresses[0]
    return await _race(in_dialling_order(addresses)[:ADDRESS_LIMIT], port, keepalive_s)


_Attempts = dict[asyncio.Task[socket.socket], Address]


async def _race(addresses: Sequence[Address], port: int, keepalive_s: int) -> tuple[socket.socket, Address]:
    running: _Attempts = {}
    try:
        winner = await _winner(running, list(addresses), port, keepalive_s)
    except BaseException:
        await _stop(running)
        raise
    won, address = winner.result(), running.pop(winner)
    try:
        await _stop(running)
    except BaseException:  # cancelled in just this moment
        won.close()
        raise
    return won, address


async def _winner(
    running: _Attempts, waiting: list[Address], port: int, keepalive_s: int
) -> asyncio.Task[socket.socket]:
    """Start attempts until one has connected; it and those still under way are in ``running``.

    Two at a time: the older one makes way for the next address once it has been silent for long enough.
    """
    loop, makes_way_at = asyncio.get_running_loop(), dict[asyncio.Task[socket.socket], float]()
    failure = DialFailed("no address")
    while waiting or running:
        if waiting:
            if len(running) == ATTEMPTS_AT_A_TIME:
                oldest = next(iter(running))
                await _stop({oldest: running.pop(oldest)})
            address = waiting.pop(0)
            attempt = loop.create_task(_attempt(address, port, keepalive_s))
            running[attempt], makes_way_at[attempt] = address, loop.time() + ATTEMPT_LIMIT_S
        delay_s = ATTEMPT_DELAY_S if waiting else None
        if waiting and len(running) == ATTEMPTS_AT_A_TIME:
            delay_s = max(0.0, makes_way_at[next(iter(running))] - loop.time())
        done, _ = await asyncio.wait(running, timeout=delay_s, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            error = task.exception()
            if error is None:
                return task
            if not isinstance(error, DialFailed):
                raise error
            failure = error
            del running[task]
    raise failure


async def _stop(running: _Attempts) -> None:
    """End the attempts that lost; one that connected in the same moment is closed, not leaked."""
    for task in running:
        task.cancel()
    try:
        await asyncio.gather(*running, return_exceptions=True)
    finally:  # also when we are cancelled meanwhile: gather waits for all of them even then
        for task in running:
            if not task.cancelled() and task.exception() is None:
                task.result().close()


async def _attempt(address: Address, port: int, keepalive_s: int) -> socket.socket:
    try:
        sock = _new_socket(address)
    except OSError as error:
        raise DialFailed(_words(error)) from error
    try:
        prepare_tcp(sock, keepalive_s)
        await asyncio.get_running_loop().sock_connect(sock, (str(address), port))
    except OSError as error:
        sock.close()
        raise DialFailed(_words(error)) from error
    except BaseException:
        sock.close()
        raise
    return sock


def begin_dial(address: Address, port: int, keepalive_s: int = TCP_KEEPALIVE_S) -> socket.socket:
    """Start connecting without waiting; `dial_error` tells how it went once the socket is writable.

    Raises OSError where the kernel refuses at once.
    """
    sock = _new_socket(address)
    try:
        prepare_tcp(sock, keepalive_s)
        code = sock.connect_ex((address_text(address), port))
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


_NON_BLOCKING = getattr(socket, "SOCK_NONBLOCK", 0)  # from birth, where the kernel can: one call less


def _new_socket(address: Address) -> socket.socket:
    """A TCP socket that never waits and is not inherited (Python sees to that)."""
    family = socket.AF_INET if isinstance(address, IPv4Address) else socket.AF_INET6
    sock = socket.socket(family, socket.SOCK_STREAM | _NON_BLOCKING)
    if not _NON_BLOCKING:
        sock.setblocking(False)
    return sock


def _words(error: OSError) -> str:
    # Not error.strerror: asyncio writes the address into it, and this is shown to clients.
    return os.strerror(error.errno).lower() if error.errno else "the connection failed"
