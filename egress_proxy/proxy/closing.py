"""Ends a refused connection so that the answer arrives.

Closing while the client still sends makes the kernel answer with a reset, and the reset can overtake the
answer (RFC 9112 9.6). No decisions here. Next: connection.py.
"""

import asyncio
import contextlib

from egress_proxy.proxy.stream import SocketStream, StreamReset

# Long enough to read the answer, short enough to hold nobody's slot. An upload that we refused is read and
# thrown away up to the limit.
LINGER_S = 2.0
LINGER_BYTES = 16 * 1024 * 1024


async def close_politely(stream: SocketStream) -> None:
    """Send our end, take in what the client is still sending, then close."""
    left = LINGER_BYTES
    stream.end_output()
    with contextlib.suppress(TimeoutError, StreamReset):
        async with asyncio.timeout(LINGER_S):
            while left > 0 and (data := await stream.receive()):
                left -= len(data)
    stream.close()
