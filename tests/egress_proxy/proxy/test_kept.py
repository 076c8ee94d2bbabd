"""Clients between two requests: they cost no task, nor does a common request; all else is served as ever.

Through a running data port and a scripted provider, by both doors where they could differ. What an exchange
does is in test_exchange.py, what is refused in test_forward.py. See egress_proxy/proxy/kept.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from egress_proxy.core.access import Client
from egress_proxy.core.decision import Reason
from egress_proxy.core.events import Decided, EndCause, Ended, Event, Faulted
from egress_proxy.core.policy import Policy
from egress_proxy.core.seams import AuditUnavailable
from egress_proxy.proxy import injected, listener
from egress_proxy.proxy.answering import Answering
from egress_proxy.proxy.connection import Connection
from egress_proxy.proxy.exchange import Exchange, OnEnd
from egress_proxy.proxy.forward import Claim, Forwarder
from egress_proxy.proxy.order import ExchangeEnd
from egress_proxy.proxy.peer import Peer
from egress_proxy.proxy.rejudge import request_is_unwanted
from egress_proxy.proxy.stream import SocketStream
from egress_proxy.proxy.upstream_pool import Lane
from egress_proxy.vault.injection import Rewriter
from tests.conftest import Start
from tests.egress_proxy.proxy.brokers import (
    API_HOST,
    DOORS,
    PLAIN_HOST,
    SECRET,
    Caller,
    broker,
    call,
    rule,
    secured_broker,
)
from tests.egress_proxy.proxy.held_upstream import HeldUpstream
from tests.egress_proxy.proxy.hellos import hello
from tests.egress_proxy.proxy.socket_pairs import connected_pair
from tests.support.answers import chunked, close, fixed, held, play, read_body
from tests.support.byte_stream import End, close_with_reset, read_end, read_until_end
from tests.support.certificates import CertificateAuthority, server_context
from tests.support.data_port import CONNECTIONS, DataPort, credential
from tests.support.deadline import eventually
from tests.support.dns_stub import DnsStub
from tests.support.http import read_head, read_response, request_bytes
from tests.support.live_stream import LiveStream
from tests.support.origins import StuckOrigin
from tests.support.proc_figures import open_descriptors
from tests.support.provider import Provider
from tests.support.service_answers import connect_request

OK = fixed(b"ok")
URL = f"http://{PLAIN_HOST}"
GET = request_bytes("GET", URL + "/", [("Host", PLAIN_HOST)])
A_TASK = ["Intake._serve"]

by_both_doors = pytest.mark.parametrize("door", DOORS)
by_both_ways = pytest.mark.parametrize("way", ["in a task", "without one"])


@pytest.fixture
def provider(start: Start) -> Provider:
    provider = start(Provider())
    provider.otherwise(OK)
    return provider


@pytest.fixture
def port(start: Start, provider: Provider) -> DataPort:
    return start(broker(provider))


def settled(port: DataPort) -> None:
    """Wait until no client has a task."""
    eventually(lambda: port.tasks() == 1, what="the clients' tasks to end")


def kept(port: DataPort, door: str = "absolute") -> Caller:
    """A client between two requests; the upstream of its first one is kept, too."""
    caller = call(port, door)
    assert caller.ask("GET").status == 200
    settled(port)
    return caller


def served(port: DataPort, way: str, door: str = "absolute") -> Caller:
    """A client whose next request is served this way, and goes to the upstream that is kept for it."""
    caller = kept(port, door)
    return caller if way == "without one" else call(port, door)


def close_upstream(provider: Provider) -> None:
    """The provider closes the one connection that is kept at its end."""
    provider.wait_for_idle()
    assert provider.close_idle() == 1


@contextlib.contextmanager
def started(port: DataPort) -> Iterator[list[str]]:
    """Names of the coroutines that become tasks of the port within the block; those of `call` not."""
    names: list[str] = []

    def note(loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        name = getattr(coro, "__qualname__", "")
        if "on_loop" not in name:
            names.append(name)
        return asyncio.Task(coro, loop=loop)

    port.call(lambda: port.loop.set_task_factory(note))  # type: ignore[arg-type]
    yield names
    port.call(lambda: port.loop.set_task_factory(None))


# No task.


@by_both_doors
def test_a_client_between_two_requests_costs_no_task(port: DataPort, door: str) -> None:
    for _ in range(5):
        kept(port, door)
    assert port.tasks() == 1


@by_both_doors
def test_a_common_request_costs_no_task(port: DataPort, provider: Provider, door: str) -> None:
    caller = kept(port, door)
    with started(port) as tasks:
        for _ in range(3):
            assert caller.ask("GET").body == b"ok"
        assert caller.ask("POST", body=b"x" * 200_000).body == b"ok"
        assert caller.ask("HEAD").status == 200
    assert tasks == []
    assert provider.connections_accepted == 1


@by_both_doors
def test_a_request_that_waits_for_its_answer_costs_no_task(
    port: DataPort, provider: Provider, door: str
) -> None:
    caller = kept(port, door)
    gate = threading.Event()
    provider.on("/slow", held(gate, OK))
    with started(port) as tasks:
        caller.send("GET", "/slow")
        provider.wait_for_requests(2)
        gate.set()
        assert read_response(caller.sock).body == b"ok"
    assert tasks == []


def test_requests_that_were_sent_at_once_are_answered_in_order_without_a_task(
    port: DataPort, provider: Provider
) -> None:
    caller = kept(port)
    for number in range(20):
        provider.on(f"/{number}", fixed(b"%d" % number))
    with started(port) as tasks:
        for number in range(20):
            caller.send("POST", f"/{number}", body=b"body of %d" % number)
        assert [read_response(caller.sock).body for _ in range(20)] == [b"%d" % n for n in range(20)]
    assert tasks == []
    assert [request.body for request in provider.requests[1:]] == [b"body of %d" % n for n in range(20)]


def test_a_request_that_comes_while_the_one_before_is_answered_waits_for_its_turn(
    port: DataPort, provider: Provider
) -> None:
    caller = kept(port)
    stream = LiveStream()
    provider.on("/events", stream)
    provider.on("/next", fixed(b"next"))
    caller.send("GET", "/events")
    read_head(caller.sock)
    with started(port) as tasks:
        caller.send("GET", "/next")
        stream.event("one")
        stream.finish()
        provider.wait_for_requests(3)
        received = b""
        while not received.endswith(b"next"):
            received += caller.sock.recv(65_536)
    assert received.startswith(b"b\r\ndata: one\n\n\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n")
    assert tasks == []


def test_every_request_is_written_down_as_by_a_task(port: DataPort) -> None:
    caller = kept(port)
    assert caller.ask("GET").status == 200
    first, second = port.log.of(Decided)
    assert (second.client, second.peer, second.door, second.method) == (
        first.client,
        first.peer,
        first.door,
        first.method,
    )
    assert (second.target, second.rule, second.status) == (first.target, first.rule, first.status)
    ids = [event.request_id for event in (first, second)]
    assert [event.request_id for event in port.log.wait_for(Ended, 2)] == ids
    assert len(set(ids)) == 2


def test_bytes_are_counted_as_carried(port: DataPort, provider: Provider) -> None:
    caller = kept(port)
    provider.on("/", chunked(b"y" * 7_000, b"z" * 13_000))
    assert len(caller.ask("POST", body=b"x" * 100_000).body) == 20_000
    ended = port.log.wait_for(Ended, 2)[1]
    assert (ended.bytes_out, ended.bytes_in, ended.status) == (100_000, 20_000, 200)
    assert ended.cause is EndCause.DONE
    assert ended.duration_s >= 0


# What is not common.


@pytest.mark.parametrize(
    ("octets", "status", "code"),
    [
        (request_bytes("GET", "http://other.test/", [("Host", "other.test")]), 403, "not-allowed"),
        (request_bytes("TRACE", URL + "/", [("Host", PLAIN_HOST)]), 405, None),
        (
            request_bytes("POST", URL + "/", [("Host", PLAIN_HOST), ("Transfer-Encoding", "chunked")]),
            501,
            None,
        ),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 400, None),
        (b"GET  http://127.0.0.1/ HTTP/1.1\r\n\r\n", 400, None),
        (b"GET http://127.0.0.1/ HTTP/1.1\r\nX: " + b"x" * 17_000 + b"\r\n\r\n", 431, None),
        (b"no request at all\r\n", 400, None),
        (connect_request("other.test:443"), 403, None),
    ],
    ids=["other", "TRACE", "chunked", "origin form", "grammar", "too large", "not HTTP", "CONNECT"],
)
def test_a_kept_client_is_refused_as_a_new_one_is(
    port: DataPort, provider: Provider, octets: bytes, status: int, code: str | None
) -> None:
    caller = kept(port)
    as_new = port.ask(octets)
    with started(port) as tasks:
        caller.sock.sendall(octets)
        refused = read_response(caller.sock)
        assert read_end(caller.sock) is End.EOF
    assert tasks == A_TASK
    assert (refused.status, as_new.status) == (status, status)
    assert refused.value("X-Proxy-Error") == as_new.value("X-Proxy-Error")
    new, old = port.log.of(Decided)[-2:]
    assert (old.reason, old.detail, old.target) == (new.reason, new.detail, new.target)
    assert old.request_id != new.request_id
    assert len(provider.requests) == 1


def test_another_protocol_on_a_kept_connection_is_closed_without_a_word(port: DataPort) -> None:
    caller = kept(port)
    caller.sock.sendall(hello())
    received, end = read_until_end(caller.sock)
    assert received == b""
    assert end is not End.OPEN
    assert port.log.of(Decided)[-1].reason is Reason.NOT_HTTP


@pytest.mark.parametrize("cut", [1, 10, len(GET) - 3, len(GET) - 1])
def test_a_head_in_two_pieces_is_served(port: DataPort, provider: Provider, cut: int) -> None:
    caller = kept(port)
    with started(port) as tasks:
        caller.sock.sendall(GET[:cut])
        eventually(lambda: port.tasks() == 2, what="a task for the half head")
        caller.sock.sendall(GET[cut:])
        assert read_response(caller.sock).body == b"ok"
    assert tasks == A_TASK
    settled(port)
    with started(port) as tasks:
        assert caller.ask("GET").body == b"ok"
    assert tasks == []


def test_half_a_head_behind_a_whole_request_is_served_when_it_is_whole(
    port: DataPort, provider: Provider
) -> None:
    caller = kept(port)
    caller.sock.sendall(GET + GET[:20])
    assert read_response(caller.sock).body == b"ok"
    caller.sock.sendall(GET[20:])
    assert read_response(caller.sock).body == b"ok"
    assert len(provider.requests) == 3


def test_half_a_head_has_its_time_like_any_other(start: Start, provider: Provider) -> None:
    limits = type(CONNECTIONS)(head_bytes=16_384, head_s=0.2, keep_alive_s=60)
    caller = kept(start(broker(provider, connections=limits)))
    caller.sock.sendall(GET[:20])
    assert read_response(caller.sock).status == 408


@pytest.mark.parametrize(
    "octets",
    [
        request_bytes("GET", URL + "/", version="HTTP/1.0"),
        request_bytes("GET", URL + "/", [("Host", PLAIN_HOST), ("Connection", "close")]),
    ],
    ids=["HTTP/1.0", "Connection: close"],
)
def test_a_client_that_will_not_be_kept_gets_its_answer_and_an_end(
    port: DataPort, provider: Provider, octets: bytes
) -> None:
    caller = kept(port)
    caller.sock.sendall(octets + GET)  # what comes behind it is no request
    answer, end = read_until_end(caller.sock)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\nok")
    assert b"\r\nConnection: close\r\n" in answer
    assert end is End.EOF
    assert len(provider.requests) == 2
    settled(port)


def test_without_a_kept_upstream_one_is_dialled_in_a_task(port: DataPort, provider: Provider) -> None:
    caller = kept(port)
    close_upstream(provider)
    with started(port) as tasks:
        assert caller.ask("POST", body=b"x").body == b"ok"
    assert tasks == A_TASK
    assert provider.connections_accepted == 2
    assert len(port.log.wait_for(Ended, 2)) == 2


def test_two_clients_at_once_never_share_an_upstream(port: DataPort, provider: Provider) -> None:
    one, two = kept(port), kept(port)
    assert provider.connections_accepted == 1
    gate = threading.Event()
    provider.on("/slow", held(gate, fixed(b"slow")))
    one.send("GET", "/slow")
    provider.wait_for_requests(3)
    with started(port) as tasks:
        assert two.ask("GET").body == b"ok"
    assert tasks == A_TASK
    gate.set()
    assert read_response(one.sock).body == b"slow"
    assert provider.connections_accepted == 2


def test_a_kept_client_may_go_through_a_connect_to_the_rules_host(port: DataPort) -> None:
    caller = kept(port)
    caller.sock.sendall(connect_request(f"{PLAIN_HOST}:80"))
    assert read_head(caller.sock).status == 200
    settled(port)
    inside = Caller(caller.sock, "", PLAIN_HOST)
    with started(port) as tasks:
        assert inside.ask("GET").body == b"ok"
    assert tasks == []
    assert inside.ask("CONNECT", f"{PLAIN_HOST}:80").status == 405


def test_while_draining_a_kept_client_is_refused_and_nothing_is_sent(
    port: DataPort, provider: Provider
) -> None:
    caller = kept(port)
    port.is_draining = True
    assert caller.ask("GET").status == 503
    assert port.log.of(Decided)[-1].reason is Reason.DRAINING
    assert len(provider.requests) == 1


def test_a_policy_that_changed_holds_from_the_next_request_on(port: DataPort, provider: Provider) -> None:
    caller = kept(port)
    elsewhere = broker(provider, route=rule(provider.port, paths=(b"/only/this",))).setup.policy()

    def reload() -> None:
        port.parts.in_force.policy = elsewhere

    port.call(reload)
    assert caller.ask("GET", "/other").status == 403
    assert len(provider.requests) == 1


def refusing(kind: type[Event], error: type[Exception] = AuditUnavailable) -> Callable[[Event], None]:
    def refuse(event: Event) -> None:
        if isinstance(event, kind):
            raise error

    return refuse


def test_what_cannot_be_written_down_is_not_sent_and_its_upstream_stays_kept(
    port: DataPort, provider: Provider
) -> None:
    caller, other = kept(port), kept(port)
    sound = port.log.refusing
    port.log.refusing = refusing(Decided)
    assert caller.ask("GET").value("X-Proxy-Error") == "audit-unavailable"
    assert len(provider.requests) == 2
    port.log.refusing = sound
    with started(port) as tasks:
        assert other.ask("GET").body == b"ok"
    assert tasks == []
    assert provider.connections_accepted == 1


def test_an_end_that_cannot_be_written_down_keeps_nobody_from_being_served(port: DataPort) -> None:
    caller = kept(port)
    port.log.wait_for(Ended)
    port.log.refusing = refusing(Ended)
    for _ in range(2):
        assert caller.ask("GET").body == b"ok"
    assert len(port.log.of(Ended)) == 1


# A kept upstream that turns out to be dead.


@by_both_doors
def test_a_request_on_a_dead_upstream_is_repeated_once_on_a_new_one(
    port: DataPort, provider: Provider, door: str
) -> None:
    caller = kept(port, door)
    provider.on("/dies", play(read_body, close), OK)
    with started(port) as tasks:
        assert caller.ask("GET", "/dies").body == b"ok"
    assert tasks == A_TASK
    assert [request.connection for request in provider.requests] == [0, 0, 1]
    ended = port.log.wait_for(Ended, 2)
    assert [one.cause for one in ended] == [EndCause.DONE] * 2
    assert ended[1].request_id == port.log.of(Decided)[-1].request_id
    settled(port)
    with started(port) as tasks:
        assert caller.ask("GET").body == b"ok"
    assert tasks == []


@by_both_doors
def test_a_request_that_could_do_something_twice_is_a_502_on_a_dead_upstream(
    port: DataPort, provider: Provider, door: str
) -> None:
    caller = kept(port, door)
    provider.on("/dies", play(read_body, close), OK)
    refused = caller.ask("POST", "/dies", body=b"x")
    assert (refused.status, refused.value("X-Proxy-Error")) == (502, "upstream-protocol")
    assert read_end(caller.sock) is End.EOF
    assert len(provider.requests) == 2
    ended = port.log.wait_for(Ended, 2)[1]
    assert (ended.cause, ended.reason, ended.status) == (EndCause.FAULT, Reason.UPSTREAM_PROTOCOL, 502)
    settled(port)


@by_both_ways
@by_both_doors
@pytest.mark.parametrize("reload", ["another upstream", "another host", "removed"])
def test_a_request_is_not_repeated_once_its_rule_is_not_the_one_that_admitted_it(
    start: Start, port: DataPort, provider: Provider, way: str, door: str, reload: str
) -> None:
    """The rule's name leads to another host by then, with a secret that the old one must not get."""
    other = start(Provider())
    rules = {
        "another upstream": (rule(other.port),),
        "another host": (rule(other.port, host="127.0.0.2"),),
        "removed": (),
    }
    caller = served(port, way, door)
    gate = threading.Event()
    provider.on("/dies", play(read_body, gate, close))
    caller.send("GET", "/dies")
    provider.wait_for_requests(2)
    seen = provider.octets_received

    def swap() -> None:
        port.parts.in_force.policy = Policy(routes=rules[reload])
        port.parts.in_force.credentials = {"provider": credential("sk-OTHER-456")} if rules[reload] else {}

    port.call(swap)
    gate.set()
    refused = read_response(caller.sock)
    assert (refused.status, refused.value("X-Proxy-Error")) == (403, "blocked-by-policy")
    assert read_end(caller.sock) is End.EOF
    ended = port.log.wait_for(Ended, 2)
    assert (ended[1].cause, ended[1].reason) == (EndCause.FAULT, Reason.INJECT_OTHER_TARGET)
    eventually(lambda: provider.open_connections == 0, what="what was dialled in vain to be closed")
    assert provider.octets_received == seen
    assert other.connections_accepted == 0


