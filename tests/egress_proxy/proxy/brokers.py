"""A data port with one inject rule before a scripted provider, and clients that speak to it by either door.

No expectations here. Used by the tests of exchanges, of forwarding and of the pool beside this file.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from egress_proxy.core.access import InjectRoute, Scheme
from egress_proxy.core.events import Decided, Ended
from egress_proxy.core.host import parse_host
from tests.support.certificates import CertificateAuthority
from tests.support.data_port import DataPort, credential
from tests.support.deadline import DEFAULT_S, eventually
from tests.support.dns_stub import DnsStub
from tests.support.http import Response, read_head, read_response, request_bytes
from tests.support.provider import Provider
from tests.support.service_answers import connect_request

SECRET = "sk-CANARY-123"
RULE = "inject:provider"
PLAIN_HOST = "127.0.0.1"
API_HOST = "api.ok.example"
DOORS = ["absolute", "inside"]  # METHOD http://HOST/path; CONNECT HOST:80, then METHOD /path

HeaderLines = Iterable[tuple[str, str]]


def rule(
    upstream_port: int,
    *,
    name: str = "provider",
    host: str = PLAIN_HOST,
    scheme: Scheme = Scheme.HTTP,
    **options: Any,
) -> InjectRoute:
    return InjectRoute(name, parse_host(host), 80, upstream_port, scheme, **options)


def broker(
    provider: Provider, *, secret: str = SECRET, route: InjectRoute | None = None, **options: Any
) -> DataPort:
    """The rule's upstream is the provider, in plain HTTP on loopback."""
    route = route or rule(provider.port)
    options.setdefault("credentials", {route.name: credential(secret)})
    return DataPort(routes=[route], **options)


def secured_broker(
    provider_port: int, ca: CertificateAuthority, dns: DnsStub, host: str = API_HOST, **options: Any
) -> DataPort:
    """The rule's upstream is reached over TLS, under a name that a private entry lets lie on loopback."""
    dns.add(host, PLAIN_HOST)
    route = rule(provider_port, host=host, scheme=Scheme.HTTPS)
    return DataPort(
        routes=[route],
        credentials={route.name: credential(SECRET)},
        private=[f"{host}:{provider_port}"],
        resolver=dns.address,
        trust=ca.client_context,
        **options,
    )


@dataclass(slots=True)
class Caller:
    """One client connection; ``origin`` is what stands before the path in its requests."""

    sock: socket.socket
    origin: str
    host: str = PLAIN_HOST

    def send(self, method: str, path: str = "/", headers: HeaderLines = (), body: bytes = b"") -> None:
        lines = [("Host", self.host), *headers]
        self.sock.sendall(request_bytes(method, self.origin + path, lines, body))

    def ask(
        self,
        method: str,
        path: str = "/",
        headers: HeaderLines = (),
        body: bytes = b"",
        timeout_s: float = DEFAULT_S,
    ) -> Response:
        self.send(method, path, headers, body)
        return read_response(self.sock, method, timeout_s)


def call(port: DataPort, door: str = "absolute", host: str = PLAIN_HOST) -> Caller:
    """A client that has come to the rule's host by this door."""
    sock = port.open()
    if door == "absolute":
        return Caller(sock, f"http://{host}", host)
    sock.sendall(connect_request(f"{host}:80"))
    head = read_head(sock)
    assert head.status == 200, head.raw
    return Caller(sock, "", host)


def ended(port: DataPort) -> Ended:
    """The one end of an injected request; a CONNECT that it came through has an end of its own."""

    def found() -> list[Ended]:
        connects = {event.request_id for event in port.log.of(Decided) if event.method == "CONNECT"}
        return [event for event in port.log.of(Ended) if event.request_id not in connects]

    eventually(lambda: bool(found()), what="the end of a request")
    (only,) = found()
    return only
