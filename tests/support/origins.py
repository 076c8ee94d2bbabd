"""Small loopback servers for the far end of a tunnel, one class for each behaviour.

Each is ``with EchoOrigin() as origin``, records what it received and ends with the block.
HTTP upstreams are in provider.py; the shared threads and sockets in loopback_server.py.
"""

from __future__ import annotations

import hashlib
import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.byte_stream import BLOCK_BYTES, End, close_with_reset
from tests.support.deadline import DEFAULT_S, wait_for
from tests.support.loopback_server import IO_LIMIT_S, LoopbackServer
from tests.support.received import Received

# One byte longer than a block, so that a block that is lost or doubled never goes unnoticed.
_PATTERN = random.Random(7).randbytes(BLOCK_BYTES + 1)


def pattern(n: int) -> bytes:
    """The first ``n`` bytes that a ``SourceOrigin`` sends."""
    return (_PATTERN * (n // len(_PATTERN) + 1))[:n]


def pattern_sha256(n: int) -> str:
    """The digest of ``pattern(n)``, in little memory."""
    digest = hashlib.sha256()
    for _ in range(n // len(_PATTERN)):
        digest.update(_PATTERN)
    digest.update(_PATTERN[: n % len(_PATTERN)])
    return digest.hexdigest()


class Origin(LoopbackServer):
    """Records each connection; subclasses converse. Connections count from 0."""

    def __init__(self, bind: str = "127.0.0.1", port: int = 0) -> None:
        super().__init__(bind, port)
        self._received: list[Received] = []

    def accepted(self, sock: socket.socket, index: int) -> None:
        self._received.append(Received(sock, self.changed))

    def serve(self, sock: socket.socket, index: int) -> None:
        record = self._received[index]
        try:
            self.converse(sock, record)
        except TimeoutError:
            return  # bounded: a silent peer costs a thread no longer than IO_LIMIT_S
        except OSError:  # reset, or a pipe that broke while sending
            record.mark(End.RESET)

    def converse(self, sock: socket.socket, record: Received) -> None:
        raise NotImplementedError

    def received(self, connection: int = 0) -> bytes:
        """What came on one connection (its first 4 MiB); empty when there was none."""
        record = self._record(connection)
        return b"" if record is None else record.kept()

    def received_count(self, connection: int = 0) -> int:
        record = self._record(connection)
        return 0 if record is None else record.count

    def received_sha256(self, connection: int = 0) -> str:
        record = self._record(connection)
        return hashlib.sha256().hexdigest() if record is None else record.sha256()

    def end(self, connection: int = 0) -> End:
        """How the peer's direction stands: open, EOF or RESET."""
        record = self._record(connection)
        return End.OPEN if record is None else record.end

    def wait_for_bytes(self, n: int, connection: int = 0, timeout_s: float = DEFAULT_S) -> bytes:
        """Wait until at least ``n`` bytes came, and give what came (its first 4 MiB)."""
        what = f"{n} bytes on connection {connection} of {self.address}"
        wait_for(self.changed, lambda: self.received_count(connection) >= n, timeout_s, what)
        return self.received(connection)

    def wait_for_end(self, connection: int = 0, timeout_s: float = DEFAULT_S) -> End:
        """Wait until the peer ended its direction, and say how. Only seen by origins that read."""
        what = f"the end of connection {connection} of {self.address}"
        wait_for(self.changed, lambda: self.end(connection) is not End.OPEN, timeout_s, what)
        return self.end(connection)

    def _record(self, connection: int) -> Received | None:
        with self.changed:
            known = connection < len(self._received)
            return self._received[connection] if known else None


class EchoOrigin(Origin):
    """Sends back what it gets; ends its direction when the peer ends the other."""

    def converse(self, sock: socket.socket, record: Received) -> None:
        while block := record.read():
            sock.sendall(block)


class BannerOrigin(Origin):
    """Speaks first, as SSH and SMTP servers do, then echoes."""

    def __init__(self, banner: bytes = b"SSH-2.0-test\r\n", bind: str = "127.0.0.1", port: int = 0) -> None:
        super().__init__(bind, port)
        self.banner = banner

    def converse(self, sock: socket.socket, record: Received) -> None:
        sock.sendall(self.banner)
        while block := record.read():
            sock.sendall(block)


class HalfCloseOrigin(Origin):
    """Reads to the peer's EOF, waits for ``release`` if one is given, then answers and closes."""

    def __init__(
        self,
        answer: bytes = b"a" * 40,
        release: threading.Event | None = None,
        bind: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        super().__init__(bind, port)
        self.answer = answer
        self._release = release

    def converse(self, sock: socket.socket, record: Received) -> None:
        record.read_to_end()
        if record.end is End.EOF and (self._release is None or self.pass_gate(self._release)):
            sock.sendall(self.answer)


class EarlyCloseOrigin(Origin):
    """Sends ``answer``, ends its own direction at once, and goes on reading until the peer ends."""

    def __init__(self, answer: bytes = b"", bind: str = "127.0.0.1", port: int = 0) -> None:
        super().__init__(bind, port)
        self.answer = answer

    def converse(self, sock: socket.socket, record: Received) -> None:
        sock.sendall(self.answer)
        sock.shutdown(socket.SHUT_WR)
        record.read_to_end()


class SinkOrigin(Origin):
    """Counts and hashes what comes, answers nothing. With ``start``, reads nothing before it."""

    def __init__(self, start: threading.Event | None = None, bind: str = "127.0.0.1", port: int = 0) -> None:
        super().__init__(bind, port)
        self._start = start

    def converse(self, sock: socket.socket, record: Received) -> None:
        if self._start is None or self.pass_gate(self._start):
            record.read_to_end()


class SourceOrigin(Origin):
    """Sends ``pattern(total_bytes)`` as fast as the peer takes it, then ends its direction."""

    def __init__(self, total_bytes: int, bind: str = "127.0.0.1", port: int = 0) -> None:
        super().__init__(bind, port)
        self.total_bytes = total_bytes
        self.sent_bytes = 0  # over all connections: what the kernel took, not what arrived

    def converse(self, sock: socket.socket, record: Received) -> None:
        left = self.total_bytes
        while left > 0:
            block = _PATTERN[:left]
            sock.sendall(block)
            left -= len(block)
            with self.changed:
                self.sent_bytes += len(block)
                self.changed.notify_all()
        sock.shutdown(socket.SHUT_WR)
        record.read_to_end()


class ResetOrigin(Origin):
    """Reads ``after_bytes``, sends ``answer``, then resets the connection."""

    def __init__(
        self,
        after_bytes: int = 1,
        answer: bytes = b"",
        bind: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        super().__init__(bind, port)
        self._after_bytes = after_bytes
        self._answer = answer

    def converse(self, sock: socket.socket, record: Received) -> None:
        while record.count < self._after_bytes and record.read(self._after_bytes - record.count):
            pass
        if self._answer:
            sock.sendall(self._answer)
        close_with_reset(sock)


class SilentOrigin(Origin):
    """Accepts and reads, and never says a word or ends its direction first."""

    def converse(self, sock: socket.socket, record: Received) -> None:
        record.read_to_end()
        with self.changed:  # also after the peer's EOF its own direction stays open
            self.changed.wait_for(lambda: self.stopping, IO_LIMIT_S)


class StuckOrigin:
    """Its queue is full, so the kernel drops every SYN: dialling hangs, as with a black hole.

    Linux only. It takes no privilege, and works on ``127.0.0.x`` and on ``::1``.
    """

    def __init__(self, bind: str = "127.0.0.1", port: int = 0) -> None:
        self.host = bind
        family = socket.AF_INET6 if ":" in bind else socket.AF_INET
        self._listener = socket.socket(family)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind((bind, port))
        self._listener.listen(0)
        self.port: int = self._listener.getsockname()[1]
        self.address = f"[{bind}]:{self.port}" if ":" in bind else f"{bind}:{self.port}"
        self._fillers = [socket.socket(family) for _ in range(2)]

    def __enter__(self) -> StuckOrigin:
        first, second = self._fillers
        first.settimeout(DEFAULT_S)
        first.connect((self.host, self.port))
        second.setblocking(False)
        second.connect_ex((self.host, self.port))
        return self

    def __exit__(self, *_: object) -> None:
        for sock in (*self._fillers, self._listener):
            sock.close()


@contextmanager
def closed_port(bind: str = "127.0.0.1") -> Iterator[int]:
    """A port that refuses connections, and that nobody else can take within the block."""
    with socket.socket(socket.AF_INET6 if ":" in bind else socket.AF_INET) as holder:
        holder.bind((bind, 0))
        yield holder.getsockname()[1]
