"""A response that the test speaks while it runs: each piece leaves when the test says so.

Made for server-sent events and for streams that break; one object answers one request.
Given to a provider as an answer: ``provider.on("/events", stream)``. Others are in answers.py.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from tests.support.answers import chunk, head
from tests.support.byte_stream import End
from tests.support.deadline import DEFAULT_S
from tests.support.exchange import Exchange

SSE_HEADERS = (("Content-Type", "text/event-stream"), ("Cache-Control", "no-cache"))


class LiveStream:
    """Chunked by default; with ``chunked=False`` the end of the connection is the end."""

    def __init__(self, headers: tuple[tuple[str, str], ...] = SSE_HEADERS, *, chunked: bool = True) -> None:
        framing = (("Transfer-Encoding", "chunked"),) if chunked else ()
        self._head = head(200, (*headers, *framing))
        self._chunked = chunked
        self._lock = threading.Lock()
        self._steps: deque[Callable[[Exchange], None]] = deque()
        self._ready = threading.Event()
        self._begun = threading.Event()
        self._over = threading.Event()

    # For the test, from its own thread. Nothing blocks but the ``wait…`` and ``await…`` calls.

    def wait_begun(self, timeout_s: float = DEFAULT_S) -> None:
        """Wait until the response head has been sent."""
        if not self._begun.wait(timeout_s):
            raise TimeoutError(f"no request for the stream in {timeout_s:g} s")

    def push(self, octets: bytes) -> None:
        """Send this now: as one chunk where the stream is chunked, in one write."""
        framed = chunk(octets) if self._chunked else octets
        self._add(lambda exchange: exchange.send(framed))

    def event(self, text: str) -> bytes:
        """Push one server-sent event; gives the bytes that a client should see."""
        octets = f"data: {text}\n\n".encode()
        self.push(octets)
        return octets

    def finish(self) -> None:
        """End the body properly. A chunked one leaves the connection open for more requests."""

        def end(exchange: Exchange) -> None:
            if self._chunked:
                exchange.send(b"0\r\n\r\n")
            else:
                exchange.close()
            self._over.set()

        self._add(end)

    def drop(self) -> None:
        """End the connection (close_notify, FIN) without the end of the body."""
        self._add(Exchange.close)

    def drop_without_notify(self) -> None:
        self._add(Exchange.close_without_notify)

    def reset(self) -> None:
        self._add(Exchange.abort)

    def await_hangup(self, timeout_s: float = DEFAULT_S) -> End:
        """Wait until the peer ends the connection, and say how. The stream is over then."""
        ends: list[End] = []

        def wait(exchange: Exchange) -> None:
            ends.append(exchange.await_hangup())
            exchange.close()

        self._add(wait)
        if not self._over.wait(timeout_s):
            raise TimeoutError(f"the peer kept the stream open for {timeout_s:g} s")
        return ends[0] if ends else End.RESET  # a push before it may have met the reset

    # For the provider's thread.

    def __call__(self, exchange: Exchange) -> None:
        if self._begun.is_set():
            raise RuntimeError("a LiveStream answers one request")
        exchange.read_body()
        exchange.send(self._head)
        self._begun.set()
        try:
            while not exchange.finished and not self._over.is_set():
                self._next_step(exchange)(exchange)
        finally:
            self._over.set()

    def _next_step(self, exchange: Exchange) -> Callable[[Exchange], None]:
        while True:
            with self._lock:
                if self._steps:
                    return self._steps.popleft()
                self._ready.clear()
            exchange.pass_gate(self._ready)

    def _add(self, step: Callable[[Exchange], None]) -> None:
        with self._lock:
            self._steps.append(step)
            self._ready.set()
