"""Case C31: what becomes of open tunnels when that which they rest on is taken away.

Grants end by revocation, time, uses and bytes; entries by a reload. Everything else stays open.
"""

from __future__ import annotations

import contextlib
import select
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.end_to_end.case_parts import (
    BAD_ADDRESS,
    DENIED,
    NOT_LISTED,
    connect_head,
    json_lines,
    refusal,
    whole_refusal,
    write_config,
)
from tests.support.byte_stream import End, read_exactly, read_until_end
from tests.support.deadline import eventually
from tests.support.dns_stub import DnsStub
from tests.support.origins import EchoOrigin, SinkOrigin
from tests.support.service import TOKEN, Service

# The sweep that finds grants whose time is over runs once a second.
BOUND_S = 1.0
SLACK_S = 1.0  # a busy machine


@pytest.fixture
def origin(start: Callable[[EchoOrigin], EchoOrigin]) -> EchoOrigin:
    return start(EchoOrigin())


@pytest.fixture
def service(start_service: Callable[..., Service]) -> Service:
    return start_service("--allow", "localhost:*", "-v", token=TOKEN)


def works(tunnel: socket.socket) -> bool:
    tunnel.sendall(b"x")
    return read_exactly(tunnel, 1) == b"x"


def is_closed(tunnel: socket.socket, timeout_s: float) -> bool:
    """Whether the service ends it in time; nothing more may come through."""
    received, end = read_until_end(tunnel, timeout_s)
    return (received, end is not End.OPEN) == (b"", True)


def test_a_revoked_grant_takes_its_tunnels_with_it_at_once(service: Service, origin: EchoOrigin) -> None:
    grant = service.allow(origin.address, ttl_s=300)
    other = f"localhost:{origin.port}"  # listed, the same server
    resting_on_it = [service.tunnel(origin.address) for _ in range(3)]
    unrelated = service.tunnel(other)
    begun = time.monotonic()
    answer = service.control("DELETE", f"/grants/{grant['id']}")
    assert answer.json() == {"revoked": grant["id"], "tunnels_closed": 3}
    assert all(is_closed(tunnel, BOUND_S) for tunnel in resting_on_it)
    assert time.monotonic() - begun < BOUND_S
    assert refusal(service, connect_head(origin.address)) == NOT_LISTED
    assert works(unrelated)
    assert service.control("DELETE", f"/grants/{grant['id']}").status == 404
    ends = [r for r in json_lines(service.stderr.text) if r["kind"] == "end" and r["cause"] == "grant_ended"]
    assert len(ends) == 3


def test_a_busy_tunnel_is_cut_too(service: Service) -> None:
    with SinkOrigin() as sink:
        grant = service.allow(sink.address, ttl_s=300)
        tunnel = service.tunnel(sink.address)
        tunnel.sendall(b"x" * 1_000_000)
        sink.wait_for_bytes(500_000)
        service.control("DELETE", f"/grants/{grant['id']}")
        with contextlib.suppress(ConnectionError):
            for _ in range(1000):
                tunnel.sendall(b"x" * 65_536)
            pytest.fail("the tunnel still takes bytes")
        assert sink.wait_for_end() is not End.OPEN


def test_a_grant_that_runs_out_closes_its_tunnels_within_the_bound(
    service: Service, origin: EchoOrigin
) -> None:
    begun = time.time()
    grant = service.allow(origin.address, ttl_s=1.5)
    assert 1.4 < grant["expires_at"] - begun < 2.5
    tunnel = service.tunnel(origin.address)
    assert works(tunnel)
    assert is_closed(tunnel, 5)
    late_s = time.time() - grant["expires_at"]
    assert -0.05 < late_s < BOUND_S + SLACK_S
    assert refusal(service, connect_head(origin.address)) == NOT_LISTED
    assert service.control("GET", "/grants").json() == {"grants": []}


def test_the_time_is_over_for_new_tunnels_at_once(service: Service, origin: EchoOrigin) -> None:
    grant = service.allow(origin.address, ttl_s=0.3)
    eventually(lambda: time.time() > grant["expires_at"])
    assert refusal(service, connect_head(origin.address)) == NOT_LISTED


def test_uses_are_counted_and_a_tunnel_that_has_its_use_stays(service: Service, origin: EchoOrigin) -> None:
    service.allow(origin.address, max_uses=2)
    tunnels = [service.tunnel(origin.address) for _ in range(2)]
    assert refusal(service, connect_head(origin.address)) == NOT_LISTED
    select.select((), (), (), BOUND_S + 0.2)  # a sweep has passed
    assert all(map(works, tunnels))


