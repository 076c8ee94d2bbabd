"""HTTP/1.1 with our client, in bytes: its body comes in by its length, the answer goes out framed anew.

No I/O. The client's head was judged before (core/request.py), and bodies in chunks are refused (intake.py).
Next: http1.py (the upstream's side), exchange.py (moves the bytes).
"""

from collections.abc import Iterable

from egress_proxy.core.request import RequestHead
from egress_proxy.proxy.http1 import BODILESS, LENGTH, AnswerHead, Header, head_bytes


class ClientSide:
    """The exchange as seen by our client: its body comes in, the answer goes out."""

    __slots__ = ("_fed", "_has_ended", "_is_chunked", "_is_head", "_is_last", "_knows_chunks", "_left_bytes")

    def __init__(self, head: RequestHead, body_bytes: int) -> None:
        self._left_bytes = body_bytes
        self._fed = b""
        self._is_head = head.method == "HEAD"
        # HTTP/1.0 has neither chunks nor interim answers, and each request a connection of its own.
        self._knows_chunks = head.version >= (1, 1)
        self._is_last = not self._knows_chunks or b"close" in head.tokens(b"connection")
        self._is_chunked = self._has_ended = False

    def feed(self, data: bytes) -> None:
        """Bytes of the body and of what follows it."""
        self._fed += data

    def body(self) -> bytes | None:
        """The next bytes of the request's body; empty at its end, None when more must be fed."""
        if not self._left_bytes:
            return b""
        data, self._fed = self._fed[: self._left_bytes], self._fed[self._left_bytes :]
        self._left_bytes -= len(data)
        return data or None

    def is_body_read(self) -> bool:
        return not self._left_bytes

    def leftover(self) -> bytes:
        """What was fed beyond the body: the beginning of the next request."""
        return self._fed

    def interim(self, answer: AnswerHead) -> bytes:
        """A 1xx answer; nothing for a client of HTTP/1.0, which knows none."""
        return head_bytes(_status_line(answer), answer.headers) if self._knows_chunks else b""

    def start(self, answer: AnswerHead) -> bytes:
        ours: list[Header] = []
        if answer.value(LENGTH) is None and answer.status not in BODILESS:
            # Chunks, or an end that is the connection's own.
            self._is_chunked = self._knows_chunks and not self._is_head
            if self._knows_chunks:
                ours.append((b"Transfer-Encoding", b"chunked"))
        if self._left_bytes:
            # The client is still sending: what comes on this connection next is no request.
            self._is_last = True
        if self._is_last:
            ours.append((b"Connection", b"close"))
        return head_bytes(_status_line(answer), (*answer.headers, *ours))

    def part(self, data: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(data), data) if self._is_chunked else data

    def end(self, trailers: Iterable[Header]) -> bytes:
        self._has_ended = True
        return head_bytes(b"0\r\n", trailers) if self._is_chunked else b""

    def is_reusable(self) -> bool:
        """Whether the client's connection may carry another request."""
        return self._has_ended and not self._is_last


def _status_line(answer: AnswerHead) -> bytes:
    return b"HTTP/1.1 %d %b\r\n" % (answer.status, answer.reason)
