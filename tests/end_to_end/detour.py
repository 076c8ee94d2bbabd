"""A local way to a host that the proxy itself would not dial here, for machines in odd networks.

Some machines reach their package index by a name whose address the proxy refuses whatever is listed
(documentation ranges), or through a proxy of their own. There a loopback address stands for the host.
Used by test_package_index.py; names are led here by the stub name server.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import ssl
import urllib.parse
import urllib.request

from tests.support.byte_stream import BLOCK_BYTES
from tests.support.http import read_head
from tests.support.loopback_server import IO_LIMIT_S, LoopbackServer
from tests.support.service_answers import connect_request

_DIAL_S = 15.0


class Detour(LoopbackServer):
    """Listens on ``bind`` and carries every connection to ``host:port``, as this machine gets there.

    Raises OSError where the port, most likely 443, cannot be bound.
    """

    def __init__(self, host: str, port: int, bind: str) -> None:
        super().__init__(bind, port)
        self._far_host = host

    def serve(self, sock: socket.socket, index: int) -> None:
        with contextlib.suppress(OSError), self._dial() as far:
            _carry(sock, far)

    def _dial(self) -> socket.socket:
        proxy = ambient_proxy(self._far_host)
        if proxy is None:
            return socket.create_connection((self._far_host, self.port), _DIAL_S)
        sock = socket.create_connection((proxy.hostname or "", proxy.port or 80), _DIAL_S)
        if proxy.scheme == "https":
            sock = ssl.create_default_context().wrap_socket(sock, server_hostname=proxy.hostname)
        sock.sendall(connect_request(f"{self._far_host}:{self.port}"))
        if read_head(sock, _DIAL_S).status != 200:
            sock.close()
            raise ConnectionRefusedError("the machine's own proxy refuses")
        return sock


def ambient_proxy(host: str) -> urllib.parse.SplitResult | None:
    """The proxy that this machine uses for https to ``host``, if any."""
    url = urllib.request.getproxies().get("https")
    if not url or urllib.request.proxy_bypass(host):
        return None
    return urllib.parse.urlsplit(url if "//" in url else f"http://{url}")


def _carry(near: socket.socket, far: socket.socket) -> None:
    """Both directions, until either ends: enough for a client that asks and reads."""
    with selectors.DefaultSelector() as selector:
        selector.register(near, selectors.EVENT_READ, far)
        selector.register(far, selectors.EVENT_READ, near)
        while ready := selector.select(IO_LIMIT_S):
            for key, _ in ready:
                source: socket.socket = near if key.data is far else far
                block = source.recv(BLOCK_BYTES)
                if not block:
                    return
                key.data.sendall(block)
