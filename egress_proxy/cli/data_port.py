"""Asks a port whether our proxy is there, the one question that the marker depends on.

Next: env.py (asks).
"""

import contextlib
import socket
import time

from egress_proxy.core.host import Target, host_text

# On loopback an answer takes a millisecond; a busy machine gets a thousand times that.
DEADLINE_S = 2.0
_HEAD_LIMIT_BYTES = 16_384


def answers_as_proxy(target: Target, timeout_s: float = DEADLINE_S) -> bool:
    """Whether a refusal of ours comes back; another program's answer has no X-Proxy-Error."""
    end = time.monotonic() + timeout_s
    address = (host_text(target.host).strip("[]"), target.port)
    # For the proxy itself, which refuses it and writes nothing down (proxy/intake.py: is_probe).
    request = f"OPTIONS * HTTP/1.1\r\nHost: {target}\r\nMax-Forwards: 0\r\nConnection: close\r\n\r\n"
    head = b""
    with contextlib.suppress(OSError), socket.create_connection(address, timeout_s) as connection:
        connection.sendall(request.encode())
        while b"\r\n\r\n" not in head and len(head) < _HEAD_LIMIT_BYTES:
            connection.settimeout(max(end - time.monotonic(), 0.001))
            part = connection.recv(_HEAD_LIMIT_BYTES)
            if not part or time.monotonic() > end:
                break
            head += part
    return _is_ours(head)


def _is_ours(head: bytes) -> bool:
    lines = head.partition(b"\r\n\r\n")[0].split(b"\r\n")
    names = {line.partition(b":")[0].lower() for line in lines[1:]}
    return lines[0].startswith(b"HTTP/1.1 ") and b"x-proxy-error" in names
