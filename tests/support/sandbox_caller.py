"""A sandbox as the proxy sees it: greets, hands a listener out, ends, and reads the report.

Speaks the protocol of the attach socket in plain bytes, without the product's code; no process is confined.
"""

from __future__ import annotations

import json
import socket
from types import TracebackType
from typing import Any, Self

from tests.support.byte_stream import connect, read_exactly
from tests.support.deadline import DEFAULT_S
from tests.support.http import Head, read_head
from tests.support.service_answers import connect_request


class SandboxCaller:
    """``with SandboxCaller(path) as caller: caller.attach()``; wrong steps can be taken through ``sock``."""

    def __init__(self, path: str, label: str = "a test") -> None:
        self.label = label
        self.client = ""
        self.port = 0  # the one its listener has
        self._handed_out: list[socket.socket] = []
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(DEFAULT_S)
        try:
            self.sock.connect(path)
        except OSError:
            self.sock.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def hello(self) -> Any:
        """Greet; the answer's table."""
        self.sock.sendall(json.dumps({"attach": 1, "label": self.label}).encode() + b"\n")
        return self.read_line()

    def read_line(self) -> Any:
        line = bytearray()
        while not line.endswith(b"\n"):
            octet = self.sock.recv(1)
            if not octet:
                raise ConnectionError(f"the proxy ended it, after {bytes(line)!r}")
            line += octet
        return json.loads(line)

    def welcome(self) -> Any:
        """Greet, and be welcome."""
        answer = self.hello()
        self.client = answer["client"]
        return answer

    def attach(self, port: int = 0) -> Self:
        """Greet and hand over a listener on 127.0.0.1, made in the network namespace of this thread."""
        self.welcome()
        listener = socket.create_server(("127.0.0.1", port))
        self.port = listener.getsockname()[1]
        self.hand_out(listener)
        assert read_exactly(self.sock, 1) == b"K"
        return self

    def hand_out(self, *parts: socket.socket, octets: bytes = b"L") -> None:
        """Send descriptors and close ours, as the launcher does."""
        socket.send_fds(self.sock, [octets], [part.fileno() for part in parts])
        for part in parts:
            part.close()

    def open(self) -> socket.socket:
        """A client's connection to the sandbox's own listener."""
        sock = connect(self.port)
        self._handed_out.append(sock)
        return sock

    def connect(self, target: str, *headers: tuple[str, str]) -> tuple[socket.socket, Head]:
        """CONNECT from inside, and the head of the answer."""
        sock = self.open()
        sock.sendall(connect_request(target, headers=headers))
        return sock, read_head(sock)

    def tunnel(self, target: str) -> socket.socket:
        sock, head = self.connect(target)
        assert head.status == 200, head.raw
        return sock

    def status(self, target: str) -> int:
        sock, head = self.connect(target)
        sock.close()
        return head.status

    def end(self) -> Any:
        """The command is over: the report's table, after which nothing comes."""
        self.sock.shutdown(socket.SHUT_WR)
        report = self.read_line()
        assert self.sock.recv(1) == b""
        return report

    def close(self) -> None:
        for sock in (self.sock, *self._handed_out):
            sock.close()
