"""TLS over a stream, through memory BIOs, so that bytes read before the handshake are not lost.

`StreamWriter.start_tls` loses them (CPython issue 142352), and OpenSSL on the socket itself reads each record
in two calls. No names are judged here: the context verifies. Next: stream.py (the seam), upstream_pool.py.
"""

import contextlib
import ssl
from collections.abc import Callable

from egress_proxy.proxy.stream import SocketStream, StreamReset, StreamTruncated

# What one record holds at most (RFC 8446 5.1).
_RECORD_BYTES = 16_384
# A key update is answered in some 30 bytes, and there is one for millions of records.
_REPLIES_LIMIT_BYTES = 4_096
# A server sends a few tickets, in one piece as a rule.
_READS_OF_TICKETS = 4


class TlsFailed(Exception):
    """The handshake failed. The message is OpenSSL's reason, without anything of the request."""


class TlsStream:
    """One TLS connection. Make it with `connect`."""

    __slots__ = ("_below", "_ending", "_incoming", "_outgoing", "_tls", "_unread_bytes")

    def __init__(
        self,
        below: SocketStream,
        context: ssl.SSLContext,
        server_name: str,
        session: ssl.SSLSession | None = None,
    ) -> None:
        self._below = below
        self._ending: StreamReset | StreamTruncated | bytes | None = None  # told once all before it is taken
        self._unread_bytes = 0  # replies of TLS itself that the peer has not taken in
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        # Set by Python where it is built against OpenSSL 3 (Debian's is): a cut answer would look complete.
        context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_hostname=server_name, session=session
        )

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

    @property
    def on_room(self) -> Callable[[], None]:
        return self._below.on_room

    @on_room.setter
    def on_room(self, tell: Callable[[], None]) -> None:
        self._below.on_room = tell

    def session(self) -> ssl.SSLSession | None:
        """What a later connection can resume; with TLS 1.3 it comes with or before the first answer."""
        return self._tls.session

    def is_resumed(self) -> bool:
        """Whether the handshake resumed the session that it was given."""
        return bool(self._tls.session_reused)

    def take(self, limit_bytes: int | None = None) -> bytes | None:
        if self._ending is None and not self._is_holding():
            arrived = self._below.take(limit_bytes)
            if arrived is None:
                return None
            if arrived:
                self._incoming.write(arrived)
            else:
                self._incoming.write_eof()
        return self._decrypted() or self._end()

    def has_more(self) -> bool:
        return self._ending is not None or self._is_holding()

    def give(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:  # into memory, a record at a time
                rest = rest[self._tls.write(rest) :]
        except ssl.SSLError as error:
            raise StreamReset from error
        self._below.give(self._outgoing.read())

    def is_clogged(self) -> bool:
        return self._below.is_clogged()

    def is_broken(self) -> bool:
        return self._below.is_broken()

    def look_on(self, onlooker: Callable[[], None] | None) -> None:
        self._below.look_on(onlooker)

    def close(self) -> None:
        self._below.close()

    def abort(self) -> None:
        self._below.abort()

    def is_quiet(self) -> bool:
        try:
            # Session tickets come after the handshake and are no answer.
            for _ in range(_READS_OF_TICKETS):
                if not self.has_more() and self._below.is_quiet():
                    return True
                if self.take() is not None:
                    break
        except (StreamReset, StreamTruncated):
            pass
        return False

    def _is_holding(self) -> bool:
        """Whether there are bytes that were read from the socket and not looked at yet."""
        return bool(self._incoming.pending or self._tls.pending())

    def _decrypted(self) -> bytes:
        """All that can be read of what has arrived; how it ended is kept for the next call."""
        records: list[bytes] = []
        try:
            while self._ending is None:
                record = self._tls.read(_RECORD_BYTES)
                if not record:  # close_notify
                    self._ending = b""
                records.append(record)
                if not self._is_holding():
                    break
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:  # close_notify, once ours was sent
            self._ending = b""
        except ssl.SSLError as error:
            self._ending = StreamTruncated() if _is_cut(error) else StreamReset()
            self._ending.__cause__ = error
        if self._outgoing.pending:
            self._reply()
        return records[0] if len(records) == 1 else b"".join(records)

    def _reply(self) -> None:
        """Answer a key update (RFC 8446 4.6.3); not without end to a peer that takes none of it in."""
        self._unread_bytes = self._unread_bytes + self._outgoing.pending if self._below.is_clogged() else 0
        try:
            if self._unread_bytes > _REPLIES_LIMIT_BYTES:
                raise StreamReset
            self._below.give(self._outgoing.read())
        except StreamReset as error:
            self._ending = self._ending or error  # what was read before it is still good

    def _end(self) -> bytes | None:
        if isinstance(self._ending, Exception):
            raise self._ending
        return self._ending

    async def _shake_hands(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
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
                return

    async def _flush(self) -> None:
        if self._outgoing.pending:
            await self._below.send(self._outgoing.read())


def _is_cut(error: ssl.SSLError) -> bool:
    """Whether the peer left without close_notify. Python 3.11.2 has no type of its own for that."""
    return isinstance(error, ssl.SSLEOFError) or error.reason == "UNEXPECTED_EOF_WHILE_READING"
