"""What the service answers on its two ports, and the bytes of what it is asked.

Values only; sockets to the data port are opened by service.py.
"""

from __future__ import annotations

import http.client
import json as json_text
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.support.http import Head, header_value


class ConnectAnswer(NamedTuple):
    """What a CONNECT got. After a 200 ``sock`` is the tunnel; the service closes it at its end."""

    status_line: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    sock: socket.socket

    @property
    def status(self) -> int:
        return Head(b"", self.status_line, self.headers).status

    @property
    def reason(self) -> str:
        """The reason phrase, whole."""
        return Head(b"", self.status_line, self.headers).reason

    @property
    def error(self) -> str | None:
        """The ``X-Proxy-Error`` code."""
        return self.value("X-Proxy-Error")

    def value(self, name: str) -> str | None:
        return header_value(self.headers, name)

    def json(self) -> Any:
        return json_text.loads(self.body)


@dataclass(frozen=True, slots=True)
class ControlAnswer:
    status: int
    reason: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def value(self, name: str) -> str | None:
        return header_value(self.headers, name)

    def json(self) -> Any:
        return json_text.loads(self.body)


def connect_request(target: str, http_version: str = "1.1", headers: Iterable[tuple[str, str]] = ()) -> bytes:
    """A CONNECT head; a Host line is added for HTTP/1.1 when ``headers`` has none."""
    lines = list(headers)
    if http_version == "1.1" and "host" not in (name.lower() for name, _ in lines):
        lines.insert(0, ("Host", target))
    head = f"CONNECT {target} HTTP/{http_version}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in lines) + "\r\n"
    return head.encode("latin-1")


def ask_control(
    port: int,
    method: str,
    path: str,
    headers: Mapping[str, str],
    body: bytes | None,
    timeout_s: float,
) -> ControlAnswer:
    """One call of the control API on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    try:
        connection.request(method, path, body, dict(headers))
        answer = connection.getresponse()
        lines = tuple(answer.getheaders())
        return ControlAnswer(answer.status, answer.reason, lines, answer.read())
    finally:
        connection.close()
