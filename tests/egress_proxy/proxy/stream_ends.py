"""One loopback connection with both its ends: ours as the product's stream, theirs as a plain socket.

No expectations here. A peer blocks, so coroutines reach it by `asyncio.to_thread`. `receive` and `send` wait
on any stream, by its callbacks alone. Used by the tests of streams, TLS, heads and closing beside this file.
"""

import asyncio
import contextlib
import os
import select
import socket
from collections.abc import Iterator

from egress_proxy.proxy.socket_options import prepare
from egress_proxy.proxy.stream import SocketStream, Stream, StreamReset, unheard
from tests.support.deadline import DEFAULT_S
from tests.support.proc_figures import open_descriptors


@contextlib.contextmanager
def connected() -> Iterator[tuple[SocketStream, socket.socket]]:
    """Our end and the peer's, over TCP; both are closed at the end. Needs a running loop."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        theirs = socket.create_connection(listener.getsockname(), DEFAULT_S)
        ours, _ = listener.accept()
    prepare(ours)
    with ours, theirs:
        stream = SocketStream(asyncio.get_running_loop(), ours)
        try:
            yield stream, theirs
        finally:
            stream.close()


async def receive(stream: Stream, limit_s: float | None = None) -> bytes:
    """The next bytes, empty at the end. Raises what `take` raises, and TimeoutError."""
    told = asyncio.Event()
    stream.look_on(told.set)
    try:
        async with asyncio.timeout(limit_s):
            while (data := stream.take()) is None:
                told.clear()
                await told.wait()
            return data
    finally:
        stream.look_on(None)


async def send(stream: Stream, data: bytes) -> None:
    """Give it, and wait until it has gone out; one at a time. Raises StreamReset."""
    gone = asyncio.Event()
    stream.on_room = gone.set
    try:
        stream.give(data)
        if stream.is_clogged():
            await gone.wait()
    finally:
        stream.on_room = unheard
    if stream.is_broken():
        raise StreamReset


async def until_readable(sock: socket.socket) -> None:
    """Wait until there are bytes, an end or a reset to be read, and read nothing."""
    ready, _, _ = await asyncio.to_thread(select.select, [sock], [], [], DEFAULT_S)
    if not ready:
        raise TimeoutError("nothing came")


def descriptors() -> int:
    """How many this process has open."""
    return open_descriptors(os.getpid())
