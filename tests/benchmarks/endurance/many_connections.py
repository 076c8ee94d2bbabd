"""Very many short connections, tunnels and refusals, and the memory of the service along the way.

Next: check.py (how many).
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from tests.support import proc_figures
from tests.support.byte_stream import connect, read_exactly, read_until
from tests.support.service import Service
from tests.support.service_answers import connect_request

CLIENTS = 4
_REFUSED_EVERY = 10  # each tenth is for a host that is not listed
_BACKLOG = 128
# The allocator's own coming and going. A leak of 100 bytes a connection would be seven times this in the end.
FLAT_BYTES = 2 * 1_048_576


@dataclass(frozen=True, slots=True)
class Growth:
    """Resident memory after the first quarter of the connections, and after all."""

    connections: int
    quarter_bytes: int
    whole_bytes: int

    def __str__(self) -> str:
        quarter, whole = self.quarter_bytes / 1_048_576, self.whole_bytes / 1_048_576
        return f"{quarter:.1f} MiB resident after a quarter, {whole:.1f} after all"

    def faults(self) -> list[str]:
        grown = self.whole_bytes - self.quarter_bytes
        if grown <= FLAT_BYTES:
            return []
        return [
            f"memory grew by {grown} bytes over the last three quarters of {self.connections} connections"
        ]


def open_many(service: Service, connections: int) -> Growth:
    """One after the other for each of a few clients."""
    with _one_byte_origin() as address:
        _open(service, address, connections // 4)
        quarter = proc_figures.rss_bytes(service.pid)
        _open(service, address, connections - connections // 4)
        return Growth(connections, quarter, proc_figures.rss_bytes(service.pid))


def _open(service: Service, address: str, connections: int) -> None:
    tunnel, refused = connect_request(address, "1.1", ()), connect_request("evil.test:443", "1.1", ())

    def client() -> None:
        for number in range(connections // CLIENTS):
            with connect(service.proxy_port) as sock:
                if number % _REFUSED_EVERY == 0:
                    sock.sendall(refused)
                    assert read_until(sock, b"\r\n").startswith(b"HTTP/1.1 403 ")
                    continue
                sock.sendall(tunnel)
                assert read_until(sock, b"\r\n\r\n").startswith(b"HTTP/1.1 200 ")
                sock.sendall(b"x")
                assert read_exactly(sock, 1) == b"x"

    with ThreadPoolExecutor(CLIENTS) as pool:
        for done in [pool.submit(client) for _ in range(CLIENTS)]:
            done.result()


@contextmanager
def _one_byte_origin() -> Iterator[str]:
    """Echoes one byte of each connection in its turn: no thread and no record of any, for they are many."""
    with socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG) as listener:
        thread = threading.Thread(target=_echo_bytes, args=(listener,), name="support-one-byte")
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
            thread.join()


def _echo_bytes(listener: socket.socket) -> None:
    while True:
        try:
            sock, _ = listener.accept()
        except OSError:
            return
        with sock:
            sock.sendall(sock.recv(1))