@by_both_ways
def test_a_request_is_repeated_with_the_secret_that_its_rule_has_by_then(
    port: DataPort, provider: Provider, way: str
) -> None:
    caller = served(port, way)
    gate = threading.Event()
    provider.on("/dies", play(read_body, gate, close), OK)
    caller.send("GET", "/dies")
    provider.wait_for_requests(2)

    def rotate() -> None:
        port.parts.in_force.credentials = {"provider": credential("sk-NEXT-456")}

    port.call(rotate)
    gate.set()
    assert read_response(caller.sock).body == b"ok"
    sent = [request.value("Authorization") for request in provider.requests[1:]]
    assert sent == ["Bearer sk-CANARY-123", "Bearer sk-NEXT-456"]


# The time and the end of a kept client.


def with_keep_alive(provider: Provider, keep_alive_s: float) -> DataPort:
    return broker(
        provider, connections=type(CONNECTIONS)(head_bytes=16_384, head_s=10, keep_alive_s=keep_alive_s)
    )


def test_a_client_that_stays_idle_is_closed_without_a_word(start: Start, provider: Provider) -> None:
    port = start(with_keep_alive(provider, 0.2))
    before = open_descriptors(os.getpid())
    caller = kept(port)
    assert read_end(caller.sock) is End.EOF
    caller.sock.close()
    close_upstream(provider)
    port.call(port.pool.close_idle)
    eventually(lambda: open_descriptors(os.getpid()) <= before)
    assert len(port.log.of(Decided)) == len(port.log.of(Ended)) == 1


