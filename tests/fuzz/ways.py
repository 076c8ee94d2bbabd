"""One input by five ways: in one segment, byte by byte, in three pieces, after a kept request, relay=loop.

Whoever cuts a request up, or sends it later, must not get another answer. Here it is played and what was seen
is written down, nothing is judged. Next: differences.py (compares), request_inputs.py (what is played).
"""

from __future__ import annotations

import contextlib
import enum
import re
import socket
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from egress_proxy.core.access import InjectRoute, Scheme
from egress_proxy.core.events import Decided, EndCause, Ended, Event, Faulted
from egress_proxy.core.host import parse_host
from egress_proxy.proxy.client_tokens import ClientTokens
from egress_proxy.vault.secret import Secret
from tests.support.byte_stream import End, end_direction, read_until_end
from tests.support.data_port import DataPort, credential
from tests.support.dns_stub import DnsStub
from tests.support.http import read_response
from tests.support.origins import EchoOrigin
from tests.support.provider import Provider

ECHO = b"@ECHO@"  # in an input: address and port of a host that is listed and echoes
OWN = b"@OWN@"  # the proxy's own
LISTED = "ok.test"  # resolves to the echoing host, on any port
TOKEN = "token-of-the-fuzzer"
_KEPT_REQUEST = (
    b"GET http://127.0.0.1/kept HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    b"Proxy-Authorization: Bearer %s\r\n\r\n" % TOKEN.encode()
)
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
_MOST_PIECES = 400  # of a long input: more would only take longer
_PATIENCE_S = 15.0
_SETTLE_S = 0.5
# Of a refusal: its id, and the length that it adds to.
_OF_THE_RUN = re.compile(rb'(?<="request_id": ")[^"]*|(?<=Content-Length: )\d+(?=\r\nX-Proxy-Error)')


class Way(enum.StrEnum):
    ONE = "one segment"
    BYTES = "byte by byte"
    THREE = "three pieces"
    KEPT = "after a kept request"
    LOOP = "relay loop"


@dataclass(frozen=True, slots=True)
class Seen:
    """What one way came to. Equal where the ways agree: no ids, no times, no ports of one run."""

    answer: bytes  # all that the client got
    end: End
    lines: tuple[str, ...]  # decisions, and the ends of those that were allowed
    injected: tuple[bytes, ...]  # whole requests that came to the rule's upstream
    tunnelled: tuple[bytes, ...]  # what came to the echoing host
    faults: tuple[str, ...]  # of the proxy's own


class Ways:
    """``with Ways() as ways: ways.play(data)``: two data ports, and what is behind them."""

    def __init__(self, *, needs_token: bool = False) -> None:
        self._needs_token = needs_token
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with self._stack:
            dns = self._stack.enter_context(DnsStub())
            dns.add(LISTED, "127.0.0.1")
            self.echo = self._stack.enter_context(EchoOrigin())
            self.upstream = self._stack.enter_context(Provider())
            self.upstream.otherwise(_ANSWER)
            self._ports = {
                relay: self._stack.enter_context(self._data_port(relay, dns)) for relay in ("epoll", "loop")
            }
            self._stack = self._stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def play(self, template: bytes) -> dict[Way, Seen]:
        """``template``: the input, with ECHO and OWN for what differs from run to run."""
        return {way: self._play(template, way) for way in Way}

    def _play(self, template: bytes, way: Way) -> Seen:
        port = self._ports["loop" if way is Way.LOOP else "epoll"]
        data = template.replace(ECHO, self.echo.address.encode()).replace(OWN, str(port.own).encode())
        with port.open(_PATIENCE_S) as sock:
            if way is Way.KEPT:
                sock.sendall(_KEPT_REQUEST)
                assert read_response(sock).body == b"hello"
                self._settle(port, len(port.log.all) - 2)
            events = len(port.log.all)
            requests, connections = len(self.upstream.requests), self.echo.connections_accepted
            with contextlib.suppress(ConnectionError):  # it was refused meanwhile: the answer counts
                self._send(port, sock, data, way)
                end_direction(sock)
            answer, end = read_until_end(sock, _PATIENCE_S)
        happened = self._settle(port, events)
        return Seen(
            self._without_ports(_OF_THE_RUN.sub(b"", answer), port),
            end,
            tuple(sorted(line for event in happened if (line := self._line(event, port)))),
            tuple(
                self._without_ports(one.raw_head, port) + one.body
                for one in self.upstream.requests[requests:]
                if one.whole  # what a reset has overtaken is as it may be
            ),
            tuple(sorted(self._echoed(at) for at in range(connections, self.echo.connections_accepted))),
            tuple(f"{event.error} in {event.where}" for event in happened if isinstance(event, Faulted)),
        )

    def _data_port(self, relay: str, dns: DnsStub) -> DataPort:
        rule = InjectRoute("provider", parse_host("127.0.0.1"), 80, self.upstream.port, Scheme.HTTP)
        return DataPort(
            expect_faults=True,  # they are part of what is seen
            relay=relay,
            allow=["127.0.0.1:*"],
            private=[f"{LISTED}:*"],
            deny=["denied.test"],
            routes=[rule],
            credentials={"provider": credential("sk-of-the-fuzzer")},
            clients=ClientTokens(Secret(TOKEN) if self._needs_token else None),
            resolver=dns.address,
        )

    def _send(self, port: DataPort, sock: socket.socket, data: bytes, way: Way) -> None:
        count = {Way.BYTES: min(len(data), _MOST_PIECES), Way.THREE: 3}.get(way, 1)
        for at in range(count):
            sock.sendall(data[len(data) * at // count : len(data) * (at + 1) // count])
            if count > 1:
                # A turn of the loop, and one for what that woke: what was sent has been read.
                port.call(lambda: None)
                port.call(lambda: None)

    def _settle(self, port: DataPort, since: int) -> list[Event]:
        """All that happened ``since``, once every allowed decision has its end, or after a while."""
        until = time.monotonic() + _SETTLE_S
        while True:
            port.call(lambda: None)
            happened = port.log.all[since:]
            begun = {e.request_id for e in happened if isinstance(e, Decided) and e.reason is None}
            if begun <= {e.request_id for e in happened if isinstance(e, Ended)} or time.monotonic() > until:
                return happened
            time.sleep(0.001)

    def _echoed(self, connection: int) -> bytes:
        with contextlib.suppress(TimeoutError):
            self.echo.wait_for_end(connection, _SETTLE_S)
        return self.echo.received(connection)

    def _line(self, event: Event, port: DataPort) -> str | None:
        match event:
            case Decided():
                text = f"{event.verdict} {event.method} {event.target} {event.door} {event.status}"
                text += f" {event.reason} {event.rule} {event.detail}"
            case Ended():
                # What had been carried when the client broke off depends on where it broke off.
                carried = f"{event.bytes_out} {event.bytes_in}" if event.cause is EndCause.DONE else ""
                text = (
                    f"end {event.target} {event.door} {event.cause} {event.status} {event.reason} {carried}"
                )
            case _:
                return None
        return self._without_ports(text.encode(), port).decode()

    def _without_ports(self, octets: bytes, port: DataPort) -> bytes:
        """They are others in each run, and with each relay."""
        for number, name in (
            (self.echo.port, b"ECHO"),
            (port.port, b"OWN"),
            (self.upstream.port, b"UPSTREAM"),
        ):
            octets = octets.replace(b"%d" % number, name)
        return octets
