"""The origins against plain sockets: what each promises is seen from a client's end.

Nothing of the product is used here.
See ../origins.py.
"""

from __future__ import annotations

import hashlib
import socket
import threading

import pytest

from tests.support.byte_stream import (
    End,
    Truncated,
    close_with_reset,
    connect,
    read_end,
    read_exactly,
    read_to_end,
    read_until,
    read_until_end,
)
from tests.support.origins import (
    BannerOrigin,
    EarlyCloseOrigin,
    EchoOrigin,
    HalfCloseOrigin,
    ResetOrigin,
    SilentOrigin,
    SinkOrigin,
    SourceOrigin,
    StuckOrigin,
    closed_port,
    pattern,
    pattern_sha256,
)


@pytest.mark.parametrize("bind", ["127.0.0.1", "127.0.0.2", "::1"])
def test_the_echo_answers_on_each_address_and_sees_the_end(bind: str) -> None:
    with EchoOrigin(bind) as origin, connect(origin.port, bind) as sock:
        sock.sendall(b"hello")
        assert read_exactly(sock, 5) == b"hello"
        sock.shutdown(socket.SHUT_WR)
        assert read_end(sock) is End.EOF
        assert origin.wait_for_end() is End.EOF
        assert origin.received() == b"hello"
        assert origin.address == (f"[{bind}]" if ":" in bind else bind) + f":{origin.port}"


def test_two_origins_share_a_port_on_two_addresses() -> None:
    with EchoOrigin("127.0.0.1") as one, BannerOrigin(b"two", "127.0.0.2", one.port) as two:
        with connect(two.port, "127.0.0.2") as sock:
            assert read_exactly(sock, 3) == b"two"
        assert one.connections_accepted == 0


def test_the_banner_comes_before_any_byte_of_the_client() -> None:
    with BannerOrigin() as origin, connect(origin.port) as sock:
        assert read_until(sock, b"\r\n") == b"SSH-2.0-test\r\n"
        sock.sendall(b"x")
        assert read_exactly(sock, 1) == b"x"


def test_the_half_close_answer_waits_for_eof_and_for_its_release() -> None:
    release = threading.Event()
    with HalfCloseOrigin(b"a" * 40, release) as origin, connect(origin.port) as sock:
        sock.sendall(b"q")
        sock.shutdown(socket.SHUT_WR)
        assert origin.wait_for_end() is End.EOF
        assert read_until_end(sock, 0.05) == (b"", End.OPEN)
        release.set()
        assert read_to_end(sock) == b"a" * 40


def test_the_early_closer_goes_on_reading() -> None:
    with EarlyCloseOrigin(b"bye") as origin, connect(origin.port) as sock:
        assert read_to_end(sock) == b"bye"
        sock.sendall(b"late")
        assert origin.wait_for_bytes(4) == b"late"


def test_the_sink_counts_and_hashes_all_of_it() -> None:
    start = threading.Event()
    with SinkOrigin(start) as origin, connect(origin.port) as sock:
        sock.sendall(b"abc")
        assert origin.received_count() == 0
        start.set()
        assert origin.wait_for_bytes(3) == b"abc"
        assert origin.received_sha256() == hashlib.sha256(b"abc").hexdigest()


def test_the_source_sends_its_pattern_and_ends() -> None:
    n = 3_000_001
    with SourceOrigin(n) as origin, connect(origin.port) as sock:
        received = read_to_end(sock)
        assert received == pattern(n)
        assert hashlib.sha256(received).hexdigest() == pattern_sha256(n)
        assert origin.sent_bytes == n


def test_the_resetter_resets_after_so_many_bytes() -> None:
    with ResetOrigin(3) as origin, connect(origin.port) as sock:
        sock.sendall(b"ab")
        assert origin.wait_for_bytes(2) == b"ab"
        assert read_until_end(sock, 0.05) == (b"", End.OPEN)
        sock.sendall(b"c")
        with pytest.raises(ConnectionResetError):
            read_to_end(sock)


def test_a_reset_by_the_client_is_told_from_an_end() -> None:
    with SilentOrigin() as origin:
        close_with_reset(connect(origin.port))
        connect(origin.port).close()
        origin.wait_for_connections(2)
        assert {origin.wait_for_end(0), origin.wait_for_end(1)} == {End.RESET, End.EOF}


def test_the_silent_one_keeps_its_direction_open() -> None:
    with SilentOrigin() as origin, connect(origin.port) as sock:
        sock.shutdown(socket.SHUT_WR)
        assert origin.wait_for_end() is End.EOF
        assert read_until_end(sock, 0.05) == (b"", End.OPEN)


@pytest.mark.parametrize("bind", ["127.0.0.1", "::1"])
def test_dialling_a_stuck_origin_hangs(bind: str) -> None:
    with StuckOrigin(bind) as origin, pytest.raises(TimeoutError):
        connect(origin.port, bind, timeout_s=0.3)


def test_a_closed_port_refuses() -> None:
    with closed_port() as port, pytest.raises(ConnectionRefusedError):
        connect(port)


def test_ending_an_origin_ends_its_connections_and_threads() -> None:
    with SilentOrigin() as origin:
        socks = [connect(origin.port) for _ in range(20)]
        origin.wait_for_connections(20)
    assert all(read_end(sock) in (End.EOF, End.RESET) for sock in socks)
    assert not [t for t in threading.enumerate() if t.name.startswith("support-SilentOrigin")]
    for sock in socks:
        sock.close()


def test_a_gate_that_no_test_opened_does_not_hold_up_the_end() -> None:
    with SinkOrigin(threading.Event()) as origin, connect(origin.port):
        origin.wait_for_connections(1)


def test_reading_to_a_marker_leaves_the_rest_in_the_socket() -> None:
    left, right = socket.socketpair()
    with left, right:
        left.sendall(b"head\r")
        left.sendall(b"\n\r\nbody")
        assert read_until(right, b"\r\n\r\n") == b"head\r\n\r\n"
        assert read_exactly(right, 4) == b"body"
        left.sendall(b"torn")
        left.shutdown(socket.SHUT_WR)
        with pytest.raises(Truncated) as torn:
            read_until(right, b"\r\n")
        assert torn.value.received == b"torn"


def test_a_marker_that_arrives_in_pieces_is_found() -> None:
    left, right = socket.socketpair()
    with left, right:
        found: list[bytes] = []
        reader = threading.Thread(target=lambda: found.append(read_until(right, b"\r\n\r\n")))
        reader.start()
        for piece in (b"a", b"\r", b"\n", b"\r", b"\nrest"):
            left.sendall(piece)
        reader.join(5)
        assert found == [b"a\r\n\r\n"]
        assert read_exactly(right, 4) == b"rest"


def test_a_late_stream_is_a_timeout_not_an_end() -> None:
    left, right = socket.socketpair()
    with left, right, pytest.raises(TimeoutError):
        read_exactly(right, 1, timeout_s=0.05)