def test_the_time_to_be_idle_is_no_limit_on_an_exchange_and_begins_behind_it(
    start: Start, provider: Provider
) -> None:
    port = start(with_keep_alive(provider, 0.3))
    caller = kept(port)
    stream = LiveStream()
    provider.on("/slow", stream)
    caller.send("GET", "/slow")
    read_head(caller.sock)
    caller.sock.settimeout(0.5)  # what is promised here is about time that passes
    with pytest.raises(TimeoutError):
        caller.sock.recv(1)
    stream.finish()
    assert caller.sock.recv(100) == b"0\r\n\r\n"
    assert caller.ask("GET").body == b"ok"
    assert read_end(caller.sock) is End.EOF


def test_the_time_to_be_idle_does_not_end_a_client_that_is_being_dialled_for(
    start: Start, provider: Provider
) -> None:
    stuck = start(StuckOrigin())
    limits = type(CONNECTIONS)(head_bytes=16_384, head_s=10, keep_alive_s=0.2)
    port = start(broker(provider, allow=[stuck.address], connections=limits, connect_timeout_s=0.6))
    caller = call(port)
    assert caller.ask("GET").status == 200
    caller.sock.sendall(connect_request(stuck.address))
    assert read_response(caller.sock).status == 504


@pytest.mark.parametrize("leave", [close_with_reset, socket.socket.close], ids=["reset", "close"])
def test_a_client_that_leaves_between_two_requests_leaves_nothing(
    port: DataPort, leave: Callable[[socket.socket], None]
) -> None:
    kept(port)  # so that the upstream's connection is there before
    before = port.registered_descriptors()
    pair = connected_pair()
    port.close_at_end(pair.peer)
    port.call(lambda: port.intake.serve(SocketStream(port.loop, pair.ours), Peer("test")))
    assert Caller(pair.peer, URL).ask("GET").status == 200
    settled(port)
    assert port.registered_descriptors() == before + 1
    leave(pair.peer)
    eventually(lambda: pair.ours.fileno() == -1, what="our end to be closed")
    assert port.registered_descriptors() == before
    assert port.call(lambda: len(port.intake._kept)) == 1
    assert len(port.log.of(Decided)) == 2


