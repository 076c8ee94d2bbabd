"""What aiohttp's connections do otherwise here: JSON in place of its error pages, no log lines, a cap.

No call and no check is here. aiohttp's own would show HTML, its version, and tracebacks on stderr.
Next: server.py (who makes these).
"""

import asyncio
import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from aiohttp import web

# Until the head of the first or the next request is whole. Also what a caller that sends nothing costs.
HEAD_TIMEOUT_S = 10.0
# How long an unwanted body is read on, so that the answer is not lost to a reset (RFC 9112 9.6).
_LINGER_S = 1.0
_READ_BUFFER_BYTES = 16_384

# aiohttp writes requests, and tracebacks with what they quote, to whatever logger it has: it gets a deaf one.
_SILENT = logging.Logger("control_api.silent", logging.CRITICAL + 1)

Failed = Callable[[web.BaseRequest, int, BaseException | None], web.Response]
"""Words the answer to a request that could not be read (400) or served, and records it."""

Faulted = Callable[[BaseException | None], object]
"""Records a fault of ours."""


class Connection(web.RequestHandler):
    """One connection, as asyncio's server makes them. ``has_token``: its caller has shown the right one."""

    def __init__(
        self, server: web.Server, failed: Failed, faulted: Faulted, gone: Callable[["Connection"], object]
    ) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=HEAD_TIMEOUT_S,
            logger=_SILENT,
            access_log=_SILENT,
            lingering_time=_LINGER_S,
            read_bufsize=_READ_BUFFER_BYTES,
            auto_decompress=False,  # 4 KiB could unpack to 4 MiB
        )
        self._failed = failed
        self._faulted = faulted
        self._gone = gone
        self.has_token = False

    def connection_lost(self, exc: BaseException | None) -> None:
        self._gone(self)
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """aiohttp's outermost loop comes here. ``message`` may quote the request, so it is dropped."""
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun; the connection can only be closed")
        response = self._failed(request, status, exc)
        response.force_close()
        return response

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Not even an error could be answered: aiohttp would write the traceback to its log."""
        self.force_close()
        error = kw.get("exc_info")
        if isinstance(error, web.RequestPayloadError):
            return  # the caller's broken chunks, met again when the rest is thrown away
        self._faulted(error if isinstance(error, BaseException) else None)


class TurnedAway(asyncio.Protocol):
    """A connection beyond the cap: told so at once and closed."""

    def __init__(self, refused: Callable[[str], web.Response]) -> None:
        self._refused = refused

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        response = self._refused(peer_text(transport))
        body = (response.text or "").encode()
        headers = {**response.headers, "Content-Length": str(len(body)), "Connection": "close"}
        lines = [f"HTTP/1.1 {response.status} {response.reason}", *map(": ".join, headers.items())]
        stream = cast(asyncio.Transport, transport)
        stream.write("\r\n".join((*lines, "", "")).encode() + body)
        stream.close()


def peer_text(transport: asyncio.BaseTransport | None) -> str:
    """`address:port`, for the audit log; empty when the caller has gone."""
    peer: Any = transport.get_extra_info("peername") if transport is not None else None
    return f"{peer[0]}:{peer[1]}" if peer else ""


def fault_place(error: BaseException | None) -> str:
    """File and line that raised, without the folders above."""
    frames = traceback.extract_tb(error.__traceback__) if error is not None else []
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
