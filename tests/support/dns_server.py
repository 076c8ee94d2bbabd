"""The wire side of the stub name server: one port, UDP and TCP, one event loop in its own thread.

It knows framing and delays, not names: each query goes to a callable that says what to send when.
See dns_stub.py for the callable, and for what tests use.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from tests.support.deadline import DEFAULT_S

_PORT_TRIES = 50  # a free UDP port may be taken for TCP; then another is tried


@dataclass(frozen=True, slots=True)
class Reply:
    wire: bytes
    delay_s: float = 0.0


Answerer = Callable[[bytes, str], Reply | None]  # (query, "udp" or "tcp") → None for silence


class DnsServer:
    """Serves ``answerer`` on 127.0.0.1 between ``start`` and ``stop``."""

    def __init__(self, answerer: Answerer) -> None:
        self._answerer = answerer
        self._udp, self._tcp = _twin_sockets()
        self.port: int = self._udp.getsockname()[1]
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._main, name="support-dns", daemon=True)
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()

    def start(self) -> None:
        self._thread.start()
        if not self._ready.wait(DEFAULT_S):
            raise TimeoutError("the stub name server did not start")

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(DEFAULT_S)
        if self._thread.is_alive():
            raise TimeoutError("the stub name server did not stop")

    def _main(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        open_streams: set[asyncio.BaseTransport] = set()
        datagrams, _ = await self._loop.create_datagram_endpoint(
            lambda: _Datagrams(self._answerer), sock=self._udp
        )
        server = await self._loop.create_server(lambda: _Stream(self._answerer, open_streams), sock=self._tcp)
        self._ready.set()
        await self._stop.wait()
        server.close()
        datagrams.close()
        for stream in list(open_streams):
            stream.close()
        await asyncio.sleep(0)  # one turn of the loop, in which the transports close


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, answerer: Answerer) -> None:
        self._answerer = answerer
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # No isinstance: asyncio's own datagram transport is not a subclass before Python 3.12.
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        reply = self._answerer(data, "udp")
        if reply is not None and self._transport is not None:
            send = self._transport.sendto
            asyncio.get_running_loop().call_later(reply.delay_s, send, reply.wire, addr)


class _Stream(asyncio.Protocol):
    """Queries with a two-byte length before each (RFC 1035 section 4.2.2), any number of them."""

    def __init__(self, answerer: Answerer, open_streams: set[asyncio.BaseTransport]) -> None:
        self._answerer = answerer
        self._open_streams = open_streams
        self._pending = b""
        self._transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._open_streams.add(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._open_streams.discard(self._transport)
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._pending += data
        while len(self._pending) >= 2:
            (length,) = struct.unpack_from("!H", self._pending)
            if len(self._pending) < 2 + length:
                return
            query, self._pending = self._pending[2 : 2 + length], self._pending[2 + length :]
            reply = self._answerer(query, "tcp")
            if reply is not None:
                framed = struct.pack("!H", len(reply.wire)) + reply.wire
                asyncio.get_running_loop().call_later(reply.delay_s, self._send, framed)

    def _send(self, framed: bytes) -> None:
        if isinstance(self._transport, asyncio.WriteTransport):
            self._transport.write(framed)


def _twin_sockets() -> tuple[socket.socket, socket.socket]:
    """A UDP and a listening TCP socket on the same ephemeral port."""
    for _ in range(_PORT_TRIES):
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            udp.bind(("127.0.0.1", 0))
            tcp.bind(udp.getsockname())
            tcp.listen()
        except OSError:
            udp.close()
            tcp.close()
            continue
        return udp, tcp
    raise OSError(f"no port was free for UDP and TCP in {_PORT_TRIES} tries")
