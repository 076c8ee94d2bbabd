"""Connections to upstreams: verified before a byte of a request, kept while they are alive, never mixed up.

Real providers, with TLS and without. What goes over a connection is in test_forward.py.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Any

import pytest

from egress_proxy.core.access import InjectRoute, Scheme
from egress_proxy.core.decision import Allow, Deny, OptIn, Reason
from egress_proxy.core.events import EndCause, Ended
from egress_proxy.core.host import Name, Target
from egress_proxy.core.seams import Answer
from egress_proxy.proxy.http1 import AnswerEnd
from egress_proxy.proxy.outbound import Outbound
from egress_proxy.proxy.tls import TlsStream
from egress_proxy.proxy.upstream_pool import IDLE_PER_ROUTE, IDLE_S, SESSION_S, Upstream, UpstreamPool
from tests.conftest import Start, StartProvider
from tests.egress_proxy.proxy.brokers import API_HOST, SECRET, broker, call, rule, secured_broker
from tests.egress_proxy.proxy.stream_ends import receive, send
from tests.egress_proxy.proxy.tls_origin import TlsOrigin, drain
from tests.support.answers import fixed, play
from tests.support.certificates import CertificateAuthority, Leaf, server_context
from tests.support.data_port import Clock, DataPort, credential
from tests.support.deadline import eventually
from tests.support.dns_stub import DnsStub
from tests.support.origins import BannerOrigin, ResetOrigin, SilentOrigin, StuckOrigin, closed_port
from tests.support.proc_figures import open_descriptors
from tests.support.provider import Provider

OK = fixed(b"ok")


def allowed(route: InjectRoute, opt_in: OptIn = OptIn.ONLY_LOOPBACK) -> Allow:
    return Allow(route.upstream, f"inject:{route.name}", opt_in)


class Bench:
    """A pool by itself. Tests turn the clock and the list of own listeners."""

    def __init__(self, make_context: Callable[[], ssl.SSLContext] = ssl.create_default_context) -> None:
        self.clock = Clock()
        self.own: list[Target] = []
        self.contexts_made = 0
        self._make_context = make_context
        self.pool = UpstreamPool(Outbound(_loopback, lambda: self.own, 5.0), self._context, self.clock)

    def _context(self) -> ssl.SSLContext:
        self.contexts_made += 1
        return self._make_context()

    async def exchange(self, route: InjectRoute, opt_in: OptIn = OptIn.ONLY_LOOPBACK) -> Upstream:
        """One GET over a connection of the pool, which is given back after it."""
        upstream = await self.acquire(route, opt_in)
        await finish(upstream)
        self.pool.lane(route).release(upstream)
        return upstream

    async def acquire(self, route: InjectRoute, opt_in: OptIn = OptIn.ONLY_LOOPBACK) -> Upstream:
        upstream = await self.pool.lane(route).acquire(allowed(route, opt_in))
        assert isinstance(upstream, Upstream), upstream
        return upstream


async def _loopback(name: Name) -> Answer:
    return Answer((ip_address("127.0.0.1"),))


async def finish(upstream: Upstream) -> None:
    http = upstream.http
    await send(upstream.stream, http.start("GET", b"/", [(b"Host", b"x")]))
    http.end()
    while not isinstance(part := http.answer(), AnswerEnd):
        if part is None:
            http.feed(await receive(upstream.stream))


@asynccontextmanager
async def ending(bench: Bench) -> AsyncIterator[Bench]:
    """Close what is kept, so that no connection outlives the test."""
    yield bench
    bench.clock.at += 1
    bench.pool.close_idle()


async def eventually_done(holds: Callable[[], bool]) -> None:
    await asyncio.to_thread(eventually, holds)


async def close_from_upstream(provider: Provider) -> None:
    """The provider closes the one connection that is idle at its end."""
    await asyncio.to_thread(provider.wait_for_idle)
    assert await asyncio.to_thread(provider.close_idle) == 1


# Kept alive.


async def test_a_connection_is_kept_and_used_again(start: Start) -> None:
    provider = start(Provider())
    provider.otherwise(OK)
    route = rule(provider.port)
    async with ending(Bench()) as bench:
        first = await bench.exchange(route)
        assert [await bench.exchange(route) for _ in range(3)] == [first] * 3
        assert not first.is_fresh
    assert provider.connections_accepted == 1
    assert [request.number for request in provider.requests] == [0, 1, 2, 3]


async def test_requests_at_the_same_time_have_connections_of_their_own(start: Start) -> None:
    provider = start(Provider())
    provider.otherwise(OK)
    route = rule(provider.port)
    async with ending(Bench()) as bench:
        busy = await bench.acquire(route)
        other = await bench.exchange(route)
        assert busy is not other
        assert busy.is_fresh
        await finish(busy)
        bench.pool.lane(route).release(busy)
        assert await bench.acquire(route) is busy  # the youngest first
        busy.stream.close()
    assert provider.connections_accepted == 2


async def test_a_fresh_connection_can_be_asked_for(start: Start) -> None:
    provider = start(Provider())
    provider.otherwise(OK)
    route = rule(provider.port)
    async with ending(Bench()) as bench:
        kept = await bench.exchange(route)
        fresh = await bench.pool.lane(route).acquire(allowed(route), fresh=True)
        assert isinstance(fresh, Upstream)
        assert fresh is not kept
        assert fresh.is_fresh
        fresh.stream.close()


async def test_a_kept_connection_that_the_upstream_closed_is_not_handed_out(start: Start) -> None:
    provider = start(Provider())
    provider.otherwise(OK)
    route = rule(provider.port)
    async with ending(Bench()) as bench:
        dead = await bench.exchange(route)
        await close_from_upstream(provider)
        assert await bench.exchange(route) is not dead
    assert provider.connections_accepted == 2


async def test_a_kept_connection_that_said_something_unasked_is_not_handed_out(start: Start) -> None:
    other = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nother"
    provider = start(Provider())
    gate = threading.Event()
    provider.otherwise(play(OK, gate, other), OK)
    route = rule(provider.port)
    async with ending(Bench()) as bench:
        first = await bench.exchange(route)
        gate.set()
        await eventually_done(lambda: provider.idle_connections == 1)
        assert await bench.exchange(route) is not first


async def test_a_kept_connection_is_closed_before_servers_close_theirs(start: Start) -> None:
    provider = start(Provider())
    provider.otherwise(OK)
    route = rule(provider.port)
    async with ending(Bench()) as bench:
        first = await bench.exchange(route)
        bench.clock.at += IDLE_S - 1
        assert await bench.exchange(route) is first
        bench.clock.at += IDLE_S
        assert await bench.exchange(route) is not first
        await eventually_done(lambda: provider.open_connections == 1)


async def test_what_is_idle_for_long_or_dead_is_closed_without_a_request(start: Start) -> None:
    provider = start(Provider())
    provider.otherwise(OK)
    route = rule(provider.port)
    async with ending(Bench()) as bench:
        young = await bench.exchange(route)
        bench.pool.close_idle(IDLE_S)
        assert await bench.exchange(route) is young
        bench.clock.at += IDLE_S
        bench.pool.close_idle(IDLE_S)
        await eventually_done(lambda: provider.open_connections == 0)
        dead = await bench.exchange(route)
        before = open_descriptors(os.getpid())
        await close_from_upstream(provider)
        bench.pool.close_idle(IDLE_S)
        assert not dead.stream.is_quiet()
        await eventually_done(lambda: open_descriptors(os.getpid()) < before)


async def test_so_many_connections_are_kept_for_a_rule(start: Start) -> None:
    provider = start(Provider())
    provider.otherwise(OK)
    route = rule(provider.port)
    async with ending(Bench()) as bench:
        busy = [await bench.acquire(route) for _ in range(IDLE_PER_ROUTE + 3)]
        for upstream in busy:
            await finish(upstream)
            bench.pool.lane(route).release(upstream)
        await eventually_done(lambda: provider.open_connections == IDLE_PER_ROUTE)


@pytest.mark.parametrize(
    "answer",
    [fixed(b"ok", headers=[("Connection", "close")]), b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"],
)
async def test_a_connection_that_the_upstream_will_not_keep_is_closed(start: Start, answer: bytes) -> None:
    provider = start(Provider())
    provider.otherwise(answer)
    route = rule(provider.port)
    async with ending(Bench()) as bench:
        first = await bench.exchange(route)
        assert await bench.exchange(route) is not first


# Without waiting.


async def test_without_a_kept_connection_there_is_none_to_be_had_at_once(start: Start) -> None:
    provider = start(Provider())
    provider.otherwise(OK)
    route = rule(provider.port)
    async with ending(Bench()) as bench:
        lane = bench.pool.lane(route)
        assert lane.take_kept(allowed(route)) is None
        first = await bench.exchange(route)
        assert lane.take_kept(allowed(route)) is first
        assert lane.take_kept(allowed(route)) is None  # nobody gets it twice
        first.stream.close()


async def test_a_connection_that_was_put_back_is_handed_out_again_and_is_no_younger(start: Start) -> None:
    provider = start(Provider())
    provider.otherwise(OK)
    route = rule(provider.port)
    async with ending(Bench()) as bench:
        first = await bench.exchange(route)
        lane = bench.pool.lane(route)
        for _ in range(2):
            bench.clock.at += IDLE_S / 2 - 1
            assert lane.take_kept(allowed(route)) is first
            lane.put_back(first)
        bench.clock.at += 2
        assert lane.take_kept(allowed(route)) is None
    await eventually_done(lambda: provider.open_connections == 0)


# Never mixed up.


async def test_two_rules_never_share_a_connection(start: Start) -> None:
    provider = start(Provider())
    provider.otherwise(OK)
    one, two = rule(provider.port, name="one"), rule(provider.port, name="two")
    async with ending(Bench()) as bench:
        assert await bench.exchange(one) is not await bench.exchange(two)


async def test_a_rule_that_was_given_another_upstream_gets_no_connection_to_the_old_one(start: Start) -> None:
    old, new = start(Provider()), start(Provider())
    for provider in (old, new):
        provider.otherwise(OK)
    async with ending(Bench()) as bench:
        await bench.exchange(rule(old.port))
        await bench.exchange(rule(new.port))
        assert (len(old.requests), len(new.requests)) == (1, 1)
        renamed = rule(old.port, host="localhost")
        await bench.exchange(renamed)
        assert old.connections_accepted == 2


async def test_a_kept_connection_to_an_address_that_may_not_be_dialled_now_is_dropped(
    start: Start,
) -> None:
    provider = start(Provider())
    provider.otherwise(OK)
    route = rule(provider.port)
    async with ending(Bench()) as bench:
        await bench.exchange(route)
        bench.own.append(route.upstream)
        refused = await bench.pool.lane(route).acquire(allowed(route))
        assert isinstance(refused, Deny)
        assert refused.reason is Reason.OWN_LISTENER
        await eventually_done(lambda: provider.open_connections == 0)


# TLS.


async def test_a_tls_connection_is_kept_like_any_other_and_its_context_is_made_once(
    start_provider: StartProvider, ca: CertificateAuthority
) -> None:
    provider = start_provider(API_HOST)
    provider.otherwise(OK)
    route = rule(provider.port, host=API_HOST, scheme=Scheme.HTTPS)
    async with ending(Bench(ca.client_context)) as bench:
        first = await bench.exchange(route, OptIn.INWARD)
        for _ in range(3):
            assert await bench.exchange(route, OptIn.INWARD) is first
        busy = await bench.acquire(route, OptIn.INWARD)
        await bench.exchange(route, OptIn.INWARD)
        busy.stream.close()
        assert bench.contexts_made == 1
    assert provider.connections[0].server_name == API_HOST


@pytest.mark.parametrize("keeps", ["alive", "closing"])
async def test_a_new_connection_resumes_the_session_of_an_earlier_one_of_its_rule(
    start: Start, ca: CertificateAuthority, keeps: str
) -> None:
    resumed: list[bool | None] = []
    connection = b"close" if keeps == "closing" else b"keep-alive"

    def answer(sock: ssl.SSLSocket) -> None:
        resumed.append(sock.session_reused)
        if sock.recv(1000):
            sock.sendall(b"HTTP/1.1 200 OK\r\nConnection: %b\r\nContent-Length: 0\r\n\r\n" % connection)
            drain(sock)

    origin = start(TlsOrigin(server_context(ca.leaf(API_HOST)), answer))
    route = rule(origin.port, host=API_HOST, scheme=Scheme.HTTPS)
    other = rule(origin.port, name="other", host=API_HOST, scheme=Scheme.HTTPS)
    async with ending(Bench(ca.client_context)) as bench:
        for asked in (route, route, other):
            await bench.exchange(asked)
            bench.clock.at += 1
            bench.pool.close_idle()
    assert resumed == [False, True, False]


@pytest.mark.parametrize(("resumes", "asked_times"), [(True, 1), (False, 2)])
async def test_a_session_is_asked_for_where_none_is_resumed_and_not_each_time(
    start: Start,
    ca: CertificateAuthority,
    monkeypatch: pytest.MonkeyPatch,
    resumes: bool,
    asked_times: int,
) -> None:
    """Python loses a copy of the session whenever it is asked for (CPython issue 116810)."""

    def answer(sock: ssl.SSLSocket) -> None:
        if sock.recv(1000):
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            drain(sock)

    context = server_context(ca.leaf(API_HOST))
    if not resumes:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.num_tickets = 0
    origin = start(TlsOrigin(context, answer))
    asked: list[TlsStream] = []
    session = TlsStream.session

    def ask(stream: TlsStream) -> ssl.SSLSession | None:
        asked.append(stream)
        return session(stream)

    monkeypatch.setattr(TlsStream, "session", ask)
    route = rule(origin.port, host=API_HOST, scheme=Scheme.HTTPS)
    async with ending(Bench(ca.client_context)) as bench:
        for pause_s in (1, 1, 1, SESSION_S, 1):
            await bench.exchange(route, OptIn.INWARD)
            bench.clock.at += pause_s
            bench.pool.close_idle()
    assert len(asked) == asked_times


async def test_without_tls_no_context_is_made(start: Start) -> None:
    provider = start(Provider())
    provider.otherwise(OK)
    async with ending(Bench()) as bench:
        await bench.exchange(rule(provider.port))
        assert bench.contexts_made == 0


BAD_LEAVES: dict[str, Callable[[CertificateAuthority], Leaf]] = {
    "self-signed": lambda ca: ca.self_signed(API_HOST),
    "wrong name": lambda ca: ca.wrong_name(),
    "expired": lambda ca: ca.expired(API_HOST),
    "not yet valid": lambda ca: ca.not_yet_valid(API_HOST),
    "foreign": lambda ca: ca.foreign(API_HOST),
}


@pytest.mark.parametrize("kind", BAD_LEAVES)
def test_an_upstream_whose_certificate_is_wrong_gets_no_byte_of_a_request(
    start_provider: StartProvider, ca: CertificateAuthority, dns: DnsStub, start: Start, kind: str
) -> None:
    provider = start_provider(leaf=BAD_LEAVES[kind](ca))
    port = start(secured_broker(provider.port, ca, dns))
    refused = call(port, host=API_HOST).ask("GET")
    assert (refused.status, refused.value("X-Proxy-Error")) == (502, "upstream-tls")
    ended = port.log.only(Ended)
    assert (ended.reason, ended.cause, ended.status) == (Reason.UPSTREAM_TLS, EndCause.FAULT, 502)
    assert ended.detail
    provider.wait_for_closed()
    assert provider.octets_received == 0


def test_an_upstream_that_speaks_no_tls_gets_no_byte_of_a_request(
    start: Start, ca: CertificateAuthority, dns: DnsStub
) -> None:
    origin = start(BannerOrigin(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"))
    port = start(secured_broker(origin.port, ca, dns))
    refused = call(port, host=API_HOST).ask("GET")
    assert (refused.status, refused.value("X-Proxy-Error")) == (502, "upstream-tls")
    assert port.log.only(Ended).reason is Reason.UPSTREAM_TLS
    origin.wait_for_end()
    assert origin.received().startswith(b"\x16\x03")  # the hello, then perhaps an alert
    assert SECRET.encode() not in origin.received()
    assert origin.connections_accepted == 1


def test_a_handshake_that_takes_too_long_is_a_timeout(
    start: Start, ca: CertificateAuthority, dns: DnsStub
) -> None:
    silent = start(SilentOrigin())
    port = start(secured_broker(silent.port, ca, dns, connect_timeout_s=0.3))
    refused = call(port, host=API_HOST).ask("GET")
    assert (refused.status, refused.value("X-Proxy-Error")) == (504, "upstream-timeout")
    assert port.log.only(Ended).reason is Reason.UPSTREAM_TIMEOUT


def test_an_upstream_that_breaks_off_the_handshake_is_told_as_such(
    start: Start, ca: CertificateAuthority, dns: DnsStub
) -> None:
    origin = start(ResetOrigin())
    port = start(secured_broker(origin.port, ca, dns))
    refused = call(port, host=API_HOST).ask("GET")
    assert (refused.status, refused.value("X-Proxy-Error")) == (502, "upstream-tls")
    assert port.log.only(Ended).reason is Reason.UPSTREAM_TLS


async def test_a_handshake_that_is_cancelled_leaves_no_descriptor(
    start: Start, ca: CertificateAuthority
) -> None:
    silent = start(SilentOrigin())
    route = rule(silent.port, host=API_HOST, scheme=Scheme.HTTPS)
    bench = Bench(ca.client_context)
    before = open_descriptors(os.getpid())
    async with asyncio.TaskGroup() as group:
        task = group.create_task(bench.pool.lane(route).acquire(allowed(route, OptIn.INWARD)))
        await asyncio.to_thread(silent.wait_for_bytes, 1)
        task.cancel()
    await eventually_done(lambda: open_descriptors(os.getpid()) <= before + 1)  # the origin's end may last
    assert silent.wait_for_end()


# Dialling.


def test_an_upstream_that_refuses_connections_is_unreachable(start: Start) -> None:
    with closed_port() as closed:
        port = start(broker_to(closed))
        refused = call(port).ask("GET")
    assert (refused.status, refused.value("X-Proxy-Error")) == (502, "upstream-unreachable")
    assert port.log.only(Ended).reason is Reason.UPSTREAM_REFUSED


def test_an_upstream_that_does_not_answer_the_dial_is_a_timeout(start: Start) -> None:
    stuck = start(StuckOrigin())
    port = start(broker_to(stuck.port, connect_timeout_s=0.3))
    refused = call(port).ask("GET")
    assert (refused.status, refused.value("X-Proxy-Error")) == (504, "upstream-timeout")
    assert port.log.only(Ended).reason is Reason.UPSTREAM_TIMEOUT


@pytest.mark.parametrize("address", ["93.184.215.14", "10.0.0.1", "169.254.1.1"])
def test_plain_http_goes_to_loopback_alone_whatever_the_name_says(
    start: Start, dns: DnsStub, address: str
) -> None:
    dns.add(API_HOST, address)
    route = rule(80, host=API_HOST)
    port = start(
        broker(start(Provider()), route=route, resolver=dns.address, private=[API_HOST], connect_timeout_s=2)
    )
    refused = call(port, host=API_HOST).ask("GET")
    assert (refused.status, refused.value("X-Proxy-Error")) == (403, "blocked-by-address")
    assert port.log.only(Ended).reason is Reason.ADDRESS_NOT_PUBLIC


def broker_to(upstream_port: int, **options: Any) -> DataPort:
    route = rule(upstream_port)
    return DataPort(routes=[route], credentials={route.name: credential(SECRET)}, **options)
