"""Stands in for the proxy at an attach socket, for tests of those who attach.

Says what it is told to, byte for byte; the real one is in proxy/attachments.py.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

from egress_proxy.core.attach import Report, Welcome, encode_answer, encode_report
from tests.support.deadline import DEFAULT_S

WELCOME = encode_answer(Welcome("sandbox-1", 8899))
REPORT = encode_report(Report())


@contextlib.contextmanager
def attach_peer(folder: Path, *answers: bytes) -> Iterator[str]:
    """The path of a socket where each line, or end, that comes is answered with the next of ``answers``."""
    path = str(folder / "attach.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        thread = threading.Thread(target=_serve, args=(listener, answers), daemon=True)
        thread.start()
        try:
            yield path
        finally:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            thread.join(DEFAULT_S)


def _serve(listener: socket.socket, answers: tuple[bytes, ...]) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(DEFAULT_S)
                for answer in answers:
                    _hear(connection)
                    connection.sendall(answer)


def _hear(connection: socket.socket) -> None:
    """One message; a descriptor that comes with it is taken and closed."""
    _, descriptors, _, _ = socket.recv_fds(connection, 65_536, 4)
    for descriptor in descriptors:
        os.close(descriptor)