def test_draining_closes_who_is_idle_and_waits_for_who_is_not(port: DataPort, provider: Provider) -> None:
    idle, busy = kept(port), kept(port)
    gate = threading.Event()
    provider.on("/slow", held(gate, fixed(b"slow")))
    with started(port) as tasks:
        busy.send("GET", "/slow")
        provider.wait_for_requests(3)
        assert port.call(port.intake.end_idle) == 1
        assert read_end(idle.sock) is End.EOF
        gate.set()
        assert read_response(busy.sock).body == b"slow"
        eventually(lambda: port.call(port.intake.end_idle) == 0)
    assert read_end(busy.sock) is End.EOF
    assert tasks == []
    assert [ended.cause for ended in port.log.of(Ended)] == [EndCause.DONE] * 3


def begun(caller: Caller, provider: Provider) -> LiveStream:
    """A stream whose head the client has, and which then is silent."""
    stream = LiveStream()
    provider.on("/events", stream)
    caller.send("GET", "/events")
    read_head(caller.sock)
    return stream


def test_the_end_of_the_service_cuts_an_exchange_and_writes_that_down(
    port: DataPort, provider: Provider
) -> None:
    caller, idle = kept(port), kept(port)
    stream = begun(caller, provider)
    assert port.tasks() == 1
    port.stop()
    assert read_until_end(caller.sock) == (b"", End.RESET)
    assert read_end(idle.sock) is End.EOF
    assert stream.await_hangup() is End.RESET
    assert port.log.of(Ended)[-1].cause is EndCause.DRAINED
    assert len(port.log.of(Ended)) == len(port.log.of(Decided)) == 3


