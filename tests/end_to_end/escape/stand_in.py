"""A proxy as sandboxes need one: takes their listeners by the attach protocol, and refuses every request.

One thread, one selector. The real service plays this part in test_battery_service.py. Next: sandboxes.py.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from egress_proxy.core.attach import HAND_OUT, LINE_LIMIT, TAKEN, Welcome, encode_answer, parse_hello

REFUSAL = b"HTTP/1.1 403 Refused\r\ncontent-length: 0\r\n\r\n"
_END_S = 5.0


class StandInProxy:
    """``port``: what it says that its data port is."""

    def __init__(self, path: str, port: int) -> None:
        self.path = path
        self._greeted = 0
        self._port = port
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        os.chmod(path, 0o600)
        self._listener.listen(64)
        self._wake, self._woken = socket.socketpair()
        self._adopted: dict[socket.socket, socket.socket] = {}
        self._watch(self._listener, self._greet)
        self._thread = threading.Thread(target=self._serve, name="stand-in proxy")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wake.close()
        self._thread.join(_END_S)
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._selector.close()
        os.unlink(self.path)

    def _watch(self, sock: socket.socket, act: Callable[[socket.socket], None]) -> None:
        self._selector.register(sock, selectors.EVENT_READ, act)

    def _serve(self) -> None:
        self._selector.register(self._woken, selectors.EVENT_READ, None)
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    return
                with contextlib.suppress(ConnectionError):
                    key.data(key.fileobj)

    def _forget(self, sock: socket.socket) -> None:
        self._selector.unregister(sock)
        sock.close()

    def _greet(self, listener: socket.socket) -> None:
        sandbox = listener.accept()[0]
        parse_hello(sandbox.recv(LINE_LIMIT))
        self._greeted += 1
        sandbox.sendall(encode_answer(Welcome(f"sandbox-{self._greeted}", self._port)))
        self._watch(sandbox, self._adopt)

    def _adopt(self, sandbox: socket.socket) -> None:
        """Its listener, or its end."""
        message, descriptors, _, _ = socket.recv_fds(sandbox, 1, 4)
        adopted = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        if message == HAND_OUT and len(adopted) == 1 and sandbox not in self._adopted:
            self._adopted[sandbox] = adopted[0]
            self._watch(adopted[0], self._accept)
            sandbox.sendall(TAKEN)
            return
        for sock in adopted:
            sock.close()
        if sandbox in self._adopted:
            self._forget(self._adopted.pop(sandbox))
        self._forget(sandbox)

    def _accept(self, listener: socket.socket) -> None:
        self._watch(listener.accept()[0], self._refuse)

    def _refuse(self, client: socket.socket) -> None:
        try:
            if client.recv(LINE_LIMIT):
                client.sendall(REFUSAL)
        finally:
            self._forget(client)
