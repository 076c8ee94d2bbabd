"""Clients that leave while their upstream is silent: it is let go soon, and nobody who waits is cut off.

Through a running data port, by both doors where they could differ. The rest of an exchange: test_exchange.py.
"""

from __future__ import annotations

import socket
import threading
import time
import zlib
from collections.abc import Callable

import pytest

from egress_proxy.core.events import EndCause
from egress_proxy.proxy import exchange as product
from egress_proxy.proxy.exchange import AHEAD_LIMIT_BYTES, CLIENT_LEFT_S
from egress_proxy.proxy.stream import READ_BYTES
from tests.conftest import Start
from tests.egress_proxy.proxy.brokers import DOORS, SECRET, Caller, broker, call, ended
from tests.egress_proxy.proxy.socket_pairs import fill
from tests.support.answers import bulk, chunk, fixed, head, held, interim
from tests.support.byte_stream import End, close_with_reset, read_exactly, read_until_end
from tests.support.data_port import DataPort
from tests.support.deadline import DEFAULT_S, eventually
from tests.support.exchange import Exchange
from tests.support.http import read_chunk, read_head, read_response, request_bytes
from tests.support.live_stream import LiveStream
from tests.support.origins import pattern
from tests.support.provider import Provider

by_both_doors = pytest.mark.parametrize("door", DOORS)


@pytest.fixture
def provider(start: Start) -> Provider:
    return start(Provider())


@pytest.fixture
def port(start: Start, provider: Provider) -> DataPort:
    return start(broker(provider))


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


def pause(seconds: float) -> None:
    """What is promised here is about time that passes."""
    end = time.monotonic() + seconds
    eventually(lambda: time.monotonic() > end, what="a pause")


def test_a_client_that_ended_its_direction_may_be_slow_to_read_what_is_there(
    port: DataPort, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads nothing for longer than a client that has left is waited for, three times."""
    monkeypatch.setattr(product, "CLIENT_LEFT_S", 0.2)
    size = 30_000_000
    provider.otherwise(bulk(size))
    caller = call(port)
    caller.send("GET")
    caller.sock.shutdown(socket.SHUT_WR)
    read_head(caller.sock)
    received = b""
    for _ in range(3):
        eventually(lambda: port.watched_for_writing() == 1, what="the client's connection to be full")
        pause(0.5)
        received += read_exactly(caller.sock, 6_000_000)
    received += read_exactly(caller.sock, size - len(received))
    assert received == pattern(size)
    assert ended(port).cause is EndCause.DONE


def interim_answers(exchange: Exchange, over: threading.Event) -> None:
    """A client of HTTP/1.0 is shown none of them."""
    while not over.wait(0.05):
        exchange.send(interim(102))


def held_back_text(exchange: Exchange, over: threading.Event) -> None:
    """Compressed, and all behind the beginning of the secret: nothing of it can be sent on."""
    packer = zlib.compressobj(0, zlib.DEFLATED, 31)

    def packed(text: bytes) -> bytes:
        return chunk(packer.compress(text) + packer.flush(zlib.Z_SYNC_FLUSH))

    exchange.send(head(200, [("Content-Encoding", "gzip"), ("Transfer-Encoding", "chunked")]))
    exchange.send(packed(b"text" + SECRET.encode()[:-3]))
    while not over.wait(0.05):
        exchange.send(packed(b""))


@pytest.mark.parametrize("say", [interim_answers, held_back_text])
def test_a_client_that_left_is_not_waited_for_because_the_upstream_says_what_it_cannot_see(
    port: DataPort,
    provider: Provider,
    monkeypatch: pytest.MonkeyPatch,
    say: Callable[[Exchange, threading.Event], None],
) -> None:
    monkeypatch.setattr(product, "CLIENT_LEFT_S", 0.5)
    over = threading.Event()

    def script(exchange: Exchange) -> None:
        exchange.read_body()
        say(exchange, over)

    provider.otherwise(script)
    sock = port.open()
    sock.sendall(request_bytes("GET", "http://127.0.0.1/", [("Accept-Encoding", "gzip")], version="HTTP/1.0"))
    provider.wait_for_requests(1)
    sock.close()
    try:
        assert ended(port).cause is EndCause.CLIENT_RESET
        assert ended(port).duration_s < 2.5
        provider.wait_for_closed()
    finally:
        over.set()


def test_a_client_whose_next_request_is_there_has_not_left(port: DataPort, provider: Provider) -> None:
    caller, stream = begun(port, provider)
    provider.on("/next", fixed(b"next"))
    caller.send("GET", "/next")
    stream.event("still there")
    assert read_chunk(caller.sock) == b"data: still there\n\n"
    stream.finish()
    assert read_chunk(caller.sock) == b""
    assert read_response(caller.sock).body == b"next"
    assert provider.requests[-1].method == "GET"  # nothing was lost by looking


@pytest.mark.parametrize("leave", [close_with_reset, socket.socket.close], ids=["reset", "close"])
def test_a_client_that_leaves_behind_its_next_request_is_let_go(
    port: DataPort, provider: Provider, leave: Callable[[socket.socket], None]
) -> None:
    caller, stream = begun(port, provider)
    caller.send("GET", "/next")
    leave(caller.sock)
    assert stream.await_hangup(CLIENT_LEFT_S + DEFAULT_S) is End.RESET
    assert ended(port).cause is EndCause.CLIENT_RESET
    assert len(provider.requests) == 1


def test_so_much_is_read_ahead_of_a_client_and_no_more(port: DataPort, provider: Provider) -> None:
    caller, stream = begun(port, provider)
    sent = fill(caller.sock)
    (connection,) = port.intake._running.values()
    assert connection.exchange is not None
    held = len(connection.exchange.side.leftover())
    assert AHEAD_LIMIT_BYTES < held <= AHEAD_LIMIT_BYTES + READ_BYTES < sent
    assert stream.event("still there")
    assert read_chunk(caller.sock) == b"data: still there\n\n"
    stream.finish()
