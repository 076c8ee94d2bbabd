"""TLS over a stream, through memory BIOs, so that bytes read before the handshake are not lost.

`StreamWriter.start_tls` loses them (CPython issue 142352). No names are judged here: the context verifies.
Next: stream.py (the seam), upstream_pool.py (who dials with it).
"""

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import TypeVar

from egress_proxy.proxy.stream import READ_BYTES, SocketStream, StreamReset, StreamTruncated

_Result = TypeVar("_Result")


class TlsFailed(Exception):
    """The handshake failed. The message is OpenSSL's reason, without anything of the request."""


class TlsStream:
    """One TLS connection. Make it with `connect`."""

    __slots__ = ("_below", "_incoming", "_outgoing", "_sending", "_tls")

    def __init__(self, below: SocketStream, context: ssl.SSLContext, server_name: str) -> None:
        self._below = below
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        # Set by Python where it is built against OpenSSL 3 (Debian's is): a cut answer would look complete.
        context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)
        self._sending = asyncio.Lock()

    @classmethod
    async def connect(cls, below: SocketStream, context: ssl.SSLContext, server_name: str) -> "TlsStream":
        """Handshake as a client; verifies chain and name by the context. Raises TlsFailed, StreamReset."""
        stream = cls(below, context, server_name)
        try:
            await stream._drive(stream._tls.do_handshake)
        except ssl.SSLCertVerificationError as error:
            raise TlsFailed(error.verify_message) from error
        except ssl.SSLError as error:
            raise TlsFailed(error.reason or "the handshake failed") from error
        return stream

    async def receive(self) -> bytes:
        try:
            return await self._drive(lambda: self._tls.read(READ_BYTES))
        except ssl.SSLZeroReturnError:
            return b""
        except ssl.SSLError as error:
            raise (StreamTruncated if _is_cut(error) else StreamReset) from error

    async def send(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[await self._drive(lambda part=view: self._tls.write(part)) :]  # type: ignore[misc]
        except ssl.SSLError as error:
            raise StreamReset from error

    def close(self) -> None:
        self._below.close()

    def abort(self) -> None:
        self._below.abort()

    def is_quiet(self) -> bool:
        while True:
            try:
                self._tls.read(1)
            except ssl.SSLWantReadError:
                arrived = self._below.poll()
                if not arrived:
                    return arrived is None
                # Session tickets come after the handshake and are no answer.
                self._incoming.write(arrived)
            except ssl.SSLError:
                return False
            else:
                return False

    async def _drive(self, step: Callable[[], _Result]) -> _Result:
        """Repeat a step of the TLS machine, moving what it reads and writes."""
        while True:
            try:
                result = step()
            except ssl.SSLWantReadError:
                await self._flush()
                arrived = await self._below.receive()
                if arrived:
                    self._incoming.write(arrived)
                else:
                    self._incoming.write_eof()
            except ssl.SSLError:
                with contextlib.suppress(StreamReset):
                    await self._flush()  # the alert that tells the peer why (RFC 8446 6.2)
                raise
            else:
                await self._flush()
                return result

    async def _flush(self) -> None:
        # One sender at a time: a request body and a key update must not mix their records.
        if self._outgoing.pending:
            async with self._sending:
                await self._below.send(self._outgoing.read())


def _is_cut(error: ssl.SSLError) -> bool:
    """Whether the peer left without close_notify. Python 3.11.2 has no type of its own for that."""
    return isinstance(error, ssl.SSLEOFError) or error.reason == "UNEXPECTED_EOF_WHILE_READING"