@by_both_ways
@pytest.mark.parametrize("gone", ["rule", "denied", "credential", "nothing"])
def test_a_reload_cuts_the_exchanges_that_are_no_longer_allowed(
    port: DataPort, provider: Provider, way: str, gone: str
) -> None:
    caller = served(port, way)
    stream = begun(caller, provider)

    def reload() -> int:
        if gone == "rule":
            port.setup.routes = []
        if gone == "denied":
            port.setup.deny = [PLAIN_HOST]
        port.parts.in_force.policy = port.setup.policy()
        text = "another" if gone == "credential" else SECRET
        port.parts.in_force.credentials = {"provider": credential(text)}
        return port.intake.end_unwanted(
            lambda exchange, access, peer: request_is_unwanted(exchange, access, peer, port.parts)
        )

    port.parts.forwarder._credentials = lambda: port.parts.in_force.credentials
    assert port.call(reload) == (gone != "nothing")
    if gone == "nothing":
        return
    assert read_until_end(caller.sock) == (b"", End.RESET)
    assert stream.await_hangup() is End.RESET
    eventually(lambda: port.log.of(Ended)[-1].cause is EndCause.POLICY_CHANGED)
    assert len(port.log.of(Ended)) == len([one for one in port.log.of(Decided) if one.reason is None])


SANDBOX = Client("sandbox-1")


def come_in(port: DataPort, sandbox: Client, host: str = PLAIN_HOST) -> Caller:
    """A client that came by a sandbox's own listener."""
    pair = connected_pair()
    port.close_at_end(pair.peer)
    port.call(lambda: port.intake.serve(SocketStream(port.loop, pair.ours), Peer("test", sandbox)))
    return Caller(pair.peer, f"http://{host}", host)


def test_the_end_of_a_sandbox_cuts_its_exchanges_and_nobody_elses(port: DataPort, provider: Provider) -> None:
    busy, idle, other = (
        come_in(port, SANDBOX),
        come_in(port, SANDBOX),
        come_in(port, Client("sandbox-2")),
    )
    for caller in (busy, idle, other):
        assert caller.ask("GET").status == 200
    settled(port)
    stream = begun(busy, provider)
    assert port.tasks() == 1
    port.call(lambda: port.intake.end_client(SANDBOX))
    assert read_until_end(busy.sock) == (b"", End.RESET)
    assert read_end(idle.sock) is End.EOF
    assert stream.await_hangup() is End.RESET
    ended = port.log.wait_for(Ended, 4)[-1]
    assert (ended.client, ended.cause) == (SANDBOX, EndCause.SANDBOX_ENDED)
    assert other.ask("GET").body == b"ok"


