"""A provider behind TLS that shakes hands late: who dials it waits, until the test opens the gate.

No expectations here. Used by the tests of what may change while a request waits for its upstream.
"""

from __future__ import annotations

import socket
import ssl
import threading

from tests.support.provider import Provider


class HeldUpstream(Provider):
    """Connections from ``held_from`` on are accepted, and shake hands once ``gate`` is open."""

    def __init__(self, tls: ssl.SSLContext, *, held_from: int = 0) -> None:
        super().__init__(tls=tls)
        self.gate = threading.Event()
        self._held_from = held_from

    def serve(self, sock: socket.socket, index: int) -> None:
        if index >= self._held_from:
            self.pass_gate(self.gate)
        super().serve(sock, index)
