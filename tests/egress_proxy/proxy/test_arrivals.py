"""The common CONNECT without a task, and everything else handed to connection.py as if it had gone there."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from egress_proxy.core.access import Access
from egress_proxy.core.decision import Decision, Reason
from egress_proxy.core.events import Decided, Ended, Event, Faulted
from egress_proxy.core.grants import Grants
from egress_proxy.core.policy import Policy
from egress_proxy.core.policy import decide as sound
from egress_proxy.core.seams import AuditUnavailable
from tests.support.byte_stream import End, connect, read_end, read_exactly, read_until_end
from tests.support.data_port import CONNECTIONS, TUNNELS, DataPort
from tests.support.deadline import eventually
from tests.support.dns_stub import DnsStub
from tests.support.http import read_head, request_bytes
from tests.support.origins import BannerOrigin, EchoOrigin, HalfCloseOrigin, StuckOrigin, closed_port
from tests.support.proc_figures import open_descriptors
from tests.support.service_answers import connect_request


@pytest.fixture
def echo() -> Iterator[EchoOrigin]:
    with EchoOrigin() as origin:
        yield origin


@contextlib.contextmanager
def data_port(**options: Any) -> Iterator[DataPort]:
    with DataPort(relay="epoll", **options) as port:
        yield port


def test_an_allowed_connect_is_served_without_a_task(echo: EchoOrigin) -> None:
    with data_port(allow=[echo.address]) as port:
        before = port.tasks()
        sock = port.tunnel(echo.address)
        sock.sendall(b"hello")
        assert read_exactly(sock, 5) == b"hello"
        assert port.tasks() == before
        assert port.log.only(Decided).address == "127.0.0.1"


@pytest.mark.parametrize("size", [1, 5_000, 65_536, 300_000])
def test_bytes_behind_the_head_go_first_and_whole(echo: EchoOrigin, size: int) -> None:
    early = bytes(range(256)) * (size // 256 + 1)
    with data_port(allow=[echo.address]) as port:
        sock = port.tunnel(echo.address, early[:size])
        assert read_exactly(sock, size) == early[:size]
        sock.sendall(b"then this")
        assert read_exactly(sock, 9) == b"then this"


def test_a_head_that_comes_in_pieces_is_served_all_the_same(echo: EchoOrigin) -> None:
    request = connect_request(echo.address)
    with data_port(allow=[echo.address]) as port:
        sock = port.open()
        for octet in request:
            sock.sendall(bytes([octet]))
        assert read_head(sock).status == 200
        sock.sendall(b"x")
        assert read_exactly(sock, 1) == b"x"


def test_a_server_that_speaks_first_is_heard_after_the_200() -> None:
    with BannerOrigin(b"SSH-2.0-test\r\n") as origin, data_port(allow=[origin.address]) as port:
        assert read_exactly(port.tunnel(origin.address), 14) == b"SSH-2.0-test\r\n"


def test_a_client_that_sends_and_ends_in_one_go_gets_the_answer() -> None:
    with HalfCloseOrigin(b"answer") as origin, data_port(allow=[origin.address]) as port:
        sock = port.open()
        sock.sendall(connect_request(origin.address) + b"question")
        sock.shutdown(1)
        assert read_head(sock).status == 200
        assert read_until_end(sock) == (b"answer", End.EOF)
        assert origin.received() == b"question"


def test_what_is_not_the_common_case_is_answered_as_ever(echo: EchoOrigin) -> None:
    with data_port(allow=[echo.address]) as port:
        refused = port.ask(connect_request("evil.test:443"))
        assert (refused.status, refused.head.reason) == (403, "Forbidden; egress denied for evil.test:443")
        assert port.ask(request_bytes("GET", "http://x/")).status == 405
        assert port.ask(b"nonsense\r\n\r\n").status == 400
        assert [event.reason for event in port.log.wait_for(Decided, 3)] == [
            Reason.NOT_LISTED,
            Reason.METHOD_NOT_ALLOWED,
            Reason.NOT_HTTP,
        ]


def test_a_dial_that_is_refused_is_a_502_and_gives_the_use_back() -> None:
    with closed_port() as closed, data_port() as port:
        grant = port.grant(f"127.0.0.1:{closed}", max_uses=1)
        for _ in range(2):
            refused = port.ask(connect_request(f"127.0.0.1:{closed}"))
            assert (refused.status, refused.value("x-proxy-error")) == (502, "upstream-unreachable")
        assert port.call(lambda: port.grants.snapshot().by_id[grant].uses_left) == 1
        assert {event.reason for event in port.log.wait_for(Decided, 2)} == {Reason.UPSTREAM_REFUSED}


def test_a_dial_that_hangs_is_a_504_after_the_connect_timeout() -> None:
    with StuckOrigin() as stuck, data_port(allow=[stuck.address], connect_timeout_s=0.3) as port:
        refused = port.ask(connect_request(stuck.address))
        assert (refused.status, refused.value("x-proxy-error")) == (504, "upstream-timeout")
        assert port.log.only(Decided).reason is Reason.UPSTREAM_TIMEOUT


def test_a_client_that_says_nothing_is_closed_when_its_head_is_due() -> None:
    with data_port(connections=dataclasses.replace(CONNECTIONS, head_s=0.2)) as port:
        assert read_end(port.open()) is End.EOF
        assert port.log.all == []


def test_a_probe_that_connects_and_closes_leaves_no_trace() -> None:
    with data_port() as port:
        before = port.call(open_own_descriptors)
        for _ in range(20):
            connect(port.port).close()
        eventually(lambda: port.call(lambda: len(port.arrivals or ())) == 0, what="no arrival left")
        eventually(lambda: port.call(open_own_descriptors) == before, what="descriptors are closed")
        assert port.log.all == []


def open_own_descriptors() -> int:
    import os

    return open_descriptors(os.getpid())


def test_a_grant_of_one_use_admits_one_of_many_at_once(echo: EchoOrigin) -> None:
    with data_port() as port:
        port.grant(echo.address, max_uses=1)
        socks = [port.open() for _ in range(20)]
        for sock in socks:
            sock.sendall(connect_request(echo.address))
        assert sorted(read_head(sock).status for sock in socks) == [200] + [403] * 19


def test_nothing_passes_that_cannot_be_written_down(echo: EchoOrigin) -> None:
    def fail(event: Event) -> None:
        if isinstance(event, Decided) and event.reason is None:
            raise AuditUnavailable

    with data_port(allow=[echo.address]) as port:
        port.log.refusing = fail
        refused = port.ask(connect_request(echo.address))
        assert (refused.status, refused.value("x-proxy-error")) == (503, "audit-unavailable")
        assert port.call(lambda: port.table.count().open) == 0


def test_a_fault_ends_its_own_connection_and_is_told_once(
    echo: EchoOrigin, monkeypatch: pytest.MonkeyPatch
) -> None:

    def decide(access: Access, policy: Policy, grants: Grants, now: float) -> Decision:
        if access.target.port == 1:
            raise RuntimeError("canary")
        return sound(access, policy, grants, now)

    monkeypatch.setattr("egress_proxy.proxy.arrivals.decide", decide)
    with data_port(allow=[echo.address], expect_faults=True) as port:
        bad, good = port.open(), port.open()
        bad.sendall(connect_request("127.0.0.1:1"))
        good.sendall(connect_request(echo.address))
        assert read_head(good).status == 200
        assert read_end(bad) in (End.EOF, End.RESET)
        fault = port.log.only(Faulted)
        assert fault.error == "RuntimeError"
        assert "canary" not in repr(fault)


def test_a_name_from_the_cache_needs_no_task_either(echo: EchoOrigin, dns: DnsStub) -> None:
    target = f"ok.example:{echo.port}"
    dns.add("ok.example", "127.0.0.1", ttl=60)
    with data_port(private=[target], resolver=dns.address) as port:
        port.tunnel(target)
        eventually(lambda: port.tasks() == 1, what="the first one's task is over")
        asked = dns.total_queries
        port.tunnel(target)
        assert port.tasks() == 1
        assert dns.total_queries == asked


def test_a_draining_port_refuses_with_503(echo: EchoOrigin) -> None:
    with data_port(allow=[echo.address]) as port:
        port.is_draining = True
        assert port.ask(connect_request(echo.address)).status == 503


def test_hundreds_at_once_are_all_served_and_nothing_is_left(echo: EchoOrigin) -> None:
    with data_port(allow=[echo.address]) as port:
        before = port.call(open_own_descriptors)
        socks = [connect(port.port) for _ in range(200)]
        for sock in socks:
            sock.sendall(connect_request(echo.address) + b"ping")
        assert all(read_head(sock).status == 200 for sock in socks)
        assert all(read_exactly(sock, 4) == b"ping" for sock in socks)
        for sock in socks:
            sock.close()
        port.log.wait_for(Ended, 200)
        eventually(lambda: port.call(open_own_descriptors) == before, what="descriptors are closed")


def await_dial(port: DataPort) -> None:
    def is_dialling() -> bool:
        assert port.arrivals is not None
        return any(arrival.dial for arrival in port.arrivals._waiting)

    eventually(lambda: port.call(is_dialling), what="a dial is under way")


def test_a_dial_that_is_under_way_when_the_service_stops_is_told_so() -> None:
    with StuckOrigin() as stuck, data_port(allow=[stuck.address]) as port:
        sock = port.open()
        sock.sendall(connect_request(stuck.address))
        await_dial(port)
        port.call(lambda: port.arrivals.close())  # type: ignore[union-attr]
        assert read_head(sock).status == 503
        assert port.log.only(Decided).reason is Reason.DRAINING


def test_the_time_of_a_head_goes_on_where_the_first_piece_came_late() -> None:
    with data_port(connections=dataclasses.replace(CONNECTIONS, head_s=0.6)) as port:
        started = port.loop.time()
        sock = port.open()
        eventually(lambda: port.loop.time() - started > 0.4, what="most of the time is gone")
        sock.sendall(b"CONNECT ")
        assert read_head(sock).status == 408
        assert port.loop.time() - started < 0.9


def test_the_limit_holds_for_all_that_connect_at_once(echo: EchoOrigin) -> None:
    limits = dataclasses.replace(TUNNELS, in_all=2)
    with data_port(allow=[echo.address], tunnels=limits) as port:
        socks = [port.open() for _ in range(12)]
        for sock in socks:
            sock.sendall(connect_request(echo.address))
        assert sorted(read_head(sock).status for sock in socks) == [200] * 2 + [503] * 10
        told = [event.status for event in port.log.wait_for(Decided, 12)]
        assert sorted(status or 0 for status in told) == [200] * 2 + [503] * 10


def test_a_fault_of_the_log_ends_those_it_was_about_and_gives_their_uses_back(echo: EchoOrigin) -> None:
    def fail(event: Event) -> None:
        if isinstance(event, Decided):
            raise RuntimeError("canary")

    with data_port(expect_faults=True) as port:
        grant = port.grant(echo.address, max_uses=1)
        port.log.refusing = fail
        sock = port.open()
        sock.sendall(connect_request(echo.address))
        assert read_end(sock) in (End.EOF, End.RESET)
        assert port.log.only(Faulted).error == "RuntimeError"
        assert port.call(lambda: port.grants.snapshot().by_id[grant].uses_left) == 1
