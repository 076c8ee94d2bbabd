"""A minimal HTTP/1.1 reader for tests: it takes answers apart and hides nothing of their bytes.

No retries, no redirects, no decoding, no pool; deadlines on everything, exact to the byte.
Reading and its errors are in byte_stream.py.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tests.support.byte_stream import connect, read_exactly, read_to_end, read_until
from tests.support.deadline import DEFAULT_S

HeaderLines = Iterable[tuple[str, str]]


def header_values(headers: HeaderLines, name: str) -> list[str]:
    """The values of all lines with this name, in order, whatever the case of the name."""
    return [value for key, value in headers if key.lower() == name.lower()]


def header_value(headers: HeaderLines, name: str) -> str | None:
    """The value of the only line with this name; None without one, an error with several."""
    values = header_values(headers, name)
    if len(values) > 1:
        raise ValueError(f"{len(values)} lines named {name}")
    return values[0] if values else None


@dataclass(frozen=True, slots=True)
class Head:
    """A response head: the raw bytes with the blank line, and the same taken apart."""

    raw: bytes
    status_line: str
    headers: tuple[tuple[str, str], ...]

    @property
    def version(self) -> str:
        return self.status_line.split(" ", 2)[0]

    @property
    def status(self) -> int:
        return int(self.status_line.split(" ", 2)[1])

    @property
    def reason(self) -> str:
        """The reason phrase, whole; empty when there is none."""
        return [*self.status_line.split(" ", 2), ""][2]

    def values(self, name: str) -> list[str]:
        return header_values(self.headers, name)

    def value(self, name: str) -> str | None:
        return header_value(self.headers, name)


@dataclass(frozen=True, slots=True)
class Response:
    """A whole response. ``chunks``: the body as it was chunked, empty without chunked framing."""

    head: Head
    body: bytes
    chunks: tuple[bytes, ...] = ()
    interim: tuple[Head, ...] = ()  # 1xx heads before the final one

    @property
    def status(self) -> int:
        return self.head.status

    @property
    def reason(self) -> str:
        return self.head.reason

    def value(self, name: str) -> str | None:
        return self.head.value(name)

    def json(self) -> Any:
        return json.loads(self.body)


def parse_head(raw: bytes) -> Head:
    """Take a response head apart; strict about line ends, so that a bare LF is an error here."""
    if not raw.endswith(b"\r\n\r\n"):
        raise ValueError(f"no blank line at the end of {raw[-50:]!r}")
    first, *lines = raw[:-4].decode("latin-1").split("\r\n")
    if any(c in line for line in (first, *lines) for c in "\r\n\0"):
        raise ValueError(f"a bare CR, LF or NUL in {raw!r}")
    if not first.startswith("HTTP/"):
        raise ValueError(f"not a status line: {first!r}")
    pairs = [line.partition(":") for line in lines]
    if any(not colon or not name or name != name.strip() for name, colon, _ in pairs):
        raise ValueError(f"a bad header line in {raw!r}")
    return Head(raw, first, tuple((name, value.strip(" \t")) for name, _, value in pairs))


def read_head(sock: socket.socket, timeout_s: float = DEFAULT_S) -> Head:
    """One head; the bytes behind its blank line stay in the socket."""
    return parse_head(read_until(sock, b"\r\n\r\n", timeout_s))


def read_chunk(sock: socket.socket, timeout_s: float = DEFAULT_S) -> bytes:
    """One chunk of a chunked body, as soon as it is whole; ``b""`` at the last, trailers read."""
    size = int(read_until(sock, b"\r\n", timeout_s).split(b";")[0], 16)
    if size == 0:
        while read_until(sock, b"\r\n", timeout_s) != b"\r\n":
            pass
        return b""
    chunk = read_exactly(sock, size + 2, timeout_s)
    if not chunk.endswith(b"\r\n"):
        raise ValueError(f"a chunk of {size} bytes is not followed by CRLF: {chunk[-20:]!r}")
    return chunk[:-2]


def read_body(
    sock: socket.socket, head: Head, method: str = "GET", timeout_s: float = DEFAULT_S
) -> tuple[bytes, tuple[bytes, ...]]:
    """The body that belongs to ``head`` (RFC 9112 section 6.3), and its chunks if chunked."""
    tunnel = method == "CONNECT" and 200 <= head.status < 300
    if method == "HEAD" or tunnel or head.status in (204, 304) or head.status < 200:
        return b"", ()
    if head.value("Transfer-Encoding") == "chunked":
        chunks = []
        while chunk := read_chunk(sock, timeout_s):
            chunks.append(chunk)
        return b"".join(chunks), tuple(chunks)
    length = head.value("Content-Length")
    if length is None:
        return read_to_end(sock, timeout_s), ()
    return read_exactly(sock, int(length), timeout_s), ()


def read_response(sock: socket.socket, method: str = "GET", timeout_s: float = DEFAULT_S) -> Response:
    """The final response to a ``method`` request, with the 1xx heads that came before it."""
    interim: list[Head] = []
    head = read_head(sock, timeout_s)
    while head.status < 200 and head.status != 101:
        interim.append(head)
        head = read_head(sock, timeout_s)
    body, chunks = read_body(sock, head, method, timeout_s)
    return Response(head, body, chunks, tuple(interim))


def request_bytes(
    method: str,
    target: str,
    headers: HeaderLines = (),
    body: bytes = b"",
    version: str = "HTTP/1.1",
) -> bytes:
    """A request exactly as said; Content-Length is added for a body, nothing else ever is."""
    lines = [f"{method} {target} {version}", *(f"{name}: {value}" for name, value in headers)]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body


def exchange(port: int, request: bytes, host: str = "127.0.0.1", timeout_s: float = DEFAULT_S) -> Response:
    """One request on a connection of its own."""
    method = request.split(b" ", 1)[0].decode("latin-1")
    with connect(port, host, timeout_s) as sock:
        sock.sendall(request)
        return read_response(sock, method, timeout_s)
