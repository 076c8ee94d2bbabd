"""The host's listeners that attempts aim at: nobody answers, and what came is looked at afterwards.

A connect to loopback is done once it is in the queue, so there is nothing to wait for. Next: ground.py.
"""

from __future__ import annotations

import contextlib
import os
import pty
import select
import socket
from types import TracebackType
from typing import Self

# More than any attempt makes, and all are taken out after each one.
BACKLOG = 1024
# TCP_FASTOPEN: <linux/tcp.h>
FASTOPEN, FASTOPEN_QUEUE = 23, 16


class Listeners:
    """``ports``: numbers of the IP ones; ``sockets``: paths or names of the others."""

    def __init__(self, folder: str, root: str, tag: str) -> None:
        self._stack = contextlib.ExitStack()
        self._watched: dict[str, int] = {}
        self._socks: dict[str, socket.socket] = {}
        self.ports: dict[str, int] = {}
        self.sockets: dict[str, str] = {}
        self._open_ip()
        self._open_unix("unix", f"{folder}/docker.sock")
        self._open_unix("datagram", f"{folder}/datagram.sock", socket.SOCK_DGRAM)
        self._open_unix("unix_root", f"{root}/in.sock")
        self._open_unix("abstract", f"\0{tag}")
        with contextlib.suppress(OSError):
            self._open_unix("unix_run", f"/run/{tag}.sock")
        self._open_pair()
        self._open_terminal()

    def _open_ip(self) -> None:
        for name in ("tcp", "proxy", "control", "second"):
            self._open(name, socket.AF_INET, ("127.0.0.1", 0))
        self._open("same", socket.AF_INET, ("127.0.0.2", self.ports["proxy"]))
        self._open("udp", socket.AF_INET, ("127.0.0.1", 0), socket.SOCK_DGRAM)
        with contextlib.suppress(OSError):
            self._open("tcp6", socket.AF_INET6, ("::1", 0))
            self._open("udp6", socket.AF_INET6, ("::1", 0), socket.SOCK_DGRAM)

    def _open(
        self, name: str, family: int, address: tuple[str, int] | str, kind: int = socket.SOCK_STREAM
    ) -> None:
        sock = socket.socket(family, kind)
        try:
            sock.bind(address)
            if kind == socket.SOCK_STREAM:
                if family != socket.AF_UNIX:
                    sock.setsockopt(socket.IPPROTO_TCP, FASTOPEN, FASTOPEN_QUEUE)
                sock.listen(BACKLOG)
        except OSError:
            sock.close()
            raise
        self._watch(name, self._stack.enter_context(sock))
        if family != socket.AF_UNIX:
            self.ports[name] = sock.getsockname()[1]

    def _watch(self, name: str, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._socks[name] = sock
        self._watched[name] = sock.fileno()

    def _open_unix(self, name: str, path: str, kind: int = socket.SOCK_STREAM) -> None:
        self._open(name, socket.AF_UNIX, path, kind)
        self.sockets[name] = path.lstrip("\0")
        if path.startswith("/run/"):
            self._stack.callback(os.unlink, path)

    def _open_pair(self) -> None:
        """One end is what a careless caller leaves open."""
        ours, theirs = map(self._stack.enter_context, socket.socketpair())
        self._watch("inherited", ours)
        self.left_open = theirs.fileno()

    def _open_terminal(self) -> None:
        """Somebody else's terminal."""
        self._terminal, screen = pty.openpty()
        self.other_terminal = os.ttyname(screen)
        self._stack.callback(os.close, self._terminal)
        self._stack.callback(os.close, screen)
        self._watched["other_terminal"] = self._terminal

    def take(self) -> frozenset[str]:
        """Where something has come in since the last time."""
        names = {descriptor: name for name, descriptor in self._watched.items()}
        poll = select.poll()
        for descriptor in names:
            poll.register(descriptor, select.POLLIN)
        arrived = frozenset(names[descriptor] for descriptor, _ in poll.poll(0))
        for name in arrived:
            self._empty(name)
        return arrived

    def _empty(self, name: str) -> None:
        if name == "other_terminal":
            os.read(self._terminal, 4096)
            return
        sock = self._socks[name]
        listens = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        with contextlib.suppress(BlockingIOError):
            while True:
                if listens:
                    sock.accept()[0].close()
                else:
                    sock.recv(4096)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