def test_a_use_is_given_back_when_no_200_was_sent(service: Service, origin: EchoOrigin) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{holder.getsockname()[1]}"
        service.allow(address, max_uses=1)
        for _ in range(3):
            assert service.status(address) == 502
        holder.listen()
        assert service.status(address) == 200
        assert service.status(address) == 403


def test_a_grant_that_has_spent_its_bytes_ends_its_tunnels(service: Service) -> None:
    with SinkOrigin() as sink:
        service.allow(sink.address, max_bytes_out=10_000)
        tunnel = service.tunnel(sink.address, extra=b"a" * 4_000)
        sink.wait_for_bytes(4_000)
        tunnel.sendall(b"b" * 5_000)
        sink.wait_for_bytes(9_000)
        with contextlib.suppress(ConnectionError):
            tunnel.sendall(b"c" * 50_000)
        assert read_until_end(tunnel)[1] is not End.OPEN
        sink.wait_for_end()
        assert sink.received_count() <= 10_000
        assert refusal(service, connect_head(sink.address)) == NOT_LISTED


CONFIG = """
allow = ["localhost:{port}"]
allow_private = [
  "stays.example:{port}", "goes.example:{port}", "denied.example:{port}", "narrow.example:{port}"
]
"""
NARROWER = """
allow = ["localhost:{port}", "narrow.example:{port}"]
allow_private = ["stays.example:{port}", "denied.example:{port}"]
deny = ["denied.example"]
"""


@pytest.mark.parametrize("by", ["signal", "call"])
def test_a_reload_closes_what_is_no_longer_allowed_and_nothing_else(
    start_service: Callable[..., Service], dns: DnsStub, origin: EchoOrigin, tmp_path: Path, by: str
) -> None:
    config = write_config(tmp_path, CONFIG.format(port=origin.port))
    service = start_service("--config", config, "--resolver", dns.address, token=TOKEN)
    names = ("stays", "goes", "denied", "narrow")
    for name in names:
        dns.add(f"{name}.example", "127.0.0.1")
    service.allow(origin.address, ttl_s=300)
    granted, listed = service.tunnel(origin.address), service.tunnel(f"localhost:{origin.port}")
    tunnels = {name: service.tunnel(f"{name}.example:{origin.port}") for name in names}

    write_config(tmp_path, NARROWER.format(port=origin.port))
    if by == "call":
        assert service.control("POST", "/reload").json() == {"tunnels_closed": 3}
    else:
        service.signal(signal.SIGHUP)
    for name in ("goes", "denied", "narrow"):
        assert is_closed(tunnels[name], BOUND_S + SLACK_S), name
    assert all(map(works, (granted, listed, tunnels["stays"])))
    refused = {
        name: refusal(service, connect_head(f"{name}.example:{origin.port}"))
        for name in ("goes", "denied", "narrow")
    }
    assert refused == {"goes": NOT_LISTED, "denied": DENIED, "narrow": BAD_ADDRESS}


def test_a_deny_entry_that_a_reload_brings_ends_the_tunnels_of_a_grant(
    start_service: Callable[..., Service], origin: EchoOrigin, tmp_path: Path
) -> None:
    config = write_config(tmp_path, "allow_none = true")
    service = start_service("--config", config, token=TOKEN)
    service.allow(origin.address)
    tunnel = service.tunnel(origin.address)
    write_config(tmp_path, 'allow_none = true\ndeny = ["127.0.0.1"]')
    assert service.control("POST", "/reload").status == 200
    assert is_closed(tunnel, BOUND_S)
    assert refusal(service, connect_head(origin.address)) == DENIED


def test_a_grant_revoked_while_it_is_dialled_for_gives_no_tunnel(service: Service) -> None:
    """What was decided before the dial must still hold after it."""
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        host, port = listener.getsockname()
        first.connect((host, port))
        second.setblocking(False)
        second.connect_ex((host, port))  # the queue is full: nobody else's SYN is answered
        grant = service.allow(f"{host}:{port}", max_uses=5)
        sock = service.open()
        sock.sendall(connect_head(f"{host}:{port}"))

        def uses_left() -> int:
            return int(service.control("GET", "/grants").json()["grants"][0]["uses_left"])

        eventually(lambda: uses_left() == 4, what="the use to be spent, which the dial follows")
        assert service.control("DELETE", f"/grants/{grant['id']}").status == 200
        listener.accept()[0].close()
        listener.accept()[0].close()  # from now on the next SYN is answered
        received, end = read_until_end(sock, 10)
        assert whole_refusal(received, end) == NOT_LISTED
