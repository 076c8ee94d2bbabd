"""Cases C21, C23, C25 and C28: what a tunnel carries, in which order, and when the 200 is said.

With both ways of driving tunnels. Floods and slow peers: test_case_tunnels_limits.py. TLS names:
test_case_tunnels_names.py. Grants that end: test_case_tunnels_policy.py.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from tests.end_to_end.case_parts import NOT_LISTED, connect_head, whole_refusal
from tests.support.byte_stream import (
    End,
    close_with_reset,
    connect,
    read_exactly,
    read_to_end,
    read_until,
    read_until_end,
)
from tests.support.deadline import eventually
from tests.support.http import parse_head
from tests.support.origins import (
    BannerOrigin,
    EarlyCloseOrigin,
    EchoOrigin,
    HalfCloseOrigin,
    ResetOrigin,
    SinkOrigin,
    SourceOrigin,
    StuckOrigin,
    closed_port,
    pattern,
    pattern_sha256,
)
from tests.support.service import Service

ESTABLISHED = b"HTTP/1.1 200 Connection Established\r\n"
RELAYS = ("epoll", "loop") if sys.platform == "linux" else ("loop",)


@pytest.fixture(scope="module", params=RELAYS)
def running(request: pytest.FixtureRequest) -> Iterator[Service]:
    args = ("--allow", "127.0.0.1:*", "--relay", request.param, "--connect-timeout", "1")
    with Service(*args) as service:
        yield service


@pytest.fixture
def service(running: Service) -> Iterator[Service]:
    yield running
    running.close_sockets()


# C21: bytes behind the head.


@pytest.mark.parametrize("size", [1, 5, 16_384, 65_536, 1_000_000])
def test_early_bytes_go_first_once_and_in_order(service: Service, size: int) -> None:
    early = pattern(size)
    with EchoOrigin() as origin:
        tunnel = service.tunnel(origin.address, extra=early)
        assert read_exactly(tunnel, size) == early
        tunnel.sendall(b"then this")
        assert read_exactly(tunnel, 9) == b"then this"
        assert origin.received() == early + b"then this"


def test_early_bytes_glued_to_a_head_that_comes_byte_by_byte(service: Service) -> None:
    with EchoOrigin() as origin:
        head = connect_head(origin.address)
        sock = service.open()
        for octet in head[:-1]:
            sock.sendall(bytes([octet]))
        sock.sendall(head[-1:] + b"HELLO")
        assert read_until(sock, b"\r\n\r\n").startswith(ESTABLISHED)
        assert read_exactly(sock, 5) == b"HELLO"
        assert origin.received() == b"HELLO"


@pytest.mark.parametrize("cut", [1, 10, -4, -3, -2, -1])
def test_a_head_in_two_pieces_is_one_head(service: Service, cut: int) -> None:
    with EchoOrigin() as origin:
        octets = connect_head(origin.address)
        sock = service.open()
        sock.sendall(octets[:cut])
        sock.sendall(octets[cut:] + b"HELLO")
        assert read_until(sock, b"\r\n\r\n").startswith(ESTABLISHED)
        assert read_exactly(sock, 5) == b"HELLO"


def test_early_bytes_that_look_like_a_request_are_bytes(service: Service) -> None:
    second = connect_head("evil.test:443")
    with EchoOrigin() as origin:
        tunnel = service.tunnel(origin.address, extra=second)
        assert read_exactly(tunnel, len(second)) == second
        assert origin.connections_accepted == 1


def test_what_follows_a_refusal_is_never_a_request(service: Service) -> None:
    with EchoOrigin() as origin:
        smuggled = connect_head(origin.address)
        for first in (connect_head("evil.test:443"), connect_head("evil.test:443") + b"\r\n"):
            received, end = service.raw_end(first + smuggled * 3)
            assert whole_refusal(received, end) == NOT_LISTED
        for bad in (b"GET / HTTP/1.1\r\n\r\n", b"CONNECT :0 HTTP/1.1\r\n\r\n", b"\r\n", b"x\r\n\r\n"):
            received, _ = service.raw_end(bad + smuggled)
            assert b" 200 " not in received
        assert origin.connections_accepted == 0


def test_a_connect_with_a_body_is_400(service: Service) -> None:
    with EchoOrigin() as origin:
        head = connect_head(origin.address)[:-2]
        for framing in (
            b"Content-Length: 5",
            b"Content-Length: 0, 5",
            b"Content-Length: +0",
            b"Content-Length: 0\r\nContent-Length: 5",
            b"Transfer-Encoding: chunked",
            b"Transfer-Encoding: identity",
            b"transfer-encoding: chunked\r\nContent-Length: 0",
        ):
            received, _ = service.raw_end(head + framing + b"\r\n\r\nHELLO")
            assert received.startswith(b"HTTP/1.1 400 "), framing
        assert origin.connections_accepted == 0
        tunnel = service.tunnel(origin.address)  # Content-Length: 0 is no body
        tunnel.close()
        received = b""
        with connect(service.proxy_port) as sock:
            sock.sendall(head + b"Content-Length: 0\r\n\r\nHELLO")
            received = read_until(sock, b"HELLO")
        assert received.startswith(ESTABLISHED)


# C23: the server speaks first.


@pytest.mark.parametrize(
    "banner", [b"SSH-2.0-test\r\n", b"220 mail.example ESMTP\r\n", b"x", pattern(100_000)]
)
def test_a_banner_comes_right_behind_the_head(service: Service, banner: bytes) -> None:
    with BannerOrigin(banner) as origin:
        begun = time.monotonic()
        with connect(service.proxy_port) as sock:
            sock.sendall(connect_head(origin.address))
            head = read_until(sock, b"\r\n\r\n")
            assert head.startswith(ESTABLISHED)
            assert read_exactly(sock, len(banner)) == banner
            assert time.monotonic() - begun < 1
            sock.sendall(b"client")
            assert read_exactly(sock, 6) == b"client"


# C25: half-close, and other ends.


def test_the_answer_to_a_half_closed_client_arrives_whole(service: Service) -> None:
    release = threading.Event()
    with HalfCloseOrigin(b"a" * 40, release) as origin:
        tunnel = service.tunnel(origin.address)
        tunnel.sendall(b"q")
        tunnel.shutdown(socket.SHUT_WR)
        assert origin.wait_for_end() is End.EOF
        assert origin.received() == b"q"
        release.set()
        assert read_to_end(tunnel) == b"a" * 40


def test_early_bytes_and_an_early_end_in_one_go(service: Service) -> None:
    with HalfCloseOrigin(b"a" * 40) as origin:
        sock = service.open()
        sock.sendall(connect_head(origin.address) + b"question")
        sock.shutdown(socket.SHUT_WR)
        assert read_to_end(sock).partition(b"\r\n\r\n")[2] == b"a" * 40
        assert origin.received() == b"question"


def test_a_client_may_go_on_after_the_server_ended_its_direction(service: Service) -> None:
    with EarlyCloseOrigin(b"bye") as origin:
        tunnel = service.tunnel(origin.address)
        assert read_to_end(tunnel) == b"bye"
        tunnel.sendall(b"x" * 100_000)
        tunnel.shutdown(socket.SHUT_WR)
        assert origin.wait_for_end() is End.EOF
        assert origin.received_count() == 100_000


def test_both_directions_carry_bulk_at_once(service: Service) -> None:
    size = 8 * 1_048_576
    with EchoOrigin() as origin:
        tunnel = service.tunnel(origin.address)

        def send() -> None:
            tunnel.sendall(pattern(size))
            tunnel.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        assert read_to_end(tunnel, timeout_s=30) == pattern(size)
        sender.join()
        assert origin.received_sha256() == pattern_sha256(size)


def test_all_bytes_before_the_end_arrive(service: Service) -> None:
    size = 3_000_001
    with SourceOrigin(size) as origin:
        tunnel = service.tunnel(origin.address)
        assert read_to_end(tunnel, timeout_s=30) == pattern(size)


def test_a_reset_of_the_server_is_a_reset_for_the_client(service: Service) -> None:
    with ResetOrigin(after_bytes=1) as origin:
        tunnel = service.tunnel(origin.address, extra=b"x")
        assert read_until_end(tunnel)[1] is End.RESET
    with ResetOrigin(after_bytes=1, answer=b"partial") as origin:
        tunnel = service.tunnel(origin.address, extra=b"x")
        assert read_until_end(tunnel)[1] is End.RESET


def test_a_reset_of_the_client_is_a_reset_for_the_server(service: Service) -> None:
    with SinkOrigin() as origin:
        tunnel = service.tunnel(origin.address, extra=b"x")
        origin.wait_for_bytes(1)
        close_with_reset(tunnel)
        assert origin.wait_for_end() is End.RESET


# C28: the 200.


@pytest.mark.parametrize("version", ["1.1", "1.0"])
def test_the_200_has_its_exact_line_and_no_framing(service: Service, version: str) -> None:
    with EchoOrigin() as origin, connect(service.proxy_port) as sock:
        head = b"CONNECT " + origin.address.encode() + f" HTTP/{version}\r\n\r\n".encode()
        sock.sendall(head)
        raw = read_until(sock, b"\r\n\r\n")
        answer = parse_head(raw)
        assert answer.status_line == "HTTP/1.1 200 Connection Established"
        named = {name.lower() for name, _ in answer.headers}
        assert not named & {"content-length", "transfer-encoding", "x-proxy-error", "connection"}
        sock.sendall(b"works")
        assert read_exactly(sock, 5) == b"works"


def test_no_200_before_the_dial_succeeded(service: Service) -> None:
    with closed_port() as closed:
        received, end = service.raw_end(connect_head(f"127.0.0.1:{closed}") + b"early")
        assert whole_refusal(received, end) == (502, "upstream-unreachable")
    with StuckOrigin() as stuck:
        begun = time.monotonic()
        received, end = service.raw_end(connect_head(stuck.address) + b"early")
        assert whole_refusal(received, end) == (504, "upstream-timeout")
        assert time.monotonic() - begun > 0.9


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux only")
def test_a_client_that_leaves_while_it_is_dialled_for_leaves_nothing_behind(service: Service) -> None:
    before = service.open_descriptors()
    with StuckOrigin() as stuck, EchoOrigin() as origin:
        for address in (stuck.address, origin.address) * 10:
            with connect(service.proxy_port) as sock:
                sock.sendall(connect_head(address))
                close_with_reset(sock)
        eventually(lambda: service.open_descriptors() <= before, what="the descriptors of those who left")
        assert service.status(origin.address) == 200
