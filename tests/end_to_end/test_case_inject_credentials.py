"""Case C36 and contract section 4: whose credentials travel, to which paths, by which methods and doors.

Requests as such: test_case_inject_requests.py.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.end_to_end.case_inject import OTHER_SECRET, SECRET, Injecting, open_injecting
from tests.end_to_end.case_parts import MALFORMED, Refusal
from tests.support.byte_stream import End, read_until, read_until_end
from tests.support.certificates import CertificateAuthority
from tests.support.http import request_bytes

METHOD_POLICY = Refusal(403, "blocked-by-method-policy")


@pytest.fixture(scope="module")
def running(ca: CertificateAuthority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Injecting]:
    with open_injecting(ca, tmp_path_factory.mktemp("inject")) as injecting:
        yield injecting


@pytest.fixture
def inject(running: Injecting) -> Iterator[Injecting]:
    running.begin()
    yield running
    running.finish()


def test_the_clients_credentials_are_removed_in_every_spelling(inject: Injecting) -> None:
    values = iter(f"CLIENT-{n}-VALUE" for n in range(1000))
    keys = ("Authorization", "Cookie", "X-Api-Key", "Api-Key", "X-Goog-Api-Key")
    names = (*keys, "Proxy-Authorization", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Foo")
    spellings = {
        spelled
        for name in names
        for plain in (name, name.replace("-", "_"), name.replace("-", "_", 1))
        for spelled in (plain, plain.lower(), plain.upper(), plain.swapcase())
    }
    lines = [(name, next(values)) for name in sorted(spellings) for _ in range(2)]
    inject.ask(request_bytes("GET", "http://api.example/", [*lines, ("X-Kept", "kept")]))
    request = inject.only_request
    assert b"CLIENT-" not in request.raw_head
    assert request.values("Authorization") == [f"Bearer {SECRET}"]
    assert request.raw_head.count(SECRET.encode()) == 1
    assert request.value("X-Kept") == "kept"
    assert {name.lower() for name, _ in request.headers} == {
        "host",
        "x-kept",
        "accept-encoding",
        "authorization",
    }


def test_the_rules_own_header_is_removed_in_every_spelling(inject: Injecting) -> None:
    names = ("X-Custom-Key", "x-custom-key", "X_Custom_Key", "X-CUSTOM_KEY", "x_custom-key")
    lines = [(name, "CLIENT-VALUE") for name in names]
    inject.ask(request_bytes("GET", "http://key.example/", [*lines, ("Authorization", "CLIENT-VALUE")]))
    request = inject.only_request
    assert b"CLIENT-VALUE" not in request.raw_head
    assert request.values("X-Custom-Key") == [OTHER_SECRET]
    assert SECRET.encode() not in request.raw_head


def test_hop_by_hop_headers_end_here_and_connection_cannot_remove_ours(inject: Injecting) -> None:
    lines = [
        ("Connection", "keep-alive, X-Hop, authorization, Host, X-Custom-Key"),
        ("Connection", "x-hop-two"),
        ("X-Hop", "1"),
        ("x-HOP-two", "2"),
        ("Keep-Alive", "timeout=5"),
        ("TE", "trailers"),
        ("Trailer", "X-T"),
        ("Upgrade", "h2c"),
        ("HTTP2-Settings", "AAMAAABkAAQ"),
        ("X-End-To-End", "3"),
    ]
    inject.ask(request_bytes("GET", "http://api.example/", lines))
    request = inject.only_request
    sent = {name.lower() for name, _ in request.headers}
    assert not sent & {"x-hop", "x-hop-two", "keep-alive", "te", "trailer", "upgrade"}
    assert request.value("X-End-To-End") == "3"
    assert request.values("Authorization") == [f"Bearer {SECRET}"]
    assert request.values("Host") == [f"api.example:{inject.provider.port}"]


def test_a_rule_may_limit_methods_and_paths(inject: Injecting) -> None:
    for path in ("/v1/", "/v1/models", "/v1/a?b=/../"):
        assert inject.get(path, "narrow.example").status == 200, path
    inject.begin()
    for path in ("/", "/v1", "/v2/", "/v1x", "/V1/", "//v1/", "/v1%2f", "/%761/", "/?/v1/"):
        assert inject.refused(request_bytes("GET", f"http://narrow.example{path}")) == METHOD_POLICY, path
    for method in ("POST", "DELETE", "get", "PATCH"):
        assert inject.refused(request_bytes(method, "http://narrow.example/v1/")) == METHOD_POLICY, method
    for climbing in (
        "/v1/../",
        "/v1/./",
        "/v1/..",
        "/v1/%2e%2e/x",
        "/v1/.%2E/",
        "/v1/%2e%2e%2fadmin",
        "/v1/..;/x",
    ):
        assert inject.refused(request_bytes("GET", f"http://narrow.example{climbing}")) == MALFORMED, climbing


# Door two: CONNECT to the rule's host, and plain HTTP inside.


def door_two(inject: Injecting) -> socket.socket:
    sock = inject.service.open()
    sock.sendall(b"CONNECT api.example:80 HTTP/1.1\r\nHost: api.example:80\r\n\r\n")
    assert read_until(sock, b"\r\n\r\n").startswith(b"HTTP/1.1 200 Connection Established\r\n")
    return sock


def test_a_connect_to_the_rules_host_is_terminated_here(inject: Injecting) -> None:
    sock = door_two(inject)
    for path in ("/first", "/second"):
        answer = inject.ask(request_bytes("GET", path, [("Host", "api.example")]), sock)
        assert answer.body == b"ok"
    assert [r.target for r in inject.requests] == ["/first", "/second"]
    assert {r.value("Authorization") for r in inject.requests} == {f"Bearer {SECRET}"}


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (request_bytes("GET", "/", [("Host", "other.example")]), 400),
        (request_bytes("GET", "http://other.example/"), 403),
        (request_bytes("CONNECT", "other.example:443"), 405),
        (request_bytes("CONNECT", "api.example:80"), 405),
        (request_bytes("TRACE", "/", [("Host", "api.example")]), 405),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 0),
        (b"SSH-2.0-test\r\n", 400),
    ],
)
def test_inside_door_two_there_is_no_other_way(inject: Injecting, request_: bytes, status: int) -> None:
    sock = door_two(inject)
    sock.sendall(request_)
    received, end = read_until_end(sock)
    assert end is End.EOF
    assert received.startswith(f"HTTP/1.1 {status} ".encode()) if status else received == b""
    assert inject.requests == []
