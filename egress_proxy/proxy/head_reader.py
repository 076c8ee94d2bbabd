"""Reads one request head of a client, bounded in bytes and in time; tells early what is not HTTP.

The bytes are not parsed here. Next: core/request.py (the grammar), connection.py (the caller).
"""

import asyncio
import enum

from egress_proxy.core.decision import Deny, Reason
from egress_proxy.core.request import HEAD_END, Opening, judge_opening
from egress_proxy.proxy.stream import SocketStream


class Silence(enum.Enum):
    """There is no head, and nobody to answer: close without a word."""

    CLOSED = enum.auto()  # the client left, or never said anything
    BINARY = enum.auto()  # the client speaks another protocol


async def read_head(stream: SocketStream, limit_bytes: int, timeout_s: float) -> bytes | Deny | Silence:
    """One head with its empty line; what came behind it is given back to the stream. Raises StreamReset."""
    held = b""  # exactly what has come: a buffer that grows ahead, or a second reference, would double it
    time = asyncio.get_running_loop().time
    due_at = time() + timeout_s
    try:
        while data := await stream.receive(max(0.0, due_at - time())):
            held, data = held + data, b""
            end = held.find(HEAD_END) + len(HEAD_END)
            if len(HEAD_END) <= end <= limit_bytes:
                stream.unread(held[end:])
                return held[:end]
            refusal = _refusal(held, limit_bytes)
            if refusal is not None:
                return refusal
    except TimeoutError:
        return Deny(Reason.HEAD_TIMEOUT) if held else Silence.CLOSED
    return _cut_short() if held else Silence.CLOSED


def _refusal(held: bytes, limit_bytes: int) -> Deny | Silence | None:
    """Why there is no point in waiting for more; None while there is."""
    match judge_opening(held):
        case Opening.BINARY:
            return Silence.BINARY
        case Opening.TEXT:
            return Deny(Reason.NOT_HTTP)
        case Opening.REQUEST:
            pass
    if held.count(b"\n") != held.count(b"\r\n"):
        return Deny(Reason.MALFORMED, detail="a line of the head ends without a carriage return")
    return Deny(Reason.HEAD_TOO_LARGE) if len(held) >= limit_bytes else None


def _cut_short() -> Deny:
    return Deny(Reason.MALFORMED, detail="the request ends in the middle of its head")
