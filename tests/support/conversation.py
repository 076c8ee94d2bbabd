"""One connection at a provider: TLS handshake, then request after request until someone ends it.

It decides nothing about answers; the provider gives one for each request.
See provider.py for what tests call, exchange.py for what a script can do.
"""

from __future__ import annotations

import re
import selectors
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Protocol

from tests.support.byte_stream import End, end_direction
from tests.support.exchange import Exchange, ProviderStopped, Stage
from tests.support.loopback_server import IO_LIMIT_S
from tests.support.recorded import (
    Incoming,
    PeerLeft,
    RecordedConnection,
    RecordedRequest,
    keep,
    recorded_request,
)

Script = Callable[[Exchange], None]
# Bytes: read the body, send these, and close when their head says Connection: close.
Answer = bytes | Script
_SAYS_CLOSE = re.compile(rb"\r\nconnection:[ \t]*close[ \t]*\r\n", re.IGNORECASE)
_handshake = threading.local()  # SNI callbacks run in the thread that shakes hands


class Director(Stage, Protocol):
    """What a conversation needs of the provider."""

    def answer_for(self, request: RecordedRequest) -> Answer: ...

    def idle(self, connection: int, wake: socket.socket | None) -> None: ...


def note_server_name(sock: object, name: str | None, context: ssl.SSLContext) -> None:
    """The ``sni_callback`` of a provider's context."""
    _handshake.server_name = name


def shake_hands(sock: ssl.SSLSocket, record: RecordedConnection) -> bool:
    """The server's side of a handshake; false when it failed, which is then recorded."""
    _handshake.server_name = None
    try:
        sock.do_handshake()
    except OSError as error:  # SSLError is one; so are a reset and the time limit
        record.tls_error = str(error) or repr(error)
        return False
    finally:
        record.server_name = _handshake.server_name
    record.alpn = sock.selected_alpn_protocol()
    return True


class Conversation:
    def __init__(self, director: Director, sock: socket.socket, record: RecordedConnection) -> None:
        self._director = director
        self._sock = sock
        self._record = record
        self._incoming = Incoming(sock, self._note)

    def run(self, max_requests: int | None) -> None:
        """Until the end of the connection. Raises what a script did wrong, and only that."""
        try:
            number = 0
            while self._await_octets():
                exchange = self._one_request(number)
                number += 1
                if exchange.finished or number == max_requests:
                    break
            end_direction(self._sock)
        except PeerLeft:
            self._record.end = End.EOF
            end_direction(self._sock)
        except (ConnectionResetError, BrokenPipeError):
            self._record.end = End.RESET
        except (OSError, ProviderStopped):
            return  # the time limit, or the provider is being stopped

    def _one_request(self, number: int) -> Exchange:
        raw_head = self._incoming.until(b"\r\n\r\n")
        request = recorded_request(self._record.index, number, raw_head)
        answer = self._director.answer_for(request)
        exchange = Exchange(self._director, self._sock, self._incoming, self._record, request)
        if isinstance(answer, bytes):
            exchange.read_body()
            exchange.send(answer)
        else:
            answer(exchange)
        if exchange.finished:
            return exchange
        exchange.read_body()
        if _says_close(raw_head) or (isinstance(answer, bytes) and _says_close(answer)):
            exchange.close()
        return exchange

    def _await_octets(self) -> bool:
        """Wait, idle, for the next request; False when the connection is to be closed instead."""
        pending = isinstance(self._sock, ssl.SSLSocket) and self._sock.pending() > 0
        if self._incoming.buffered or pending:
            return True
        ours, wake = socket.socketpair()
        self._director.idle(self._record.index, wake)
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self._sock, selectors.EVENT_READ)
                selector.register(ours, selectors.EVENT_READ)
                ready = {key.fileobj for key, _ in selector.select(IO_LIMIT_S)}
        finally:
            self._director.idle(self._record.index, None)
            ours.close()
            wake.close()
        return self._sock in ready and ours not in ready

    def _note(self, block: bytes) -> None:
        with self._director.changed:
            self._record.raw_count += len(block)
            keep(self._record.kept_raw, block)
            self._director.changed.notify_all()


def _says_close(raw: bytes) -> bool:
    head = raw.partition(b"\r\n\r\n")[0] + b"\r\n"
    return _SAYS_CLOSE.search(head) is not None
