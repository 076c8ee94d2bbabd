"""A scripted HTTP(S) upstream: records every request to the byte, answers exactly as told.

It knows no HTTP rules beyond where a request ends; wrong answers are as easy as right ones.
Answers: answers.py, live_stream.py. What it saw: recorded.py. One connection: conversation.py.
"""

from __future__ import annotations

import socket
import ssl
from types import TracebackType

from tests.support.byte_stream import End
from tests.support.conversation import Answer, Conversation, note_server_name, shake_hands
from tests.support.deadline import DEFAULT_S, eventually, wait_for
from tests.support.loopback_server import LoopbackServer
from tests.support.recorded import RecordedConnection, RecordedRequest

NOT_SCRIPTED = b"HTTP/1.1 404 Not Scripted\r\nContent-Length: 0\r\n\r\n"


class Provider(LoopbackServer):
    """``with Provider(tls=server_context(leaf)) as provider``; without ``tls`` plain HTTP.

    ``max_requests``: a connection is closed, unannounced, after so many answers.
    A script that fails by itself (not by the peer's doing) fails the ``with`` block at its end.
    """

    def __init__(
        self,
        *,
        tls: ssl.SSLContext | None = None,
        bind: str = "127.0.0.1",
        port: int = 0,
        max_requests: int | None = None,
    ) -> None:
        super().__init__(bind, port)
        self._tls = tls
        self._max_requests = max_requests
        self._scripts: dict[str, list[Answer]] = {}
        self._otherwise: list[Answer] = [NOT_SCRIPTED]
        self._requests: list[RecordedRequest] = []
        self._connections: list[RecordedConnection] = []
        self._idle: dict[int, socket.socket] = {}  # connection → its wake-up socket
        self._faults: list[Exception] = []
        if tls is not None:
            tls.sni_callback = note_server_name

    # Before and during the play.

    def on(self, path: str, *answers: Answer) -> None:
        """Requests for ``path`` get these answers in turn; the last repeats. Replaces.

        ``path`` is compared with the whole target first, then with the target without its query.
        """
        with self.changed:
            self._scripts[path] = list(answers)

    def otherwise(self, *answers: Answer) -> None:
        """The answers for every path without its own; 404 unless this is called."""
        with self.changed:
            self._otherwise = list(answers)

    def forget_scripts(self) -> None:
        """Every path is unscripted again; what was seen stays. For tests that share a provider."""
        with self.changed:
            self._scripts.clear()
            self._otherwise = [NOT_SCRIPTED]

    def close_idle(self, timeout_s: float = DEFAULT_S) -> int:
        """Close, cleanly, all connections that wait for a next request; how many these were."""
        with self.changed:
            closing = list(self._idle)
            for wake in self._idle.values():
                wake.send(b"x")
        what = f"{len(closing)} idle connections to close"

        def closed() -> bool:
            return all(self._connections[i].closed for i in closing)

        wait_for(self.changed, closed, timeout_s, what)
        return len(closing)

    def drain(self, timeout_s: float = DEFAULT_S) -> None:
        """Close each connection once it waits for a request, until none is open."""

        def none_is_open() -> bool:
            self.close_idle(timeout_s)
            return self.open_connections == 0

        eventually(none_is_open, timeout_s, f"the connections to {self.address} to end")

    # After, or meanwhile: what was seen.

    @property
    def requests(self) -> list[RecordedRequest]:
        """All requests in the order in which their heads were whole."""
        with self.changed:
            return list(self._requests)

    @property
    def only_request(self) -> RecordedRequest:
        requests = self.requests
        if len(requests) != 1:
            raise AssertionError(f"expected one request, saw {[r.raw_head for r in requests]}")
        return requests[0]

    @property
    def connections(self) -> list[RecordedConnection]:
        """All connections accepted, with those that never became HTTP."""
        with self.changed:
            return list(self._connections)

    @property
    def open_connections(self) -> int:
        with self.changed:
            return sum(not c.closed for c in self._connections)

    @property
    def idle_connections(self) -> int:
        """Connections that wait for a request, the first or another."""
        with self.changed:
            return len(self._idle)

    @property
    def octets_received(self) -> int:
        """Application bytes on all connections; 0 proves that no secret was sent."""
        with self.changed:
            return sum(c.raw_count for c in self._connections)

    def wait_for_requests(
        self, n: int, timeout_s: float = DEFAULT_S, *, whole: bool = True
    ) -> list[RecordedRequest]:
        """Wait for ``n`` requests, with their bodies unless ``whole`` is false; all that came."""

        def arrived() -> bool:
            return sum(r.whole or not whole for r in self._requests) >= n

        wait_for(self.changed, arrived, timeout_s, f"{n} requests at {self.address}")
        return self.requests

    def wait_for_idle(self, n: int = 1, timeout_s: float = DEFAULT_S) -> None:
        """Wait until ``n`` connections are open and wait for a request."""
        what = f"{n} idle connections at {self.address}"
        wait_for(self.changed, lambda: len(self._idle) == n, timeout_s, what)

    def wait_for_closed(self, connection: int = 0, timeout_s: float = DEFAULT_S) -> End:
        """Wait until a connection is gone; how the peer ended it, ``OPEN`` if it was not first."""

        def gone() -> bool:
            return connection < len(self._connections) and self._connections[connection].closed

        wait_for(self.changed, gone, timeout_s, f"the end of connection {connection}")
        return self.connections[connection].end

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        if self._faults and error is None:
            raise ExceptionGroup("scripts of the provider failed", self._faults)
        if self._faults and error is not None:
            error.add_note(f"scripts of the provider failed: {self._faults!r}")

    # Inside: what loopback_server.py and conversation.py call.

    def accepted(self, sock: socket.socket, index: int) -> None:
        self._connections.append(RecordedConnection(index))

    def serve(self, sock: socket.socket, index: int) -> None:
        record = self._connections[index]
        try:
            if self._tls is not None:
                try:
                    sock.getpeername()
                except OSError as error:  # reset before we came to it; wrapping would leak the socket
                    record.tls_error = str(error)
                    return
                sock = self._tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
                self.replace_socket(index, sock)
            with sock:
                if not isinstance(sock, ssl.SSLSocket) or shake_hands(sock, record):
                    Conversation(self, sock, record).run(self._max_requests)
        except Exception as error:
            self._faults.append(error)
        finally:
            with self.changed:
                record.closed = True
                self.changed.notify_all()

    def answer_for(self, request: RecordedRequest) -> Answer:
        """Record ``request`` and give its answer."""
        with self.changed:
            self._requests.append(request)
            self.changed.notify_all()
            answers = self._scripts.get(request.target) or self._scripts.get(request.path)
            answers = answers or self._otherwise
            return answers.pop(0) if len(answers) > 1 else answers[0]

    def idle(self, connection: int, wake: socket.socket | None) -> None:
        """``connection`` waits for a request until a byte to ``wake``; with None it goes on."""
        with self.changed:
            if wake is None:
                self._idle.pop(connection, None)
            else:
                self._idle[connection] = wake
            self.changed.notify_all()
