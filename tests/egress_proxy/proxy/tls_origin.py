"""A TLS server in a thread, and the product's stream to it, for the tests beside this file.

No expectations here. A script gets the server's socket once the handshake is done; what it breaks by itself
shows at the client's end. HTTP over TLS is in tests/support/provider.py.
"""

import asyncio
import contextlib
import select
import socket
import ssl
from collections.abc import AsyncIterator, Callable

from egress_proxy.proxy.stream import SocketStream
from egress_proxy.proxy.tls import TlsStream
from tests.conftest import Start
from tests.support.byte_stream import BLOCK_BYTES, connect
from tests.support.certificates import CertificateAuthority, server_context
from tests.support.deadline import DEFAULT_S, wait_for
from tests.support.loopback_server import LoopbackServer

NAME = "ok.example"


class TlsOrigin(LoopbackServer):
    """Shakes hands, and then does what ``script`` says; without one it counts what comes."""

    def __init__(
        self, context: ssl.SSLContext, script: Callable[[ssl.SSLSocket], None] | None = None
    ) -> None:
        super().__init__()
        self._context = context
        self._script = script or self._count
        self.application_bytes = 0
        self.handshakes: list[str] = []  # "done", or how one failed

    def serve(self, sock: socket.socket, index: int) -> None:
        outcome = "done"
        try:
            with self._context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False) as secured:
                self.replace_socket(index, secured)
                secured.do_handshake()
                self._note("done")
                outcome = ""
                self._script(secured)
        except OSError as error:  # SSLError is one
            if outcome:
                self._note(str(error))

    def _note(self, outcome: str) -> None:
        with self.changed:
            self.handshakes.append(outcome)
            self.changed.notify_all()

    def _count(self, sock: ssl.SSLSocket) -> None:
        while block := sock.recv(BLOCK_BYTES):
            self.application_bytes += len(block)

    def wait_for_handshake(self) -> str:
        wait_for(self.changed, lambda: len(self.handshakes) > 0, DEFAULT_S, "a handshake")
        return self.handshakes[0]


def drain(sock: ssl.SSLSocket) -> None:
    """Wait below TLS until the client closes."""
    with contextlib.suppress(OSError):
        while select.select([sock], [], [], DEFAULT_S)[0] and socket.socket.recv(sock, BLOCK_BYTES):
            pass


def exchange_all(sock: ssl.SSLSocket, sent: bytes, count: int) -> bytes:
    """Send and receive at once, in one thread: two may not use one SSLSocket at a time."""
    sock.setblocking(False)
    unsent, received = memoryview(sent), bytearray()
    while unsent or len(received) < count:
        if not sock.pending():
            select.select([sock], [sock] if unsent else [], [], DEFAULT_S)
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
            received += sock.recv(BLOCK_BYTES)
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
            unsent = unsent[sock.send(unsent[:BLOCK_BYTES]) :] if unsent else unsent
    sock.setblocking(True)
    return bytes(received)


def echo(sock: ssl.SSLSocket) -> None:
    while block := sock.recv(BLOCK_BYTES):
        sock.sendall(block)


@contextlib.asynccontextmanager
async def dialled(port: int) -> AsyncIterator[SocketStream]:
    sock = await asyncio.to_thread(connect, port)
    sock.setblocking(False)
    stream = SocketStream(asyncio.get_running_loop(), sock)
    try:
        yield stream
    finally:
        stream.close()


@contextlib.asynccontextmanager
async def secured(
    start: Start, ca: CertificateAuthority, script: Callable[[ssl.SSLSocket], None], *, tickets: int = 0
) -> AsyncIterator[tuple[TlsStream, socket.socket]]:
    """Our stream and its socket, to a server that sends so many tickets and then runs ``script``."""
    context = server_context(ca.leaf(NAME))
    context.num_tickets = tickets
    origin = start(TlsOrigin(context, script))
    async with dialled(origin.port) as below:
        yield await TlsStream.connect(below, ca.client_context(), NAME), below.sock
