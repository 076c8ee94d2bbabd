"""Clients that leave while their upstream is silent: it is let go soon, and nobody who waits is cut off.

Through a running data port, by both doors where they could differ. The rest of an exchange: test_exchange.py.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

import pytest

from egress_proxy.core.events import EndCause, Ended
from egress_proxy.proxy.client_watch import CLIENT_LEFT_S, Presence, presence
from tests.conftest import Start
from tests.egress_proxy.proxy.brokers import DOORS, Caller, broker, call
from tests.egress_proxy.proxy.socket_pairs import await_unread, connected_pair
from tests.support.answers import fixed, held
from tests.support.byte_stream import End, close_with_reset, read_until_end
from tests.support.data_port import DataPort
from tests.support.deadline import DEFAULT_S, eventually
from tests.support.exchange import Exchange
from tests.support.http import read_chunk, read_head, read_response
from tests.support.live_stream import LiveStream
from tests.support.provider import Provider

# What a look tells.


def test_a_look_tells_who_is_quiet_ahead_leaving_or_lost_and_takes_nothing() -> None:
    pair = connected_pair()
    with pair.ours, pair.peer:
        assert presence(pair.ours) is Presence.QUIET
        pair.peer.sendall(b"next")
        await_unread(pair.ours, 4)
        assert presence(pair.ours) is Presence.AHEAD
        assert presence(pair.ours) is Presence.AHEAD
        pair.end_by_peer()
        assert presence(pair.ours) is Presence.AHEAD  # the request comes before the end
        assert pair.ours.recv(100) == b"next"
        assert presence(pair.ours) is Presence.LEFT
        assert presence(pair.ours) is Presence.LEFT


def test_a_look_at_a_client_that_reset_says_so() -> None:
    pair = connected_pair()
    with pair.ours, pair.peer:
        pair.reset_by_peer()
        assert presence(pair.ours) is Presence.RESET


# What follows from it.

by_both_doors = pytest.mark.parametrize("door", DOORS)


@pytest.fixture
def provider(start: Start) -> Provider:
    return start(Provider())


@pytest.fixture
def port(start: Start, provider: Provider) -> DataPort:
    return start(broker(provider))


def ended(port: DataPort) -> Ended:
    return port.log.only(Ended)


def begun(port: DataPort, provider: Provider, door: str = "absolute") -> tuple[Caller, LiveStream]:
    """A client that has the head of a stream, whose upstream then says nothing."""
    stream = LiveStream()
    provider.otherwise(stream)
    caller = call(port, door)
    caller.send("GET")
    read_head(caller.sock)
    return caller, stream


@by_both_doors
@pytest.mark.parametrize("leave", [close_with_reset, socket.socket.close], ids=["reset", "close"])
def test_the_upstream_of_a_client_that_left_is_let_go_although_it_is_silent(
    port: DataPort, provider: Provider, door: str, leave: Callable[[socket.socket], None]
) -> None:
    caller, stream = begun(port, provider, door)
    leave(caller.sock)
    assert stream.await_hangup(CLIENT_LEFT_S + DEFAULT_S) is End.RESET
    assert ended(port).cause is EndCause.CLIENT_RESET


def test_a_reset_of_the_client_is_acted_on_at_once(port: DataPort, provider: Provider) -> None:
    caller, stream = begun(port, provider)
    close_with_reset(caller.sock)
    stream.await_hangup()
    assert ended(port).duration_s < CLIENT_LEFT_S


def test_the_upstream_of_a_client_that_left_before_any_answer_is_let_go(
    port: DataPort, provider: Provider
) -> None:
    ends: list[End] = []

    def say_nothing(exchange: Exchange) -> None:
        exchange.read_body()
        ends.append(exchange.await_hangup())

    provider.otherwise(say_nothing)
    caller = call(port)
    caller.send("POST", body=b"x")
    provider.wait_for_requests(1)
    caller.sock.close()
    provider.wait_for_closed(timeout_s=CLIENT_LEFT_S + DEFAULT_S)
    assert ends == [End.RESET]
    assert ended(port).cause is EndCause.CLIENT_RESET


def test_the_upstream_of_a_client_that_left_within_its_body_is_let_go(
    port: DataPort, provider: Provider
) -> None:
    provider.otherwise(fixed(b"ok"))
    caller = call(port)
    caller.send("POST", headers=[("Content-Length", "10")])
    caller.sock.sendall(b"12345")
    provider.wait_for_requests(1, whole=False)
    caller.sock.close()
    provider.wait_for_closed()
    assert ended(port).cause is EndCause.CLIENT_RESET
    assert ended(port).duration_s < CLIENT_LEFT_S
    assert not provider.only_request.whole


def test_a_client_that_only_ended_its_direction_gets_an_answer_that_comes_soon(
    port: DataPort, provider: Provider
) -> None:
    gate = threading.Event()
    provider.otherwise(held(gate, fixed(b"ok")))
    caller = call(port)
    caller.send("GET")
    caller.sock.shutdown(socket.SHUT_WR)
    provider.wait_for_requests(1)
    gate.set()
    assert read_response(caller.sock).body == b"ok"
    assert ended(port).cause is EndCause.DONE


def test_a_client_that_ended_its_direction_is_given_up_when_the_upstream_pauses(
    port: DataPort, provider: Provider
) -> None:
    caller, stream = begun(port, provider)
    watched = port.registered_descriptors()
    caller.sock.shutdown(socket.SHUT_WR)
    eventually(lambda: port.registered_descriptors() == watched - 1, what="the end to be noticed")
    sent = stream.event("still flowing")
    assert read_chunk(caller.sock) == sent
    assert read_until_end(caller.sock) == (b"", End.RESET)
    assert stream.await_hangup() is End.RESET
    assert ended(port).duration_s >= CLIENT_LEFT_S


def test_a_client_whose_next_request_is_there_has_not_left(port: DataPort, provider: Provider) -> None:
    caller, stream = begun(port, provider)
    provider.on("/next", fixed(b"next"))
    caller.send("GET", "/next")
    stream.event("still there")
    assert read_chunk(caller.sock) == b"data: still there\n\n"
    stream.finish()
    assert read_chunk(caller.sock) == b""
    assert read_response(caller.sock).body == b"next"
    assert provider.requests[-1].method == "GET"  # nothing was taken from it by looking
