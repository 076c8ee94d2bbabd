"""An upstream of an inject rule that does what the path of each request says, well or badly.

It also judges what comes: whole requests that one client sent, each once. Next: killing_injected.py.
"""

from __future__ import annotations

import enum
import random
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from tests.benchmarks.endurance.leaving import LONGEST_S, read_for
from tests.support.answers import bodiless, chunk, chunked, fixed, head, interim
from tests.support.byte_stream import (
    BLOCK_BYTES,
    Truncated,
    close_with_reset,
    end_direction,
    read_exactly,
    read_until,
)
from tests.support.loopback_server import IO_LIMIT_S, LoopbackServer
from tests.support.recorded import RecordedRequest, recorded_request

SECRET = "sk-CANARY-of-the-endurance-check"
NUMBER = "X-Number"
# So little room for what is not read yet that what the proxy sends is often taken in part only. With less
# than loopback's segments of 64 KiB the kernel's own timers would set the pace.
NARROW_BYTES = 131_072
SLOW_S = 0.2  # before one of the slow reads what is large, so that it fills all buffers on its way
_LINGER_S = 1.0
_ABANDONED_S = 15.0  # the client has gone long before, and the proxy some 2 s after it
_CHUNKED = ("Transfer-Encoding", "chunked")
_CHUNK_BYTES, _MOST_CHUNKS = 700, 100
_NONSENSE = (
    b"220 mail.example ESMTP\r\n\r\n",
    b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
    b"HTTP/2 200\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
)


class Deed(enum.StrEnum):
    LENGTH = "length"
    CHUNKS = "chunks"
    EVENTS = "events"
    UNTIL_CLOSE = "until-close"
    BODILESS = "bodiless"
    INTERIM = "interim"
    EARLY = "early"  # before the body is read
    SURPLUS = "surplus"  # with an answer to nobody behind it
    FLOOD = "flood"  # chunks without end
    WAIT = "wait"  # in silence, until the client has gone
    SILENCE = "silence"  # and then the end
    NOTHING = "nothing"  # the end, before the body is read
    NONSENSE = "nonsense"
    HALF_HEAD = "half-head"
    HALF_LENGTH = "half-length"
    HALF_CHUNK = "half-chunk"


ANSWERS = frozenset(
    {Deed.LENGTH, Deed.CHUNKS, Deed.EVENTS, Deed.UNTIL_CLOSE, Deed.BODILESS, Deed.INTERIM, Deed.EARLY}
    | {Deed.SURPLUS}
)


class Then(enum.StrEnum):
    """What becomes of the connection. What is cut off ends it in any case, and never says so."""

    KEEP = "keep"
    CLOSE = "close"  # as the answer's head said
    LEAVE = "leave"  # although it did not
    RESET = "reset"


@dataclass(frozen=True, slots=True)
class Wish:
    """What one request asks for, in its path. ``number`` is its alone, and fills body and answer."""

    number: int
    deed: Deed
    then: Then
    answer_bytes: int

    @property
    def path(self) -> str:
        return f"/{self.number}/{self.deed}/{self.then}/{self.answer_bytes}"

    @classmethod
    def of(cls, path: str) -> Self:
        """Raises ValueError for a path that no wish has."""
        _, number, deed, then, answer_bytes = path.split("/")
        return cls(int(number), Deed(deed), Then(then), int(answer_bytes))

    @property
    def body(self) -> bytes:
        return b"" if self.deed is Deed.BODILESS else content(self.number, self.answer_bytes)


