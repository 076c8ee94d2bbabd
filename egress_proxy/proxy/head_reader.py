"""Reads one request head of a client, bounded in bytes and in time; tells early what is not HTTP.

The bytes are not parsed here. Next: core/request.py (the grammar), connection.py (the caller).
"""

import asyncio
import bisect
import enum
from dataclasses import replace

from egress_proxy.core.decision import Deny, Reason
from egress_proxy.core.request import HEAD_END, Opening, judge_opening
from egress_proxy.proxy.intake import named_target
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
            judged = judge_held(held[:limit_bytes], limit_bytes)
            if isinstance(judged, int):
                stream.unread(held[judged:])
                return held[:judged]
            if judged is not None:
                return judged
    except TimeoutError:
        return with_target(Deny(Reason.HEAD_TIMEOUT), held) if held else Silence.CLOSED
    if not held:
        return Silence.CLOSED
    return with_target(Deny(Reason.MALFORMED, detail="the request ends in the middle of its head"), held)


def judge_held(held: bytes, limit_bytes: int) -> int | Deny | Silence | None:
    """Where the head ends, or why there is no point in waiting for more; None while there is.

    However the bytes were cut on their way, the answer is that of a reader that gets them one by one: the
    opening is judged first, then each line, then the size. ``held`` has no more than ``limit_bytes``.
    """
    match judge_opening(held):
        case Opening.BINARY:
            return Silence.BINARY
        case Opening.TEXT:
            return with_target(Deny(Reason.NOT_HTTP), _until_decided(held))
        case Opening.REQUEST:
            pass
    end = held.find(HEAD_END) + len(HEAD_END)
    is_whole = end >= len(HEAD_END)
    lines = held[:end] if is_whole else held
    if lines.count(b"\n") != lines.count(b"\r\n"):
        detail = "a line of the head ends without a carriage return"
        return with_target(Deny(Reason.MALFORMED, detail=detail), held)
    if is_whole:
        return end
    return with_target(Deny(Reason.HEAD_TOO_LARGE), held) if len(held) >= limit_bytes else None


def _until_decided(held: bytes) -> bytes:
    """What a reader of single bytes had when it saw that this will be no request."""
    sizes = range(1, len(held) + 1)
    at = bisect.bisect_left(sizes, True, key=lambda size: judge_opening(held[:size]) is not Opening.REQUEST)
    return held[: at + 1]


def with_target(deny: Deny, held: bytes) -> Deny:
    """The refusal with the target that the request line names, if that is there."""
    method, _, rest = held.partition(b"\r\n")[0].partition(b" ")
    target, blank, _ = rest.partition(b" ")
    return replace(deny, target=named_target(method.decode("latin-1"), target)) if blank else deny
