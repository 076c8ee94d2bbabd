"""One request at a provider, in the hands of a script: read its body, send bytes, end it somehow.

A script is any callable that takes an ``Exchange``; answers.py has the usual ones.
Sockets are closed here and nowhere else, since the manner of closing is what tests are about.
"""

from __future__ import annotations

import contextlib
import hashlib
import socket
import threading
from collections.abc import Callable
from typing import Protocol

from tests.support.byte_stream import BLOCK_BYTES, End, close_with_reset, end_direction
from tests.support.recorded import Incoming, PeerLeft, RecordedConnection, RecordedRequest, keep

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_LINGER_S = 2.0


class ProviderStopped(Exception):
    """The provider ends while a script waits; the script just stops here."""


class Stage(Protocol):
    """What a script needs of the provider that it runs in."""

    changed: threading.Condition

    def pass_gate(self, gate: threading.Event) -> bool: ...


class Exchange:
    """``finished`` is true once the script has ended the connection."""

    def __init__(
        self,
        stage: Stage,
        sock: socket.socket,
        incoming: Incoming,
        connection: RecordedConnection,
        request: RecordedRequest,
    ) -> None:
        self.request = request
        self.connection = connection
        self.finished = False
        self._stage = stage
        self._sock = sock
        self._incoming = incoming
        self._spoke = False

    def send(self, octets: bytes) -> None:
        """One write; with TLS one or more records of its own."""
        self._spoke = True
        self._sock.sendall(octets)

    def read_body(self) -> bytes:
        """Read the body to its end, once; a client that expects 100 and heard nothing gets it."""
        if self.request.whole:
            return self.request.body
        expects = (self.request.value("Expect") or "").lower() == "100-continue"
        if expects and not self._spoke:
            self.send(CONTINUE)
        digest = hashlib.sha256()
        if "chunked" in (v.lower() for v in self.request.values("Transfer-Encoding")):
            self._read_chunks(digest.update)
        else:
            length = int(self.request.value("Content-Length") or 0)
            self._read_length(length - self.request.body_count, digest.update)
        with self._stage.changed:
            self.request.body_sha256 = digest.hexdigest()
            self.request.whole = True
            self._stage.changed.notify_all()
        return self.request.body

    def pass_gate(self, gate: threading.Event) -> None:
        """Wait until the test opens ``gate``; ends the script when the provider stops first."""
        if not self._stage.pass_gate(gate):
            raise ProviderStopped

    def await_hangup(self) -> End:
        """Read on, recording, until the peer ends the connection; says how."""
        try:
            while True:
                self._incoming.some(BLOCK_BYTES)
        except PeerLeft:
            return End.EOF
        except ConnectionError:
            return End.RESET

    def close(self) -> None:
        """End cleanly: with TLS a close_notify first, then FIN."""
        end_direction(self._sock)
        self._sock.close()
        self.finished = True

    def close_lingering(self) -> None:
        """End our direction, then discard what comes, so that no reset overtakes the answer."""
        end_direction(self._sock)
        self._sock.settimeout(_LINGER_S)
        with contextlib.suppress(OSError):
            while socket.socket.recv(self._sock, BLOCK_BYTES):  # below TLS: it may be ended
                pass
        self._sock.close()
        self.finished = True

    def close_without_notify(self) -> None:
        """FIN without a close_notify: with TLS this is a truncation, not an end."""
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._sock, socket.SHUT_WR)
        self._sock.close()
        self.finished = True

    def abort(self) -> None:
        """RST."""
        close_with_reset(self._sock)
        self.finished = True

    def _read_length(self, n: int, hashed: Callable[[bytes], None]) -> None:
        while n > 0:
            block = self._incoming.some(min(n, BLOCK_BYTES))
            n -= len(block)
            hashed(block)
            with self._stage.changed:
                self.request.body_count += len(block)
                keep(self.request.kept_body, block)
                self._stage.changed.notify_all()

    def _read_chunks(self, hashed: Callable[[bytes], None]) -> None:
        while size := int(self._incoming.until(b"\r\n").split(b";")[0], 16):
            self._read_length(size, hashed)
            self._incoming.until(b"\r\n")
        while self._incoming.until(b"\r\n") != b"\r\n":
            pass
