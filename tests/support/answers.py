"""Answers for a provider's script: bytes where that is enough, steps to be played where it is not.

Nothing checks that an answer is good HTTP; most of these exist because some server sends them.
``play`` puts steps together; live_stream.py has the answer that a test speaks piece by piece.
"""

from __future__ import annotations

import gzip
import http
import threading
from collections.abc import Callable, Iterable

from tests.support.conversation import Script
from tests.support.exchange import Exchange
from tests.support.origins import pattern
from tests.support.recorded import RecordedRequest

Step = bytes | threading.Event | Script  # send these; wait for the test to set it; do this
HeaderLines = Iterable[tuple[str, str]]
_BULK_BLOCK = 65_537 * 4  # whole repetitions of the pattern of origins.py


# Heads and bodies, as bytes.


def head(status: int, headers: HeaderLines = (), reason: str | None = None) -> bytes:
    """A response head with the blank line, and with no header that is not given."""
    phrase = http.HTTPStatus(status).phrase if reason is None else reason
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name}: {value}" for name, value in headers)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def fixed(
    body: bytes = b"", status: int = 200, headers: HeaderLines = (), reason: str | None = None
) -> bytes:
    """A body with its Content-Length. ``("Connection", "close")`` closes after it."""
    return head(status, [*headers, ("Content-Length", str(len(body)))], reason) + body


def chunk(octets: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(octets), octets)


def chunked(
    *chunks: bytes, status: int = 200, headers: HeaderLines = (), trailers: HeaderLines = ()
) -> bytes:
    """A chunked body, one chunk for each argument, with its end."""
    tail = "".join(f"{name}: {value}\r\n" for name, value in trailers)
    body = b"".join(chunk(c) for c in chunks) + b"0\r\n" + tail.encode("latin-1") + b"\r\n"
    return head(status, [*headers, ("Transfer-Encoding", "chunked")]) + body


def bodiless(status: int, headers: HeaderLines = ()) -> bytes:
    """204 or 304, or the answer to HEAD: a head alone, whatever length it names."""
    return head(status, headers)


def interim(status: int = 103, headers: HeaderLines = ()) -> bytes:
    """A 1xx head, a step before a final answer: ``play(interim(103), fixed(b"x"))``."""
    return head(status, headers)


def redirect(location: str, status: int = 302) -> bytes:
    return fixed(b"", status, [("Location", location)])


def encoded(coding: str, octets: bytes, status: int = 200) -> bytes:
    """``octets`` as they are, said to be in ``coding`` (br, zstd, "gzip, gzip", …)."""
    return fixed(octets, status, [("Content-Encoding", coding)])


def gzipped(body: bytes, status: int = 200, members: int = 1) -> bytes:
    """A gzip body; with several members, each compresses one part of ``body``."""
    return encoded("gzip", gzip_members(body, members), status)


def gzip_members(body: bytes, members: int) -> bytes:
    size = -(-len(body) // members) or 1
    parts = [body[i : i + size] for i in range(0, len(body), size)] or [b""]
    return b"".join(gzip.compress(part, mtime=0) for part in parts)


# Steps.


def read_body(exchange: Exchange) -> None:
    exchange.read_body()


def close(exchange: Exchange) -> None:
    """With TLS a close_notify, then FIN."""
    exchange.close()


def close_lingering(exchange: Exchange) -> None:
    """As ``close``, but what still comes is discarded, so that no reset overtakes the answer."""
    exchange.close_lingering()


def close_without_notify(exchange: Exchange) -> None:
    """FIN without a close_notify: with TLS a truncation."""
    exchange.close_without_notify()


def abort(exchange: Exchange) -> None:
    """RST."""
    exchange.abort()


def play(*steps: Step) -> Script:
    """The steps in order. The body is read after them, or where ``read_body`` is a step."""

    def script(exchange: Exchange) -> None:
        for step in steps:
            if isinstance(step, bytes):
                exchange.send(step)
            elif isinstance(step, threading.Event):
                exchange.pass_gate(step)
            else:
                step(exchange)

    return script


# Whole answers made of steps.


def held(gate: threading.Event, answer: bytes) -> Script:
    """A slow first byte: the body is read, nothing is said before the test sets ``gate``."""
    return play(read_body, gate, answer)


def early(answer: bytes, *, linger: bool = True) -> Script:
    """An answer before the body is read, then the end of the connection. Not lingering: a reset
    may overtake the answer when the client is still sending."""
    return play(answer, close_lingering if linger else close)


def until_close(body: bytes, headers: HeaderLines = (), ending: Script = close) -> Script:
    """A body without length, that the end of the connection ends."""
    return play(read_body, head(200, headers), body, ending)


def torn_length(body: bytes, declared: int, ending: Script = close) -> Script:
    """A Content-Length of ``declared``, of which only ``body`` comes."""
    return play(read_body, head(200, [("Content-Length", str(declared))]) + body, ending)


def torn_chunk(*whole: bytes, torn: bytes, declared: int, ending: Script = close) -> Script:
    """Whole chunks, then one of ``declared`` bytes of which only ``torn`` comes."""
    start = head(200, [("Transfer-Encoding", "chunked")]) + b"".join(chunk(c) for c in whole)
    return play(read_body, start + b"%x\r\n" % declared + torn, ending)


def reset(after: bytes = b"") -> Script:
    """Reads the request, sends ``after``, resets."""
    return play(read_body, after, abort) if after else play(read_body, abort)


def nonsense(octets: bytes = b"220 mail.example ESMTP\r\n\r\n") -> Script:
    """Something that is no HTTP response, then the end."""
    return play(read_body, octets, close)


def bulk(total_bytes: int) -> Script:
    """``origins.pattern(total_bytes)`` with its length, as fast as the peer takes it."""

    def script(exchange: Exchange) -> None:
        exchange.read_body()
        exchange.send(head(200, [("Content-Length", str(total_bytes))]))
        block, left = pattern(_BULK_BLOCK), total_bytes
        while left > 0:
            exchange.send(block[:left])
            left -= len(block)

    return script


# Answers that depend on the request.


def reply_with(make: Callable[[RecordedRequest], bytes]) -> Script:
    """What ``make`` makes of the request, once its body has been read."""

    def script(exchange: Exchange) -> None:
        exchange.read_body()
        exchange.send(make(exchange.request))

    return script


def echo() -> Script:
    """The request's raw head as the body."""
    return reply_with(lambda request: fixed(request.raw_head))


def echo_gzip() -> Script:
    return reply_with(lambda request: gzipped(request.raw_head))


def echo_header(name: str, into: str = "X-Echo") -> Script:
    """The value of the request's header ``name`` as the response's header ``into``."""
    return reply_with(lambda r: fixed(b"ok", headers=[(into, r.value(name) or "")]))


def echo_split(inside: bytes, gate: threading.Event | None = None) -> Script:
    """The request's raw head in two chunks, cut in the middle of ``inside``; with ``gate`` the
    second is sent when the test sets it. Without ``inside`` in the head the script fails."""

    def script(exchange: Exchange) -> None:
        exchange.read_body()
        body = exchange.request.raw_head
        cut = body.index(inside) + len(inside) // 2
        exchange.send(head(200, [("Transfer-Encoding", "chunked")]) + chunk(body[:cut]))
        if gate is not None:
            exchange.pass_gate(gate)
        exchange.send(chunk(body[cut:]) + b"0\r\n\r\n")

    return script
