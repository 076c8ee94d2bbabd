"""A threaded TCP server on loopback: a thread for each connection, all of them ended at exit.

What is said on a connection is a subclass's business; here are only threads, sockets and counting.
Origins (origins.py) and the provider (provider.py) are the two kinds.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import threading
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Self

from tests.support.deadline import DEFAULT_S, Deadline, wait_for

_BACKLOG = 1024  # tests open hundreds of tunnels at once
IO_LIMIT_S = 60.0  # no blocking call of a server outlives a test by more than this


class LoopbackServer:
    """A context manager; subclasses say in ``serve`` what happens on one connection."""

    def __init__(self, bind: str = "127.0.0.1", port: int = 0, backlog: int = _BACKLOG) -> None:
        v6 = ipaddress.ip_address(bind).version == 6
        self.host = bind
        self._listener = socket.socket(socket.AF_INET6 if v6 else socket.AF_INET)
        try:
            # The same port on another address may be in TIME_WAIT from an earlier test.
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listener.bind((bind, port))
            self._listener.listen(backlog)
        except OSError:
            self._listener.close()
            raise
        self.port: int = self._listener.getsockname()[1]
        self.address = f"[{bind}]:{self.port}" if v6 else f"{bind}:{self.port}"
        self.changed = threading.Condition()  # notified whenever something is recorded
        self.stopping = False
        self._accepted = 0
        self._live: dict[int, socket.socket] = {}
        self._threads: list[threading.Thread] = []
        self._gates: set[threading.Event] = set()
        self._acceptor = self._thread(self._accept_all, "accept")

    def serve(self, sock: socket.socket, index: int) -> None:
        """Run one connection in its own thread; ``index`` counts from 0. The caller closes."""
        raise NotImplementedError

    def accepted(self, sock: socket.socket, index: int) -> None:
        """A connection has come; called under ``changed``, in order, before ``serve``."""

    @property
    def connections_accepted(self) -> int:
        with self.changed:
            return self._accepted

    def wait_for_connections(self, n: int, timeout_s: float = DEFAULT_S) -> None:
        what = f"{n} connections to {self.address}"
        wait_for(self.changed, lambda: self._accepted >= n, timeout_s, what)

    def pass_gate(self, gate: threading.Event) -> bool:
        """Wait for a test to open ``gate``; False when the server stops or time runs out."""
        with self.changed:
            if self.stopping:
                return False
            self._gates.add(gate)
        return gate.wait(IO_LIMIT_S) and not self.stopping

    def replace_socket(self, index: int, sock: socket.socket) -> None:
        """``sock`` (TLS) stands for connection ``index`` from now on."""
        with self.changed:
            self._live[index] = sock

    def __enter__(self) -> Self:
        self._acceptor.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop accepting, end all connections, wait for their threads. May be called twice."""
        with self.changed:
            self.stopping = True
            self.changed.notify_all()
            for gate in self._gates:
                gate.set()
        _end(self._listener)
        self._poke_acceptor()
        deadline = Deadline(DEFAULT_S, f"the threads of the server on {self.address}")
        if self._acceptor.is_alive():
            self._acceptor.join(deadline.remaining_s())
        self._listener.close()
        with self.changed:
            live, threads = list(self._live.values()), list(self._threads)
        for sock in live:
            _end(sock)
        for thread in threads:
            thread.join(deadline.remaining_s())

    def _poke_acceptor(self) -> None:
        """Outside Linux a shutdown does not wake accept(); a connection does."""
        with contextlib.suppress(OSError):
            socket.create_connection((self.host, self.port), 0.5).close()

    def _accept_all(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            with self.changed:
                if self.stopping:
                    sock.close()
                    return
                index, self._accepted = self._accepted, self._accepted + 1
                self._live[index] = sock
                self.accepted(sock, index)
                thread = self._thread(partial(self._serve_one, sock, index), f"peer-{index}")
                self._threads = [t for t in self._threads if t.is_alive()] + [thread]
                thread.start()
                self.changed.notify_all()

    def _serve_one(self, sock: socket.socket, index: int) -> None:
        sock.settimeout(IO_LIMIT_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self.serve(sock, index)
        finally:
            with self.changed:
                self._live.pop(index, sock).close()
                self.changed.notify_all()

    def _thread(self, run: Callable[[], None], what: str) -> threading.Thread:
        name = f"support-{type(self).__name__}-{what}"
        return threading.Thread(target=run, name=name, daemon=True)


def _end(sock: socket.socket) -> None:
    """Wake whoever blocks on ``sock``, without closing it under their feet."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(sock, socket.SHUT_RDWR)  # not SSLSocket's, which forgets its TLS