@pytest.mark.parametrize("requests", [1, 2], ids=["in a task", "without one"])
def test_a_sandbox_that_ends_right_after_an_exchange_keeps_no_connection(
    port: DataPort, monkeypatch: pytest.MonkeyPatch, requests: int
) -> None:
    """Its exchange is over, and whoever waited for that had no turn yet: it must not be kept then."""
    caller = come_in(port, SANDBOX)
    for _ in range(requests - 1):
        assert caller.ask("GET").status == 200
    if requests > 1:
        settled(port)
    exchange = Forwarder.exchange

    def exchange_and_end(self: Forwarder, claim: Claim, client: SocketStream, on_end: OnEnd) -> object:
        def hear(over: Exchange, end: ExchangeEnd) -> None:
            on_end(over, end)
            port.intake.end_client(SANDBOX)

        return exchange(self, claim, client, hear)

    monkeypatch.setattr(Forwarder, "exchange", exchange_and_end)
    caller.send("GET")
    received, end = read_until_end(caller.sock, 1.0)
    assert received.endswith(b"ok")
    assert end is not End.OPEN
    assert len(port.log.wait_for(Ended, requests)) == requests


def test_kept_clients_count_among_those_that_there_may_be(
    start: Start, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "connection_limit", lambda: 3)
    port = start(broker(provider))
    callers = [kept(port) for _ in range(3)]
    assert callers[0].ask("GET").status == 200
    kept(port)
    assert port.call(lambda: len(port.intake._kept)) == 3
    # Who has been idle for the longest made way.
    assert [read_end(callers[1].sock), callers[0].ask("GET").status] == [End.EOF, 200]
    assert callers[2].ask("GET").status == 200


# Every request that went out, or was about to, has its one end line.


def ends_of_all(port: DataPort) -> list[EndCause]:
    """How each request that was allowed ended, in order; each has exactly one end."""
    allowed = [event.request_id for event in port.log.of(Decided) if event.verdict == "allow"]
    ended = port.log.wait_for(Ended, len(allowed))
    assert sorted(event.request_id for event in ended) == sorted(allowed)
    return [event.cause for event in sorted(ended, key=lambda event: allowed.index(event.request_id))]


CAUSES = {"sandbox": EndCause.SANDBOX_ENDED, "service": EndCause.DRAINED}
by_both_ends = pytest.mark.parametrize("who", CAUSES)


def end(port: DataPort, who: str) -> None:
    if who == "service":
        port.stop()
    else:
        port.call(lambda: port.intake.end_client(SANDBOX))


@by_both_ends
def test_a_request_whose_client_is_ended_while_it_is_dialled_for_has_its_end_line(
    start: Start, ca: CertificateAuthority, dns: DnsStub, who: str
) -> None:
    provider = start(HeldUpstream(server_context(ca.leaf(API_HOST))))
    port = start(secured_broker(provider.port, ca, dns))
    caller = come_in(port, SANDBOX, API_HOST)
    caller.send("GET")
    provider.wait_for_connections(1)
    assert port.log.of(Ended) == []
    end(port, who)
    assert read_end(caller.sock) is not End.OPEN
    assert ends_of_all(port) == [CAUSES[who]]
    provider.gate.set()
    provider.wait_for_closed()
    assert provider.octets_received == 0


@by_both_ends
@by_both_ways
def test_a_request_whose_client_is_ended_while_it_is_dialled_for_again_has_one_end_line(
    start: Start, ca: CertificateAuthority, dns: DnsStub, way: str, who: str
) -> None:
    provider = start(HeldUpstream(server_context(ca.leaf(API_HOST)), held_from=1))
    provider.otherwise(OK)
    provider.on("/dies", play(read_body, close))
    port = start(secured_broker(provider.port, ca, dns))
    caller = come_in(port, SANDBOX, API_HOST)
    assert caller.ask("GET").status == 200
    settled(port)
    if way == "in a task":
        caller = come_in(port, SANDBOX, API_HOST)
    caller.send("GET", "/dies")
    provider.wait_for_connections(2)
    end(port, who)
    assert read_end(caller.sock) is not End.OPEN
    assert ends_of_all(port) == [EndCause.DONE, CAUSES[who]]
    provider.gate.set()
    provider.wait_for_closed(1)
    assert len(provider.requests) == 2


