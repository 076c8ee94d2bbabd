"""One service with credential rules and the upstream behind them, shared by the tests of a module.

Every test sees only what came since it began. Used by test_case_inject_*.py.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.end_to_end.case_parts import Refusal, refusal, write_config
from tests.support.answers import fixed
from tests.support.byte_stream import End
from tests.support.certificates import CertificateAuthority, server_context
from tests.support.dns_stub import DnsStub
from tests.support.http import Response, read_response, request_bytes
from tests.support.provider import Provider
from tests.support.recorded import RecordedRequest
from tests.support.service import Service

SECRET = "sk-CANARY/123+abc=="
OTHER_SECRET = "second-secret-of-the-tests"
# Each host has its own rule; all of them lead to one upstream.
HOSTS = ("api.example", "opaque.example", "key.example", "narrow.example")
CONFIG = """
allow_private = ["api.example:80", "opaque.example:80", "key.example:80", "narrow.example:80"]
[[inject]]
name = "provider"
host = "api.example"
upstream_port = {port}
format = "Bearer {{secret}}"
secret = "env:SECRET"
[[inject]]
name = "opaque"
host = "opaque.example"
upstream_port = {port}
secret = "env:SECRET"
opaque_bodies = true
[[inject]]
name = "key"
host = "key.example"
upstream_port = {port}
header = "X-Custom-Key"
secret = "env:OTHER_SECRET"
[[inject]]
name = "narrow"
host = "narrow.example"
upstream_port = {port}
secret = "env:SECRET"
methods = ["GET", "HEAD"]
paths = ["/v1/"]
"""


class Injecting:
    """``begin`` and ``finish`` stand round every test."""

    def __init__(self, service: Service, provider: Provider, dns: DnsStub) -> None:
        self.service = service
        self.provider = provider
        self.dns = dns
        self._earlier = 0

    def begin(self) -> None:
        self._earlier = len(self.provider.requests)
        self.provider.forget_scripts()
        self.provider.otherwise(fixed(b"ok"))

    def finish(self) -> None:
        self.service.close_sockets()
        self.provider.drain()

    @property
    def requests(self) -> list[RecordedRequest]:
        return self.provider.requests[self._earlier :]

    @property
    def only_request(self) -> RecordedRequest:
        requests = self.requests
        assert len(requests) == 1, [request.raw_head for request in requests]
        return requests[0]

    def wait(self, n: int = 1) -> None:
        """Wait until so many requests have come, their bodies apart."""
        self.provider.wait_for_requests(self._earlier + n, whole=False)

    def ask(self, request: bytes, sock: socket.socket | None = None) -> Response:
        """One request on a connection of its own, or on one that is kept."""
        if sock is None:
            return self.service.request(request)
        sock.sendall(request)
        return read_response(sock, request.split(b" ", 1)[0].decode())

    def get(self, path: str = "/", host: str = "api.example", sock: socket.socket | None = None) -> Response:
        return self.ask(request_bytes("GET", f"http://{host}{path}"), sock)

    def refused(self, request: bytes) -> Refusal:
        """The refusal, after which the connection must be closed; nothing may reach the upstream."""
        answer = refusal(self.service, request)
        assert self.requests == []
        return answer

    def cut_off(self, request: bytes) -> bytes:
        """What comes of an answer that must not end clean."""
        received, end = self.service.raw_end(request)
        body = received.partition(b"\r\n\r\n")[2]
        complete = body.endswith(b"0\r\n\r\n")
        assert end is End.RESET or (end is End.EOF and not complete), (received[-100:], end)
        return body


@contextmanager
def open_injecting(
    ca: CertificateAuthority, folder: Path, *args: str, config: str = ""
) -> Iterator[Injecting]:
    with DnsStub() as dns, Provider(tls=server_context(ca.leaf(*HOSTS))) as provider:
        for host in HOSTS:
            dns.add(host, "127.0.0.1")
        path = write_config(folder, CONFIG.format(port=provider.port) + config)
        env = {"SECRET": SECRET, "OTHER_SECRET": OTHER_SECRET, "SSL_CERT_FILE": str(ca.pem_path)}
        with Service("--config", path, "--resolver", dns.address, *args, env=env) as service:
            yield Injecting(service, provider, dns)
