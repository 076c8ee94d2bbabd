"""Cases C25, C27 and C30: peers that do not read, do not end, or do not get on with it.

Figures are the process's own, from /proc. What tunnels carry: test_case_tunnels.py.
"""

from __future__ import annotations

import select
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.end_to_end.case_parts import (
    NOT_LISTED,
    connect_head,
    inject_args,
    refusal,
    resting,
    send_until_stuck,
    tls_env,
    write_config,
)
from tests.support.answers import bulk, play, read_body
from tests.support.byte_stream import End, close_with_reset, read_end, read_exactly, read_until_end
from tests.support.certificates import CertificateAuthority
from tests.support.deadline import Deadline, eventually
from tests.support.dns_stub import DnsStub
from tests.support.http import read_head, request_bytes
from tests.support.origins import EchoOrigin, SilentOrigin, SinkOrigin, SourceOrigin
from tests.support.provider import Provider
from tests.support.service import Service

MIB = 1_048_576
MORE_THAN_ALL = 500 * MIB
GROWTH = 20 * MIB  # case C27; for several slow peers at once here
PEERS = 6

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux only")
RELAYS = ("epoll", "loop") if sys.platform == "linux" else ("loop",)


@pytest.fixture(params=RELAYS)
def relay(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# C27: nobody reads.


@linux_only
def test_a_slow_client_holds_back_the_server(start_service: Callable[..., Service], relay: str) -> None:
    service = start_service("--allow", "127.0.0.1:*", "--relay", relay)
    with SourceOrigin(MORE_THAN_ALL) as origin:
        before = service.rss_bytes()
        tunnels = [service.tunnel(origin.address) for _ in range(PEERS)]
        sent = resting(lambda: origin.sent_bytes)
        for tunnel in tunnels:  # a trickle moves it on, and it comes to rest again
            read_exactly(tunnel, 100_000)
        assert resting(lambda: origin.sent_bytes) < PEERS * 100 * MIB
        assert sent > PEERS * 100_000
        assert service.rss_bytes() - before < GROWTH
        assert service.status("evil.test:443") == 403  # and it serves the others
        service.close_sockets()


@linux_only
def test_a_slow_server_holds_back_the_client(start_service: Callable[..., Service], relay: str) -> None:
    service = start_service("--allow", "127.0.0.1:*", "--relay", relay)
    gate = threading.Event()
    with SinkOrigin(gate) as origin:
        before = service.rss_bytes()
        for _ in range(PEERS):
            sent = send_until_stuck(service.tunnel(origin.address), b"x" * MIB, MORE_THAN_ALL)
            assert 0 < sent < MORE_THAN_ALL
        assert service.rss_bytes() - before < GROWTH
        service.close_sockets()


def test_a_reset_behind_a_full_pipe_is_seen_and_passed_on(
    start_service: Callable[..., Service], relay: str
) -> None:
    """Nobody reads from the client any more, and still its tunnel must not look complete."""
    service = start_service("--allow", "127.0.0.1:*", "--relay", relay)
    gate = threading.Event()
    with SinkOrigin(gate) as origin:
        tunnel = service.tunnel(origin.address)
        send_until_stuck(tunnel, b"x" * MIB, MORE_THAN_ALL)
        close_with_reset(tunnel)
        gate.set()
        assert origin.wait_for_end() is End.RESET


@pytest.fixture
def provider(ca: CertificateAuthority, start_provider: Callable[..., Provider]) -> Provider:
    return start_provider("api.example")


@pytest.fixture
def injecting(
    start_service: Callable[..., Service], dns: DnsStub, ca: CertificateAuthority, provider: Provider
) -> Service:
    dns.add("api.example", "127.0.0.1")
    args = inject_args("api.example", provider.port, dns.address)
    return start_service(*args, env=tls_env(ca.pem_path, "sk-canary"))


@linux_only
def test_a_slow_client_holds_back_an_injected_answer(injecting: Service, provider: Provider) -> None:
    provider.on("/bulk", bulk(MORE_THAN_ALL))
    refusal(injecting, connect_head("evil.test:443"))
    before = injecting.rss_bytes()
    socks = [injecting.open() for _ in range(3)]
    for sock in socks:
        sock.sendall(request_bytes("GET", "http://api.example/bulk"))
        assert read_head(sock).status == 200
    resting(lambda: int(injecting.cpu_s() * 100))
    for sock in socks:
        read_exactly(sock, 100_000)
    resting(lambda: int(injecting.cpu_s() * 100))
    assert injecting.rss_bytes() - before < GROWTH
    injecting.close_sockets()


@linux_only
def test_a_slow_upstream_holds_back_an_injected_upload(injecting: Service, provider: Provider) -> None:
    gate = threading.Event()
    provider.on("/up", play(gate, read_body))
    refusal(injecting, connect_head("evil.test:443"))
    before = injecting.rss_bytes()
    for _ in range(3):
        sock = injecting.open()
        head = request_bytes("POST", "http://api.example/up", [("Content-Length", str(MORE_THAN_ALL))])
        sock.sendall(head)
        sent = send_until_stuck(sock, b"x" * MIB, MORE_THAN_ALL)
        assert 0 < sent < MORE_THAN_ALL
    assert injecting.rss_bytes() - before < GROWTH
    injecting.close_sockets()
    gate.set()


# C25: the leak that half-close can turn into.


@linux_only
def test_300_half_closed_tunnels_are_freed_within_the_bound(
    start_service: Callable[..., Service], tmp_path: Path, relay: str
) -> None:
    config = write_config(tmp_path, "[limits]\nhalf_close_timeout_s = 1.5")
    service = start_service("--allow", "127.0.0.1:*", "--relay", relay, "--config", config)
    with SilentOrigin() as origin:
        service.tunnel(origin.address).close()
        eventually(lambda: service.open_descriptors() > 0)
        base = service.open_descriptors()
        tunnels = [service.tunnel(origin.address, b"q") for _ in range(300)]
        assert service.open_descriptors() >= base + 300
        for tunnel in tunnels:
            tunnel.shutdown(socket.SHUT_WR)
        eventually(lambda: service.open_descriptors() <= base, 10, "300 half-closed tunnels to be freed")
        assert {read_until_end(tunnel)[1] for tunnel in tunnels} <= {End.EOF, End.RESET}
        assert service.status(origin.address) == 200


def test_a_half_closed_tunnel_that_still_moves_is_no_leak(
    start_service: Callable[..., Service], tmp_path: Path
) -> None:
    """The bound is on idleness: the direction that goes on is not cut."""
    config = write_config(tmp_path, "[limits]\nhalf_close_timeout_s = 1")
    service = start_service("--allow", "127.0.0.1:*", "--config", config)
    with SourceOrigin(64 * MIB) as origin:
        tunnel = service.tunnel(origin.address, b"q")
        tunnel.shutdown(socket.SHUT_WR)
        deadline, received = Deadline(20, "64 MiB"), 0
        begun = time.monotonic()
        while received < origin.total_bytes:
            if time.monotonic() - begun < 2.5:  # slowly at first, for longer than the bound
                select.select((), (), (), min(0.05, deadline.remaining_s()))
            received += len(tunnel.recv(MIB))
        assert read_end(tunnel) is End.EOF


def test_an_idle_tunnel_ends_and_a_busy_one_does_not(
    start_service: Callable[..., Service], tmp_path: Path
) -> None:
    config = write_config(tmp_path, "[limits]\nidle_timeout_s = 1")
    service = start_service("--allow", "127.0.0.1:*", "--config", config)
    with EchoOrigin() as origin:
        idle, busy = service.tunnel(origin.address), service.tunnel(origin.address)
        begun = time.monotonic()
        while time.monotonic() - begun < 2.5:
            busy.sendall(b"x")
            assert read_exactly(busy, 1) == b"x"
            select.select((), (), (), 0.05)
        assert read_until_end(idle)[1] in (End.EOF, End.RESET)
        busy.sendall(b"y")
        assert read_exactly(busy, 1) == b"y"


# C30: slow heads.

HEAD_TIMEOUT_S = 1.5


@pytest.fixture
def impatient(start_service: Callable[..., Service], tmp_path: Path) -> Service:
    config = write_config(tmp_path, f"[limits]\nhead_timeout_s = {HEAD_TIMEOUT_S}")
    return start_service("--allow", "127.0.0.1:*", "--config", config)


def _trickle(socks: list[socket.socket], slow: bytes, ended: Callable[[], bool]) -> None:
    """A byte to each now and then, until ``ended``; whoever was closed on is left alone."""
    for octet in slow:
        if ended():
            return
        for sock in socks:
            if not select.select([sock], (), (), 0)[0]:
                sock.send(bytes([octet]))
        select.select((), (), (), 0.2)


def test_slow_heads_are_closed_in_time_and_hold_up_nobody(impatient: Service) -> None:
    with EchoOrigin() as origin:
        settled = impatient.tunnel(origin.address)
        begun = time.monotonic()
        slow = [impatient.open() for _ in range(50)]
        answered: list[float] = []

        def ended() -> bool:
            asked = time.monotonic()
            assert impatient.status(origin.address) == 200
            answered.append(time.monotonic() - asked)
            return len(select.select(slow, (), (), 0)[0]) == len(slow)

        _trickle(slow, b"CONNECT ok.example:443 HTTP/1.1\r\n" + b"X-Slow: " + b"a" * 1000, ended)
        # Counted from the connection, not from the last byte: a trickle buys no time.
        assert time.monotonic() - begun < HEAD_TIMEOUT_S + 2
        assert max(answered) < 1
        for sock in slow:
            received, end = read_until_end(sock)
            assert received == b"" or received.startswith(b"HTTP/1.1 408 ")
            assert end is not End.OPEN
        settled.sendall(b"tunnels have no such limit")
        assert read_exactly(settled, 26) == b"tunnels have no such limit"


def test_a_connection_without_a_byte_is_closed_too(impatient: Service) -> None:
    begun = time.monotonic()
    silent = [impatient.open() for _ in range(50)]
    for sock in silent:
        assert read_until_end(sock) == (b"", End.EOF)
    assert HEAD_TIMEOUT_S - 0.2 < time.monotonic() - begun < HEAD_TIMEOUT_S + 2
    assert refusal(impatient, connect_head("evil.test:443")) == NOT_LISTED
