"""TLS over a stream, through memory BIOs, so that bytes read before the handshake are not lost.

`StreamWriter.start_tls` loses them (CPython issue 142352). No names are judged here: the context verifies.
Next: stream.py (the seam), upstream_pool.py (who dials with it).
"""

import asyncio
import contextlib
import ssl

from egress_proxy.proxy.stream import READ_BYTES, SocketStream, StreamReset, StreamTruncated


class TlsFailed(Exception):
    """The handshake failed. The message is OpenSSL's reason, without anything of the request."""


class TlsStream:
    """One TLS connection. Make it with `connect`."""

    __slots__ = ("_below", "_incoming", "_limit_s", "_outgoing", "_sending", "_tls")

    def __init__(
        self,
        below: SocketStream,
        context: ssl.SSLContext,
        server_name: str,
        session: ssl.SSLSession | None = None,
    ) -> None:
        self._below = below
        self._limit_s: float | None = None  # of whoever waits in `receive`
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        # Set by Python where it is built against OpenSSL 3 (Debian's is): a cut answer would look complete.
        context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_hostname=server_name, session=session
        )
        self._sending = asyncio.Lock()

    @classmethod
    async def connect(
        cls,
        below: SocketStream,
        context: ssl.SSLContext,
        server_name: str,
        session: ssl.SSLSession | None = None,
    ) -> "TlsStream":
        """Handshake as a client; verifies chain and name by the context. Raises TlsFailed, StreamReset.

        ``session``: of an earlier connection with this context to this very name: a server that resumes it
        is the one that was verified then, and shows no certificate again.
        """
        stream = cls(below, context, server_name, session)
        try:
            await stream._shake_hands()
        except ssl.SSLCertVerificationError as error:
            raise TlsFailed(error.verify_message) from error
        except ssl.SSLError as error:
            raise TlsFailed(error.reason or "the handshake failed") from error
        return stream

    def session(self) -> ssl.SSLSession | None:
        """What a later connection can resume; with TLS 1.3 it comes with or before the first answer."""
        return self._tls.session

    async def receive(self, limit_s: float | None = None) -> bytes:
        self._limit_s = limit_s
        try:
            if not self._incoming.pending and not self._tls.pending():
                await self._fill()
            while True:
                try:
                    return self._tls.read(READ_BYTES)
                except ssl.SSLWantReadError:
                    await self._fill()
        except ssl.SSLZeroReturnError:
            return b""
        except ssl.SSLError as error:
            raise (StreamTruncated if _is_cut(error) else StreamReset) from error

    async def send(self, data: bytes, limit_s: float | None = None) -> None:
        rest = memoryview(data)
        try:
            while rest:  # into memory, a record at a time
                rest = rest[self._tls.write(rest) :]
        except ssl.SSLError as error:
            raise StreamReset from error
        await self._flush(limit_s)

    def limit_wait(self, limit_s: float) -> None:
        self._limit_s = limit_s  # a session ticket may come before the answer
        self._below.limit_wait(limit_s)

    def close(self) -> None:
        self._below.close()

    def abort(self) -> None:
        self._below.abort()

    def is_quiet(self) -> bool:
        while not self._incoming.pending and not self._tls.pending():
            arrived = self._below.poll()
            if not arrived:
                return arrived is None
            self._incoming.write(arrived)
            try:
                self._tls.read(1)
            except ssl.SSLWantReadError:
                pass  # session tickets come after the handshake and are no answer
            except ssl.SSLError:
                break
            else:
                break
        return False

    async def _shake_hands(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._fill()
            except ssl.SSLError:
                with contextlib.suppress(StreamReset):
                    await self._flush(None)  # the alert that tells the peer why (RFC 8446 6.2)
                raise
            else:
                await self._flush(None)
                return

    async def _fill(self) -> None:
        """Bring what arrives to the TLS machine, after what it has to say."""
        if self._outgoing.pending:
            await self._flush(self._limit_s)
        arrived = await self._below.receive(self._limit_s)
        if arrived:
            self._incoming.write(arrived)
        else:
            self._incoming.write_eof()

    async def _flush(self, limit_s: float | None) -> None:
        # One sender at a time: a request body and a key update must not mix their records.
        if self._outgoing.pending:
            async with self._sending:
                await self._below.send(self._outgoing.read(), limit_s)


def _is_cut(error: ssl.SSLError) -> bool:
    """Whether the peer left without close_notify. Python 3.11.2 has no type of its own for that."""
    return isinstance(error, ssl.SSLEOFError) or error.reason == "UNEXPECTED_EOF_WHILE_READING"