def content(number: int, size: int) -> bytes:
    """So many bytes that belong to one number alone."""
    unit = b"%d," % number
    return (unit * (size // len(unit) + 1))[:size]


def times_allowed(method: str, body_bytes: int) -> int:
    """How often a request may reach the upstream: twice when its kept connection may have been dead."""
    return 2 if not body_bytes and method in ("GET", "HEAD", "PUT", "DELETE") else 1


class ObedientUpstream(LoopbackServer):
    """``faults``: what came that no client had sent so. With a context it speaks TLS."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__()
        self.faults: list[str] = []
        self._tls = tls
        self._arrived: Counter[int] = Counter()
        self._lock = threading.Lock()

    def serve(self, sock: socket.socket, index: int) -> None:
        with suppress(OSError, Truncated):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, NARROW_BYTES)
            if self._tls is not None:
                sock.getpeername()  # reset before we came to it: wrapping would leak the socket
                sock = self._tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
                self.replace_socket(index, sock)
                sock.do_handshake()
            while self._serve_request(sock):
                pass

    def _serve_request(self, sock: socket.socket) -> bool:
        """Whether the connection is good for another one."""
        raw_head = read_until(sock, b"\r\n\r\n", IO_LIMIT_S)
        request = recorded_request(0, 0, raw_head)
        body_bytes = int(request.value("Content-Length") or 0)
        wish = self._judged(request, body_bytes)
        if wish is None:
            return False
        if wish.deed is Deed.NOTHING:
            self._end(sock, wish)
            return False
        if wish.deed is not Deed.EARLY:
            self._read_body(sock, wish, body_bytes)
        try:
            self._answer(sock, wish, is_head=request.method == "HEAD")
        except TimeoutError:
            self._complain(f"{request.method} {wish.path} was not given up when its client had gone")
            return False
        is_kept = wish.deed in ANSWERS - {Deed.UNTIL_CLOSE} and wish.then is Then.KEEP
        if not is_kept:
            self._end(sock, wish)
        elif wish.deed is Deed.EARLY:
            self._read_body(sock, wish, body_bytes)
        return is_kept

    def _judged(self, request: RecordedRequest, body_bytes: int) -> Wish | None:
        try:
            wish = Wish.of(request.target)
        except ValueError:
            self._complain(f"no client's request came: {request.raw_head!r}")
            return None
        if request.values("Authorization") != [SECRET]:
            self._complain(f"{wish.path} came without its credential")
        with self._lock:
            self._arrived[wish.number] += 1
            count = self._arrived[wish.number]
        if count > times_allowed(request.method, body_bytes):
            self._complain(f"{request.method} {wish.path} came {count} times")
        return wish

    def _read_body(self, sock: socket.socket, wish: Wish, body_bytes: int) -> None:
        if body_bytes > NARROW_BYTES:
            self._pause(SLOW_S)
        if read_exactly(sock, body_bytes, IO_LIMIT_S) != content(wish.number, body_bytes):
            self._complain(f"{wish.path} came with another body than its own")

    def _answer(self, sock: socket.socket, wish: Wish, *, is_head: bool) -> None:
        match wish.deed:
            case Deed.SILENCE:
                read_for(2 * LONGEST_S, sock)
            case Deed.WAIT | Deed.FLOOD:
                sock.settimeout(_ABANDONED_S)
        for piece in pieces(wish):
            if is_head:
                sock.sendall(piece.partition(b"\r\n\r\n")[0] + b"\r\n\r\n")
                return
            sock.sendall(piece)
            if wish.deed is Deed.EVENTS:
                self._pause(0.001)
        if wish.deed is Deed.WAIT:
            sock.recv(1)

    def _end(self, sock: socket.socket, wish: Wish) -> None:
        if wish.then is Then.RESET:
            close_with_reset(sock)
            return
        end_direction(sock)
        if wish.deed is Deed.EARLY:
            # What is left unread would make a reset of it, ahead of the answer. Below TLS, which is ended.
            sock.settimeout(_LINGER_S)
            while socket.socket.recv(sock, BLOCK_BYTES):
                pass

    def _pause(self, seconds: float) -> None:
        with self.changed:
            self.changed.wait_for(lambda: self.stopping, seconds)

    def _complain(self, fault: str) -> None:
        with self._lock:
            self.faults.append(fault)


def pieces(wish: Wish) -> Iterator[bytes]:
    """The answer, in the writes in which it goes out; what follows the head of one to HEAD is not sent."""
    own = [(NUMBER, str(wish.number)), *([("Connection", "close")] if wish.then is Then.CLOSE else [])]
    body = wish.body
    step = max(_CHUNK_BYTES, len(body) // _MOST_CHUNKS)
    parts = [body[at : at + step] for at in range(0, len(body), step)]
    match wish.deed:
        case Deed.LENGTH | Deed.EARLY:
            yield fixed(body, headers=own)
        case Deed.CHUNKS:
            yield chunked(*parts, headers=own)
        case Deed.EVENTS:
            yield head(200, [*own, _CHUNKED, ("Content-Type", "text/event-stream")])
            yield from map(chunk, parts)
            yield b"0\r\n\r\n"
        case Deed.UNTIL_CLOSE:
            yield head(200, own) + body
        case Deed.BODILESS:
            yield bodiless(204, own)
        case Deed.INTERIM:
            yield interim(103, own)
            yield fixed(body, headers=own)
        case Deed.SURPLUS:
            yield fixed(body, headers=own) + fixed(b"surplus", headers=[(NUMBER, "0")])
        case Deed.FLOOD:
            yield head(200, [*own, _CHUNKED])
            while True:
                yield chunk(b"f" * BLOCK_BYTES)
        case Deed.NONSENSE:
            yield _NONSENSE[wish.number % len(_NONSENSE)]
        case Deed.HALF_HEAD:
            whole = fixed(body, headers=own)
            yield whole[: random.Random(wish.number).randrange(whole.index(b"\r\n\r\n"))]
        case Deed.HALF_LENGTH:
            yield fixed(body + b"x", headers=own)[:-1]
        case Deed.HALF_CHUNK:
            whole = chunked(*parts, headers=own)
            yield whole[: random.Random(wish.number).randrange(whole.index(b"\r\n\r\n") + 4, len(whole))]
        case Deed.SILENCE | Deed.WAIT | Deed.NOTHING:
            pass