@by_both_ends
def test_a_request_whose_client_is_ended_before_it_could_be_repeated_has_one_end_line(
    port: DataPort, provider: Provider, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    """The task that is to repeat it has been made, and had no turn yet."""
    caller = come_in(port, SANDBOX)
    assert caller.ask("GET").status == 200
    settled(port)
    provider.on("/dies", play(read_body, close))
    exchange = Forwarder.exchange

    def exchange_and_end(self: Forwarder, claim: Claim, client: SocketStream, on_end: OnEnd) -> object:
        def hear(over: Exchange, how: ExchangeEnd) -> None:
            on_end(over, how)
            if who == "sandbox":
                port.intake.end_client(SANDBOX)
            else:
                port.intake.end_all()

        return exchange(self, claim, client, hear)

    monkeypatch.setattr(Forwarder, "exchange", exchange_and_end)
    caller.send("GET", "/dies")
    assert read_end(caller.sock) is not End.OPEN
    settled(port)
    assert ends_of_all(port) == [EndCause.DONE, CAUSES[who]]


def fail(*_: object) -> None:
    raise RuntimeError("canary")


def break_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault while it is judged again, with an upstream at hand."""
    monkeypatch.setattr("egress_proxy.proxy.connection.order_is_void", fail)


def break_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault between what was written down and what is sent."""
    monkeypatch.setattr("egress_proxy.proxy.forward.Exchange", fail)


def break_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault when all is over, in what becomes of the upstream."""
    monkeypatch.setattr(Lane, "release", fail)


by_all_faults = pytest.mark.parametrize(
    ("way", "break_it"),
    [
        ("in a task", break_judge),
        ("in a task", break_exchange),
        ("in a task", break_release),
        ("without one", break_exchange),
        ("without one", break_release),
    ],
)


@by_all_faults
def test_a_fault_around_an_exchange_leaves_its_request_one_end_line(
    start: Start,
    provider: Provider,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    break_it: Callable[[pytest.MonkeyPatch], None],
) -> None:
    port = start(broker(provider, expect_faults=True))
    bad = served(port, way)
    break_it(monkeypatch)
    bad.send("GET")
    assert read_until_end(bad.sock)[1] is not End.OPEN
    port.log.wait_for(Faulted)
    assert ends_of_all(port)[-1] is EndCause.FAULT


# Faults of ours.


def test_a_fault_before_an_exchange_ends_that_client_alone_and_is_logged_once(
    start: Start, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = start(broker(provider, expect_faults=True))
    bad, good = kept(port), kept(port)

    def fail(*_: object) -> None:
        raise RuntimeError("canary")

    with monkeypatch.context() as patched:
        patched.setattr(injected, "decide", fail)
        bad.send("GET")
        assert read_end(bad.sock) is not End.OPEN
        fault = port.log.only(Faulted)
    assert fault.error == "RuntimeError"
    assert fault.where.startswith("test_kept.py:")
    assert "canary" not in repr(fault)
    assert fault.request_id not in {event.request_id for event in port.log.of(Decided)}
    assert good.ask("GET").body == b"ok"
    assert len(provider.requests) == 3


def test_a_fault_that_cannot_be_logged_still_ends_that_client_alone(
    start: Start, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = start(broker(provider, expect_faults=True))
    bad, good = kept(port), kept(port)

    def fail(*_: object) -> None:
        raise RuntimeError

    sound = port.log.refusing
    port.log.refusing = refusing(Faulted)
    with monkeypatch.context() as patched:
        patched.setattr(injected, "decide", fail)
        bad.send("GET")
        assert read_end(bad.sock) is not End.OPEN
    port.log.refusing = sound
    assert good.ask("GET").body == b"ok"


def test_a_fault_once_an_upstream_was_claimed_lets_go_of_that(start: Start, provider: Provider) -> None:
    port = start(broker(provider, expect_faults=True))
    bad, good = kept(port), kept(port)
    sound = port.log.refusing
    port.log.refusing = refusing(Decided, RuntimeError)
    bad.send("GET")
    assert read_end(bad.sock) is not End.OPEN
    port.log.refusing = sound
    assert port.log.only(Faulted).error == "RuntimeError"
    assert good.ask("GET").body == b"ok"
    settled(port)
    port.call(port.pool.close_idle)
    eventually(lambda: provider.open_connections == 0, what="the upstream that was claimed to be let go")


def test_a_fault_in_an_exchange_ends_that_client_alone_and_is_logged_once(
    start: Start, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = start(broker(provider, expect_faults=True))
    bad, good = kept(port), kept(port)

    def fail(self: Answering, data: bytes) -> bytes:
        raise RuntimeError("canary")

    with monkeypatch.context() as patched:
        patched.setattr(Answering, "take_in", fail)
        bad.send("GET")
        assert read_end(bad.sock) is End.RESET
        fault = port.log.only(Faulted)
    assert (fault.error, fault.request_id) == ("RuntimeError", port.log.of(Decided)[-1].request_id)
    assert fault.where.startswith("test_kept.py:")
    assert "canary" not in repr(fault)
    assert port.log.wait_for(Ended, 3)[-1].cause is EndCause.FAULT
    assert good.ask("GET").body == b"ok"


@by_all_faults
def test_a_fault_around_an_exchange_ends_that_client_alone_is_logged_once_and_leaves_no_socket(
    start: Start,
    provider: Provider,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    break_it: Callable[[pytest.MonkeyPatch], None],
) -> None:
    port = start(broker(provider, expect_faults=True))
    good = kept(port)
    bad = served(port, way)
    port.log.wait_for(Ended, len(port.log.of(Decided)))
    others = port.registered_descriptors() - 1 - (way == "without one")  # its upstream, and it
    with monkeypatch.context() as patched:
        break_it(patched)
        bad.send("GET")
        assert read_until_end(bad.sock)[1] is not End.OPEN
        fault = port.log.only(Faulted)
    assert (fault.error, fault.request_id) == ("RuntimeError", port.log.of(Decided)[-1].request_id)
    assert "canary" not in repr(fault)
    settled(port)
    assert provider.wait_for_closed() is not End.OPEN
    assert port.registered_descriptors() <= others + 1
    assert port.call(port.intake.end_idle) == 0
    assert read_end(good.sock) is End.EOF
    assert call(port).ask("GET").body == b"ok"
    assert port.log.of(Faulted) == [fault]


@by_both_ways
def test_a_fault_in_rewriting_a_head_lets_go_of_the_upstream_that_was_claimed(
    start: Start, provider: Provider, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    port = start(broker(provider, expect_faults=True))
    bad = served(port, way)
    monkeypatch.setattr(Rewriter, "rewrite", fail)
    bad.send("GET")
    assert read_until_end(bad.sock)[1] is not End.OPEN
    assert port.log.only(Faulted).error == "RuntimeError"
    assert provider.wait_for_closed() is not End.OPEN


def test_a_fault_in_writing_down_an_end_is_logged_once_and_hurts_nobody(
    start: Start, provider: Provider
) -> None:
    """The client has its answer by then, and may be in the middle of its next request."""
    port = start(broker(provider, expect_faults=True))
    one, other = kept(port), kept(port)
    port.log.wait_for(Ended, 2)
    sound = port.log.refusing
    port.log.refusing = refusing(Ended, RuntimeError)
    assert one.ask("GET").body == b"ok"
    assert port.log.only(Faulted).error == "RuntimeError"
    port.log.refusing = sound
    for caller in (one, other):
        assert caller.ask("GET").body == b"ok"
    assert len(port.log.wait_for(Ended, 4)) == 4


def clients_of(port: DataPort) -> list[Connection]:
    return list(port.intake._kept._clients)


def come_together(port: DataPort, callers: list[Caller]) -> None:
    """To be run on the loop: what they ask is there before the first of them is heard."""
    clients = clients_of(port)
    for caller in callers:
        caller.send("GET")
    eventually(lambda: all(client.stream.has_input() for client in clients))
    for client in clients:
        port.intake._kept._on_input(client)


def test_requests_that_come_together_are_written_down_before_any_of_them_is_sent(
    port: DataPort, provider: Provider
) -> None:
    gate = threading.Event()
    provider.on("/slow", held(gate, OK))
    callers = [call(port) for _ in range(3)]
    for caller in callers:
        caller.send("GET", "/slow")
    provider.wait_for_requests(3)  # each on an upstream of its own
    gate.set()
    for caller in callers:
        assert read_response(caller.sock).body == b"ok"
    settled(port)
    sent: list[int] = []
    port.log.refusing = lambda event: (
        sent.append(len(provider.requests)) if isinstance(event, Decided) else None
    )
    port.call(lambda: come_together(port, callers))
    for caller in callers:
        assert read_response(caller.sock).body == b"ok"
    assert sent == [3, 3, 3]


def test_what_is_due_when_the_settings_change_is_judged_anew(port: DataPort, provider: Provider) -> None:
    caller = kept(port)

    def ask_and_reload() -> None:
        come_together(port, [caller])
        port.parts.in_force.policy = Policy()

    port.call(ask_and_reload)
    assert read_response(caller.sock).status == 405
    assert len(provider.requests) == 1
    assert len(port.log.of(Decided)) == 2


def test_what_is_due_when_its_client_is_ended_is_neither_sent_nor_leaked(
    port: DataPort, provider: Provider
) -> None:
    caller = come_in(port, SANDBOX)
    assert caller.ask("GET").status == 200
    settled(port)

    def ask_and_end() -> None:
        come_together(port, [caller])
        port.intake.end_client(SANDBOX)

    port.call(ask_and_end)
    assert read_end(caller.sock) is not End.OPEN
    assert len(provider.requests) == 1
    assert kept(port).ask("GET").status == 200
    assert provider.connections_accepted == 1  # the upstream that was claimed has been put back


# Memory.


def objects_of_ours() -> Counter[str]:
    """Those of the inject path that the collector knows, by type."""
    kinds = [type(one) for one in gc.get_objects()]
    return Counter(
        kind.__qualname__ for kind in kinds if str(kind.__module__).startswith("egress_proxy.proxy")
    )


@by_both_doors
def test_a_thousand_exchanges_leave_nothing_behind_even_without_the_collector(
    port: DataPort, door: str
) -> None:
    """A circle of references for each would make every pause of the collector one of all clients."""
    caller = kept(port, door)
    caller.ask("POST", body=b"x" * 1000)
    gc.collect()
    gc.disable()
    try:
        before, timers = objects_of_ours(), port.call(lambda: len(port.loop._scheduled))  # type: ignore[attr-defined]
        for _ in range(500):
            assert caller.ask("GET").status == 200
            assert caller.ask("POST", body=b"x" * 1000).status == 200
        port.log.wait_for(Ended, 1002)
        eventually(lambda: objects_of_ours() - before == Counter(), what="the last one's to go")
        assert port.call(lambda: len(port.loop._scheduled)) <= timers + 2  # type: ignore[attr-defined]
    finally:
        gc.enable()
