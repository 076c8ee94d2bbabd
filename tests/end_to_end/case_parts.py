"""What several files of test_case_*.py need: raw questions, strict answers, figures that come to rest.

Nothing here knows the product's code; the parts that it uses are in tests/support/.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.byte_stream import End
from tests.support.deadline import Deadline, eventually
from tests.support.http import parse_head
from tests.support.service import Service

_BARRIERS = itertools.count()
REST_S = 0.3  # a figure that has not moved for so long has come to rest


class Refusal(NamedTuple):
    """A refusal as the contract words it: the status and its stable code."""

    status: int
    code: str | None


MALFORMED = Refusal(400, "bad-request")
NOT_LISTED = Refusal(403, "blocked-by-allowlist")
DENIED = Refusal(403, "blocked-by-denylist")
BAD_ADDRESS = Refusal(403, "blocked-by-address")
# A listed name that does not exist: proof that it passed the list, without a connection.
NO_SUCH_NAME = Refusal(502, "upstream-unreachable")


def connect_head(target: bytes | str) -> bytes:
    """A CONNECT head whose Host says something else, which must not matter."""
    octets = target.encode("latin-1") if isinstance(target, str) else target
    return b"CONNECT " + octets + b" HTTP/1.1\r\nHost: x\r\n\r\n"


def refusal(service: Service, octets: bytes, timeout_s: float = 5.0) -> Refusal:
    """What ``octets`` get, once the answer was found whole, framed exactly, and followed by EOF."""
    received, end = service.raw_end(octets, timeout_s)
    return whole_refusal(received, end)


def whole_refusal(received: bytes, end: End) -> Refusal:
    raw_head, blank, body = received.partition(b"\r\n\r\n")
    head = parse_head(raw_head + blank)
    assert end is End.EOF, (head.status_line, end)
    assert head.value("Content-Length") == str(len(body))
    code = head.value("X-Proxy-Error")
    if head.status >= 400:
        said = json.loads(body)
        assert said.keys() == {"error", "reason", "host", "port", "rule", "request_id", "hint"}
        assert said["error"] == code
    return Refusal(head.status, code)


def refusals(service: Service, targets: Iterable[bytes | str]) -> dict[bytes | str, Refusal]:
    return {target: refusal(service, connect_head(target)) for target in targets}


def all_are(wanted: Refusal, targets: Iterable[bytes | str]) -> dict[bytes | str, Refusal]:
    """The expected side of a comparison with ``refusals``."""
    return dict.fromkeys(targets, wanted)


def json_lines(text: str) -> list[dict[str, Any]]:
    """Every whole line of a log as its object; a line that is no object fails."""
    records = [json.loads(line) for line in text.split("\n")[:-1]]
    assert all(isinstance(record, dict) for record in records)
    return records


def decisions(service: Service, at_least: int = 0) -> list[dict[str, Any]]:
    """What the service has logged about requests, once it is so much (lines come by another way)."""

    def logged() -> list[dict[str, Any]]:
        return [r for r in json_lines(service.stderr.text) if r["kind"] == "decision"]

    eventually(lambda: len(logged()) >= at_least, what=f"{at_least} decisions in the log")
    return logged()


def settled_log(service: Service) -> list[str]:
    """The lines of the log, once all that was written so far has come: lines come by another way."""
    mark = f"barrier-{next(_BARRIERS)}.test"
    service.status(f"{mark}:443")
    service.stderr.wait_for(mark)
    return [line for line in service.stderr.text.split("\n")[:-1] if "barrier-" not in line]


def write_config(folder: Path, text: str) -> str:
    """A settings file; its path, for ``--config``."""
    path = folder / "egress.toml"
    path.write_text(text)
    return str(path)


def resting(figure: Callable[[], int], timeout_s: float = 20.0) -> int:
    """The figure once it has stopped moving: a stream that stands because nobody reads."""
    deadline = Deadline(timeout_s, "a figure to come to rest")
    seen, since = figure(), time.monotonic()
    while time.monotonic() - since < REST_S:
        time.sleep(min(0.02, deadline.remaining_s()))
        now = figure()
        if now != seen:
            seen, since = now, time.monotonic()
    return seen


def send_until_stuck(sock: socket.socket, block: bytes, limit_bytes: int) -> int:
    """Send ``block`` again and again until the other side takes no more; how much it took."""
    sent = 0
    sock.settimeout(2 * REST_S)
    with contextlib.suppress(TimeoutError):
        while sent < limit_bytes:
            sent += sock.send(block)
    return sent


def client_hello(name: str | None, alpn: Iterable[str] = ()) -> bytes:
    """The first flight of a TLS client, as OpenSSL writes it."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if protocols := list(alpn):
        context.set_alpn_protocols(protocols)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname=name)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def inject_args(host: str, port: int, resolver: str) -> tuple[str, ...]:
    """One credential rule for a name that lies on loopback here; its value is in ``$SECRET``."""
    rule = ("--inject-host", host, "--inject-secret-env", "SECRET", "--inject-port", str(port))
    # Opts in for the rule's own address; as port 80 it opens no tunnel.
    return (*rule, "--allow-private", f"{host}:80", "--resolver", resolver)


def tls_env(ca_path: Path, secret: str, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a service with that rule: it trusts the tests' authority."""
    return {"SSL_CERT_FILE": str(ca_path), "SECRET": secret, **(more or {})}
