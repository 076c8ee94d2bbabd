"""One exchange while it happens: both directions flow at once, and what broke off never looks complete.

Through a running data port, by both doors where they could differ. What is sent on is in test_forward.py,
framing in test_http1.py, the guard itself in test_reflection.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
import random
import select
import socket
import ssl
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest

from egress_proxy.core.decision import Allow, OptIn, Reason
from egress_proxy.core.events import EndCause, Ended
from egress_proxy.core.host import parse_authority
from egress_proxy.core.request import parse_head
from egress_proxy.proxy import stream
from egress_proxy.proxy.exchange import Exchange as OneExchange
from egress_proxy.proxy.order import ExchangeEnd, ForwardLimits, Order
from egress_proxy.proxy.secret_search import Forms
from egress_proxy.proxy.stream import SocketStream
from egress_proxy.proxy.upstream_pool import Upstream
from egress_proxy.vault.injection import UpstreamHead
from tests.conftest import Start, StartProvider
from tests.egress_proxy.proxy.brokers import (
    API_HOST,
    DOORS,
    RULE,
    SECRET,
    Caller,
    broker,
    call,
    ended,
    rule,
    secured_broker,
)
from tests.egress_proxy.proxy.key_updates import Sealer
from tests.egress_proxy.proxy.socket_pairs import Pair, await_unread, connected_pair, fill, two_pairs
from tests.egress_proxy.proxy.tls_origin import TlsOrigin, drain
from tests.support.answers import (
    abort,
    bodiless,
    bulk,
    chunk,
    chunked,
    close,
    close_without_notify,
    early,
    encoded,
    fixed,
    head,
    held,
    interim,
    nonsense,
    play,
    read_body,
    reply_with,
    reset,
    torn_chunk,
    torn_length,
    until_close,
)
from tests.support.byte_stream import End, close_with_reset, read_exactly, read_until_end
from tests.support.certificates import CertificateAuthority, server_context
from tests.support.data_port import DataPort
from tests.support.deadline import DEFAULT_S, eventually
from tests.support.dns_stub import DnsStub
from tests.support.exchange import Exchange
from tests.support.http import read_chunk, read_head, read_response, request_bytes
from tests.support.live_stream import LiveStream
from tests.support.origins import pattern, pattern_sha256
from tests.support.provider import Provider

CANARY = SECRET.encode()
VALUE = b"Bearer " + CANARY
STARS = b"*" * len(VALUE)
MIB = 1_048_576

by_both_doors = pytest.mark.parametrize("door", DOORS)


@pytest.fixture
def provider(start: Start) -> Provider:
    return start(Provider())


@pytest.fixture
def port(start: Start, provider: Provider) -> DataPort:
    return start(broker(provider))


# Answers without a body, and what comes before an answer.


@by_both_doors
@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("HEAD", bodiless(200, [("Content-Length", "1234")])),
        ("GET", bodiless(204)),
        ("GET", bodiless(304, [("Content-Length", "9"), ("ETag", '"x"')])),
    ],
    ids=["HEAD", "204", "304"],
)
def test_an_answer_without_a_body_is_over_at_its_blank_line_and_the_connection_goes_on(
    port: DataPort, provider: Provider, door: str, method: str, answer: bytes
) -> None:
    provider.otherwise(answer, fixed(b"next"))
    caller = call(port, door)
    caller.send(method)
    assert read_exactly(caller.sock, len(answer)) == answer
    assert caller.ask("GET").body == b"next"
    assert [request.connection for request in provider.requests] == [0, 0]


def test_interim_answers_reach_the_client_at_once_and_in_order(port: DataPort, provider: Provider) -> None:
    gate = threading.Event()
    provider.otherwise(play(interim(103, [("Link", "</x>")]), gate, interim(102), fixed(b"ok")))
    caller = call(port)
    caller.send("GET")
    assert read_head(caller.sock).status == 103
    gate.set()
    response = read_response(caller.sock)
    assert [one.status for one in response.interim] == [102]
    assert (response.status, response.body) == (200, b"ok")


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/1.0"])
def test_interim_answers_without_end_are_a_502_behind_so_many(
    port: DataPort, provider: Provider, version: str
) -> None:
    provider.otherwise(play(interim(102) * 64, fixed(b"ok")), play(interim(102) * 65, fixed(b"ok")))
    ask = request_bytes("GET", "http://127.0.0.1/", [("Host", "127.0.0.1")], version=version)
    shown = 64 if version == "HTTP/1.1" else 0
    good, bad = port.ask(ask), port.ask(ask)
    assert (good.status, good.body, len(good.interim)) == (200, b"ok", shown)
    assert (bad.status, bad.value("X-Proxy-Error")) == (502, "upstream-protocol")
    over = port.log.wait_for(Ended, 2)[1]
    assert (over.reason, over.detail) == (
        Reason.UPSTREAM_PROTOCOL,
        "there is no end to the interim answers",
    )


def test_a_client_of_http_1_0_sees_no_interim_answer_and_a_close(port: DataPort, provider: Provider) -> None:
    provider.otherwise(play(interim(103), chunked(b"hi", b"ho", trailers=[("X-Sum", "1")])))
    answer, end = port.converse(request_bytes("GET", "http://127.0.0.1/", version="HTTP/1.0"))
    assert (answer, end) == (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhiho", End.EOF)
    assert ended(port).cause is EndCause.DONE


def test_trailers_are_passed_on(port: DataPort, provider: Provider) -> None:
    provider.otherwise(chunked(b"hi", trailers=[("X-Sum", "1")]))
    caller = call(port)
    caller.send("GET")
    read_head(caller.sock)
    assert read_exactly(caller.sock, len(b"2\r\nhi\r\n0\r\nX-Sum: 1\r\n\r\n")).endswith(
        b"0\r\nX-Sum: 1\r\n\r\n"
    )


def test_a_connection_that_the_upstream_closes_is_kept_for_the_client(
    port: DataPort, provider: Provider
) -> None:
    provider.otherwise(until_close(b"without a length"), fixed(b"next"))
    caller = call(port)
    first = caller.ask("GET")
    assert (first.body, first.value("Transfer-Encoding")) == (b"without a length", "chunked")
    assert caller.ask("GET").body == b"next"


# Streams.


@by_both_doors
def test_each_event_of_a_stream_is_seen_before_the_next_one_is_sent(
    port: DataPort, provider: Provider, door: str
) -> None:
    stream = LiveStream()
    provider.otherwise(stream)
    caller = call(port, door)
    caller.send("GET", "/events")
    assert read_head(caller.sock).value("Content-Type") == "text/event-stream"  # before any event
    for text in ("a", "x" * 70_000, "b"):
        sent = stream.event(text)
        received = b""
        while len(received) < len(sent):
            received += read_chunk(caller.sock)
        assert received == sent
    stream.finish()
    assert read_chunk(caller.sock) == b""
    assert ended(port).cause is EndCause.DONE


@pytest.mark.parametrize("text", [b"data: sk-CAN", b"data: harmless", b"x"])
def test_text_without_a_line_end_goes_out_by_itself_whatever_it_is(
    port: DataPort, provider: Provider, text: bytes
) -> None:
    stream = LiveStream()
    provider.otherwise(stream)
    caller = call(port)
    caller.send("GET", "/events")
    read_head(caller.sock)
    stream.push(text)
    assert read_chunk(caller.sock) == text
    stream.push(b"TEEN\n\n")
    assert read_chunk(caller.sock) == b"TEEN\n\n"


@by_both_doors
def test_bulk_comes_whole(port: DataPort, provider: Provider, door: str) -> None:
    provider.otherwise(bulk(20 * MIB))
    body = call(port, door).ask("GET", timeout_s=20).body
    assert hashlib.sha256(body).hexdigest() == pattern_sha256(20 * MIB)
    assert ended(port).bytes_in == 20 * MIB


# Bodies on their way up.


@by_both_doors
def test_a_body_is_sent_on_as_it_comes_and_whole(port: DataPort, provider: Provider, door: str) -> None:
    provider.otherwise(reply_with(lambda request: fixed(request.body_sha256.encode())))
    caller = call(port, door)
    size = 50 * MIB
    block = pattern(65_537 * 16)
    caller.sock.sendall(
        request_bytes("PUT", caller.origin + "/", [("Host", caller.host), ("Content-Length", str(size))])
    )
    left = size
    while left:
        caller.sock.sendall(block[:left])
        left -= len(block[:left])
    assert read_response(caller.sock, timeout_s=20).body.decode() == pattern_sha256(size)
    assert ended(port).bytes_out == size
    assert caller.ask("GET").status == 200


def test_a_body_reaches_the_upstream_before_it_is_complete(port: DataPort, provider: Provider) -> None:
    provider.otherwise(fixed(b"ok"))
    caller = call(port)
    caller.send("POST", headers=[("Content-Length", "10")])
    caller.sock.sendall(b"12345")
    provider.wait_for_requests(1, whole=False)
    caller.sock.sendall(b"67890")
    assert read_response(caller.sock).body == b"ok"
    assert provider.only_request.body == b"1234567890"


@contextlib.contextmanager
def uploading(sock: socket.socket, total_bytes: int) -> Iterator[None]:
    """Send so much from a thread, as a client does that reads meanwhile; a reset ends it."""

    def send() -> None:
        with contextlib.suppress(OSError):
            left = total_bytes
            while left > 0:
                sock.sendall(pattern(min(left, 65_536)))
                left -= 65_536

    thread = threading.Thread(target=send, name="support-upload", daemon=True)
    thread.start()
    yield
    sock.close()
    thread.join(DEFAULT_S)


@by_both_doors
def test_an_early_answer_to_an_upload_arrives_and_the_connection_is_closed(
    port: DataPort, provider: Provider, door: str
) -> None:
    provider.otherwise(early(fixed(b"too large", 413, [("Connection", "close")])))
    caller = call(port, door)
    caller.send("POST", headers=[("Content-Length", str(50 * MIB))])
    with uploading(caller.sock, 50 * MIB):
        response = read_response(caller.sock)
        assert (response.status, response.body, response.value("Connection")) == (413, b"too large", "close")
        assert response.value("X-Proxy-Error") is None
    assert ended(port).status == 413


def test_an_early_answer_that_a_reset_follows_arrives(port: DataPort, provider: Provider) -> None:
    provider.otherwise(play(fixed(b"too large", 413), abort))
    caller = call(port)
    caller.send("POST", headers=[("Content-Length", str(50 * MIB))])
    with uploading(caller.sock, 50 * MIB):
        response = read_response(caller.sock)
        assert response.status in (413, 502)  # a reset may overtake the answer on its way to us
        assert response.value("Connection") == "close"


def test_an_answer_may_begin_before_the_body_is_through(port: DataPort, provider: Provider) -> None:
    gate = threading.Event()
    provider.otherwise(
        play(head(200, [("Transfer-Encoding", "chunked")]) + chunk(b"begun"), gate, read_body, b"0\r\n\r\n")
    )
    caller = call(port)
    caller.send("POST", headers=[("Content-Length", "4")])
    read_head(caller.sock)
    assert read_chunk(caller.sock) == b"begun"
    gate.set()
    caller.sock.sendall(b"late")
    assert read_chunk(caller.sock) == b""
    assert provider.only_request.body == b"late"


# Expect: 100-continue.

EXPECT = [("Expect", "100-continue"), ("Content-Length", "4")]


@by_both_doors
def test_a_client_that_expects_100_continue_hears_it_from_the_upstream(
    port: DataPort, provider: Provider, door: str
) -> None:
    provider.otherwise(fixed(b"ok"))
    caller = call(port, door)
    caller.send("POST", headers=EXPECT)
    assert read_head(caller.sock).status == 100
    caller.sock.sendall(b"body")
    assert read_response(caller.sock).body == b"ok"
    assert provider.only_request.value("Expect") == "100-continue"
    assert provider.only_request.body == b"body"
    assert caller.ask("GET").status == 200


def test_a_client_that_expects_100_continue_may_be_refused_by_the_upstream(
    port: DataPort, provider: Provider
) -> None:
    provider.otherwise(early(fixed(b"no", 417, [("Connection", "close")])))
    caller = call(port)
    caller.send("POST", headers=EXPECT)
    response = read_response(caller.sock)
    assert (response.status, response.value("Connection"), response.interim) == (417, "close", ())


def test_a_client_that_does_not_wait_for_100_continue_is_served(port: DataPort, provider: Provider) -> None:
    provider.otherwise(fixed(b"ok"))
    caller = call(port)
    caller.send("POST", headers=[("Expect", "100-continue")], body=b"body")
    assert read_response(caller.sock).body == b"ok"
    assert provider.only_request.body == b"body"


# Ends that are none.


def whole_head(caller: Caller) -> None:
    assert read_head(caller.sock).status == 200


TORN = {
    "in a chunk": torn_chunk(b"whole", torn=b"to", declared=100),
    "between chunks": play(head(200, [("Transfer-Encoding", "chunked")]) + chunk(b"whole"), close),
    "within its length": torn_length(b"half", 8),
    "by a reset in a chunk": torn_chunk(b"whole", torn=b"to", declared=100, ending=abort),
    "by a reset without a length": until_close(b"half", ending=abort),
}


@by_both_doors
@pytest.mark.parametrize("kind", TORN)
def test_an_answer_that_breaks_off_resets_the_client(
    port: DataPort, provider: Provider, door: str, kind: str
) -> None:
    provider.otherwise(TORN[kind])
    caller = call(port, door)
    caller.send("GET")
    _, end = read_until_end(caller.sock)
    assert end is End.RESET
    assert (ended(port).cause, ended(port).status) == (EndCause.TRUNCATED, 200)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (
            head(200, [("Transfer-Encoding", "chunked")]) + chunk(b"whole") + b"zz\r\n",
            "upstream-protocol",
        ),
        (encoded("gzip", b"not gzip at all, " * 10), "body-not-inspectable"),
    ],
    ids=["no chunk", "no gzip"],
)
def test_nonsense_is_a_502_while_nothing_of_the_answer_was_sent(
    port: DataPort, provider: Provider, answer: bytes, code: str
) -> None:
    provider.otherwise(play(answer))
    refused = call(port, "absolute").ask("GET")
    assert (refused.status, refused.value("X-Proxy-Error")) == (502, code)


@pytest.mark.parametrize("kind", ["in a chunk", "within its length"])
def test_a_client_of_http_1_0_is_reset_too(port: DataPort, provider: Provider, kind: str) -> None:
    provider.otherwise(TORN[kind])
    _, end = port.converse(request_bytes("GET", "http://127.0.0.1/", version="HTTP/1.0"))
    assert end is End.RESET  # a close would be the end of the answer
    assert ended(port).cause is EndCause.TRUNCATED


@pytest.mark.parametrize(
    ("script", "end"),
    [
        (until_close(b"half", ending=close_without_notify), End.RESET),
        (torn_length(b"half", 8, ending=close_without_notify), End.RESET),
        (torn_length(b"half", 8, ending=close), End.RESET),
    ],
    ids=["no length, no close_notify", "length, no close_notify", "length, close_notify"],
)
def test_a_tls_answer_that_breaks_off_resets_the_client(
    start: Start,
    start_provider: StartProvider,
    ca: CertificateAuthority,
    dns: DnsStub,
    script: Callable[[Exchange], None],
    end: End,
) -> None:
    provider = start_provider(API_HOST)
    provider.otherwise(script)
    port = start(secured_broker(provider.port, ca, dns))
    caller = call(port, host=API_HOST)
    caller.send("GET")
    assert read_until_end(caller.sock)[1] is end
    assert ended(port).cause is EndCause.TRUNCATED


def test_a_tls_answer_without_length_that_says_it_is_complete_is(
    start: Start, start_provider: StartProvider, ca: CertificateAuthority, dns: DnsStub
) -> None:
    provider = start_provider(API_HOST)
    provider.otherwise(until_close(b"whole"))
    port = start(secured_broker(provider.port, ca, dns))
    assert call(port, host=API_HOST).ask("GET").body == b"whole"
    assert ended(port).cause is EndCause.DONE


def test_an_end_of_tls_that_came_with_the_last_bytes_ends_the_answer_though_nothing_follows(
    start: Start, ca: CertificateAuthority, dns: DnsStub
) -> None:
    """No selector tells of what was read already, and this server leaves its socket open."""

    def answer(sock: ssl.SSLSocket) -> None:
        sock.recv(65_536)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        sock.sendall(head(200) + b"whole")
        sock.settimeout(0)
        with contextlib.suppress(OSError):
            sock.unwrap()  # sends close_notify, and does not wait for ours
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
        drain(sock)

    origin = start(TlsOrigin(server_context(ca.leaf(API_HOST)), answer))
    port = start(secured_broker(origin.port, ca, dns))
    assert call(port, host=API_HOST).ask("GET").body == b"whole"
    assert ended(port).cause is EndCause.DONE


def test_an_answer_that_was_read_whole_is_delivered_though_tls_has_something_to_say_and_cannot(
    start: Start, ca: CertificateAuthority, dns: DnsStub, tmp_path: Path
) -> None:
    """Key updates came right behind it, and the server was gone when they were to be answered."""
    asked, go, gone = threading.Event(), threading.Event(), threading.Event()
    context = server_context(ca.leaf(API_HOST))
    context.num_tickets, context.keylog_filename = 0, str(tmp_path / "secrets")

    def answer(sock: ssl.SSLSocket) -> None:
        sealer = Sealer(sock, tmp_path / "secrets")
        sock.recv(65_536)
        asked.set()
        go.wait(DEFAULT_S)
        records = (sealer.sealed(fixed(b"whole")), sealer.key_update(), sealer.key_update())
        socket.socket.sendall(sock, b"".join(records))
        close_with_reset(sock)
        gone.set()

    origin = start(TlsOrigin(context, answer))
    port = start(secured_broker(origin.port, ca, dns))
    caller = call(port, host=API_HOST)
    caller.send("GET")
    assert asked.wait(DEFAULT_S)

    def look_away() -> bool:
        go.set()
        return gone.wait(DEFAULT_S)

    assert port.call(look_away)  # its loop sees the answer and the reset at once
    assert read_response(caller.sock).body == b"whole"
    assert ended(port).cause is EndCause.DONE


SPOKEN_NONSENSE = {
    "another protocol": (nonsense(), "upstream-protocol"),
    "a reset": (reset(), "upstream-protocol"),
    "a reset in the head": (reset(b"HTTP/1.1 200 O"), "upstream-protocol"),
    "a close": (play(read_body, close), "upstream-protocol"),
    "a close in the head": (nonsense(b"HTTP/1.1 200 OK\r\nX: "), "upstream-protocol"),
    "a head that is too long": (nonsense(head(200, [("X", "x" * 200_000)])), "upstream-protocol"),
    "an upgrade that nobody asked for": (nonsense(head(101, [("Upgrade", "x")])), "upstream-protocol"),
}


@by_both_doors
@pytest.mark.parametrize("kind", SPOKEN_NONSENSE)
def test_an_upstream_that_does_not_answer_in_http_is_a_502(
    port: DataPort, provider: Provider, door: str, kind: str
) -> None:
    script, code = SPOKEN_NONSENSE[kind]
    provider.otherwise(script)
    refused = call(port, door).ask("POST", body=b"x")
    assert (refused.status, refused.value("X-Proxy-Error")) == (502, code)
    assert refused.json()["rule"] == "inject:provider"
    assert ended(port).reason is Reason.UPSTREAM_PROTOCOL


def test_an_exchange_that_is_cancelled_in_the_middle_of_its_answer_resets_the_client(
    port: DataPort, provider: Provider
) -> None:
    stream = LiveStream()
    provider.otherwise(stream)
    caller = call(port)
    caller.sock.sendall(request_bytes("GET", "http://127.0.0.1/", version="HTTP/1.0"))
    read_head(caller.sock)
    stream.push(b"half")
    assert read_exactly(caller.sock, 4) == b"half"
    port.stop()
    assert read_until_end(caller.sock) == (b"", End.RESET)
    assert stream.await_hangup() is End.RESET


# Time limits.


@by_both_doors
def test_a_first_byte_that_is_late_is_a_504(start: Start, provider: Provider, door: str) -> None:
    gate = threading.Event()
    provider.otherwise(held(gate, fixed(b"late")))
    port = start(broker(provider, forwarding=ForwardLimits(first_byte_s=0.3, idle_s=60)))
    refused = call(port, door).ask("POST", body=b"x")
    assert (refused.status, refused.value("X-Proxy-Error")) == (504, "upstream-timeout")
    assert ended(port).reason is Reason.UPSTREAM_TIMEOUT
    gate.set()
    assert provider.wait_for_closed() is End.RESET


def test_a_stream_may_be_silent_for_longer_than_its_first_byte_took(start: Start, provider: Provider) -> None:
    stream = LiveStream()
    provider.otherwise(stream)
    port = start(broker(provider, forwarding=ForwardLimits(first_byte_s=0.2, idle_s=60)))
    caller = call(port)
    caller.send("GET")
    read_head(caller.sock)
    caller.sock.settimeout(0.5)
    with pytest.raises(TimeoutError):
        caller.sock.recv(1)
    stream.event("late")
    assert read_chunk(caller.sock) == b"data: late\n\n"


def test_a_stream_that_is_silent_for_too_long_is_cut(start: Start, provider: Provider) -> None:
    stream = LiveStream()
    provider.otherwise(stream)
    port = start(broker(provider, forwarding=ForwardLimits(first_byte_s=60, idle_s=0.3)))
    caller = call(port)
    caller.send("GET")
    read_head(caller.sock)
    assert read_until_end(caller.sock) == (b"", End.RESET)
    assert ended(port).cause is EndCause.TRUNCATED


def test_a_client_that_takes_nothing_in_is_given_up_after_the_idle_time(
    start: Start, provider: Provider
) -> None:
    provider.otherwise(bulk(200 * MIB))
    port = start(broker(provider, forwarding=ForwardLimits(first_byte_s=60, idle_s=0.3)))
    call(port).send("GET")
    assert ended(port).cause is EndCause.CLIENT_RESET
    assert provider.wait_for_closed() is not None


# Back-pressure.


def test_reading_little_by_little_gives_the_same_answer(port: DataPort, provider: Provider) -> None:
    provider.otherwise(bulk(3_000_000))
    caller = call(port)
    caller.send("GET")
    read_head(caller.sock)
    digest, left = hashlib.sha256(), 3_000_000
    while left:
        block = caller.sock.recv(1000)
        digest.update(block)
        left -= len(block)
    assert digest.hexdigest() == pattern_sha256(3_000_000)


def test_an_answer_that_the_client_does_not_read_is_not_held(port: DataPort, provider: Provider) -> None:
    sent: list[int] = []

    def pour(exchange: Exchange) -> None:
        exchange.read_body()
        exchange.send(head(200, [("Content-Length", str(1000 * MIB))]))
        block = bytes(65_536)
        for _ in range(16_000):
            exchange.send(block)
            sent.append(len(block))

    provider.otherwise(pour)
    with traced() as peak:
        call(port).send("GET")
        eventually(lambda: len(sent) > 0 and stands_still(sent))
        assert peak() < 2 * MIB
    assert sum(sent) < 100 * MIB  # what the kernel's buffers take


def stands_still(growing: list[int]) -> bool:
    """Whether nothing was added for a while."""
    before = len(growing)
    return not select.select([], [], [], 0.2)[0] and len(growing) == before


@contextlib.contextmanager
def traced() -> Iterator[Callable[[], int]]:
    """How much memory Python took at its peak within the block."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        yield lambda: tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def test_a_body_that_the_upstream_does_not_read_is_not_held(port: DataPort, provider: Provider) -> None:
    gate = threading.Event()
    provider.otherwise(play(gate, read_body, fixed(b"ok")))
    caller = call(port)
    caller.send("POST", headers=[("Content-Length", str(1000 * MIB))])
    with traced() as peak:
        sent = fill(caller.sock)
        assert peak() < MIB
    assert sent < 1000 * MIB


# Fairness.


def exchange_between(
    client: Pair, upstream: Pair, body_bytes: int, on_end: Callable[[ExchangeEnd], None]
) -> OneExchange:
    loop, target = asyncio.get_running_loop(), parse_authority("127.0.0.1:80")
    asked = parse_head(b"POST http://127.0.0.1/ HTTP/1.1\r\n\r\n")
    allow = Allow(target, RULE, OptIn.ONLY_LOOPBACK)
    return OneExchange(
        SocketStream(loop, client.ours),
        Upstream(SocketStream(loop, upstream.ours), ip_address("127.0.0.1")),
        Order("r-1", asked, b"/", body_bytes, rule(80), allow),
        UpstreamHead("POST", b"/", ((b"Host", b"x"), (b"Content-Length", b"%d" % body_bytes))),
        Forms(()),
        ForwardLimits(first_byte_s=DEFAULT_S, idle_s=DEFAULT_S),
        None,
        lambda _, end: on_end(end),
    )


@pytest.mark.parametrize("direction", ["up", "down"])
async def test_everybody_else_has_a_turn_after_each_read_of_a_fast_exchange(
    monkeypatch: pytest.MonkeyPatch, direction: str
) -> None:
    monkeypatch.setattr(stream, "READ_BYTES", 1024)
    size = 100_000
    ended: asyncio.Future[ExchangeEnd] = asyncio.get_running_loop().create_future()
    with two_pairs() as (client, upstream):
        if direction == "up":
            client.peer.sendall(bytes(size))
            await_unread(client.ours, size)
        else:
            upstream.peer.sendall(fixed(bytes(size)))
            await_unread(upstream.ours, size)
        exchange = exchange_between(client, upstream, size if direction == "up" else 0, ended.set_result)
        exchange.start()
        largest = moved = 0
        async with asyncio.timeout(DEFAULT_S):
            while moved < size:
                await asyncio.sleep(0)
                before, moved = moved, exchange.sent_bytes + exchange.received_bytes
                largest = max(largest, moved - before)
            if direction == "up":
                upstream.peer.sendall(fixed(b"ok"))
            assert (await ended).is_answered
    assert largest <= 2 * 1024


async def test_a_compressed_answer_is_read_in_smaller_turns() -> None:
    """A small piece of it can be a thousand times as much text to look through."""
    body = gzip.compress(random.Random(1).randbytes(100_000))
    headers = [("Content-Encoding", "gzip"), ("Content-Length", str(len(body)))]
    ends: list[ExchangeEnd] = []
    with two_pairs() as (client, upstream):
        exchange = exchange_between(client, upstream, 0, ends.append)
        exchange.start()
        upstream.peer.sendall(head(200, headers))
        async with asyncio.timeout(DEFAULT_S):
            while exchange.status is None:
                await asyncio.sleep(0)
            upstream.peer.sendall(body)
            await_unread(upstream.ours, len(body))
            largest = moved = 0
            while moved < len(body):
                await asyncio.sleep(0)
                before, moved = moved, exchange.received_bytes
                largest = max(largest, moved - before)
            received = await asyncio.to_thread(read_exactly, client.peer, len(head(200, headers) + body))
            while not ends:
                await asyncio.sleep(0)
    assert received == head(200, headers) + body
    assert 0 < largest <= 16_384 + 4096  # a step that ended like a secret begins may have waited
    assert ends[0].is_answered


@contextlib.contextmanager
def answered_whole(body: bytes) -> Iterator[tuple[OneExchange, Pair, list[ExchangeEnd]]]:
    """An exchange whose upstream has sent all of its answer, and whose client takes little in."""
    ends: list[ExchangeEnd] = []
    client, upstream = connected_pair(small=True), connected_pair()
    with client.ours, client.peer, upstream.ours, upstream.peer:
        upstream.peer.sendall(fixed(body))
        await_unread(upstream.ours, len(fixed(body)))
        exchange = exchange_between(client, upstream, 0, ends.append)
        client.peer.sendall(b"next")  # so that nobody looks at the client any more
        await_unread(client.ours, 4)
        exchange.start()
        yield exchange, client, ends


@pytest.mark.parametrize("leaves", [False, True], ids=["reads on", "resets"])
async def test_an_exchange_is_over_when_the_client_has_its_answer_and_not_when_that_was_read(
    monkeypatch: pytest.MonkeyPatch, leaves: bool
) -> None:
    """Whoever closes behind it would cut the answer off."""
    monkeypatch.setattr(stream, "READ_BYTES", MIB)
    body = pattern(150_000)
    with answered_whole(body) as (exchange, client, ends):
        async with asyncio.timeout(DEFAULT_S):
            while exchange.received_bytes < len(body):
                await asyncio.sleep(0)
        for _ in range(3):
            await asyncio.sleep(0)
        assert ends == []
        if leaves:
            client.reset_by_peer()
        else:
            received = await asyncio.to_thread(read_exactly, client.peer, len(fixed(body)))
            assert received == fixed(body)
        async with asyncio.timeout(DEFAULT_S):
            while not ends:
                await asyncio.sleep(0)
    (end,) = ends
    assert (end.cause, end.is_answered) == (
        (EndCause.CLIENT_RESET, False) if leaves else (EndCause.DONE, True)
    )


async def test_an_exchange_that_is_over_cannot_be_cut_and_looks_at_nobody_any_more() -> None:
    ends: list[ExchangeEnd] = []
    with two_pairs() as (client, upstream):
        upstream.peer.sendall(fixed(b"ok"))
        exchange = exchange_between(client, upstream, 0, ends.append)
        exchange.start()
        async with asyncio.timeout(DEFAULT_S):
            while not ends:
                await asyncio.sleep(0)
        exchange.cut(EndCause.DRAINED)
        for peer, ours in ((client.peer, client.ours), (upstream.peer, upstream.ours)):
            peer.sendall(b"next")
            await_unread(ours, 4)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for ours in (client.ours, upstream.ours):  # heard once by nobody, or it would be told for ever
            assert asyncio.get_running_loop().remove_reader(ours.fileno()) is False
            assert ours.recv(100) == b"next"
        assert [(end.cause, end.is_answered, end.is_whole) for end in ends] == [(EndCause.DONE, True, True)]
        client.ours.close()
        assert read_until_end(client.peer) == (fixed(b"ok"), End.EOF)


async def test_an_exchange_that_is_over_has_let_go_of_both_streams() -> None:
    ends: list[ExchangeEnd] = []
    with two_pairs() as (client, upstream):
        exchange = exchange_between(client, upstream, 0, ends.append)
        exchange.start()
        exchange.cut(EndCause.SANDBOX_ENDED)
        assert [end.cause for end in ends] == [EndCause.SANDBOX_ENDED]
        upstream.peer.sendall(fixed(b"ok"))
        await_unread(upstream.ours, 1)
        for _ in range(3):
            await asyncio.sleep(0)
        assert exchange.received_bytes == 0
        assert upstream.peer.fileno() > 0
        assert len(ends) == 1
        assert read_until_end(client.peer) == (b"", End.RESET)


def pause(seconds: float) -> None:
    """What is promised here is about time that passes."""
    end = time.monotonic() + seconds
    eventually(lambda: time.monotonic() > end, what="a pause")


def test_the_time_for_the_first_byte_begins_when_the_body_is_up(provider: Provider) -> None:
    """A slow upload is no slow answer."""
    provider.otherwise(fixed(b"thanks"))
    with broker(provider, forwarding=ForwardLimits(first_byte_s=0.4, idle_s=5)) as port:
        caller = call(port, "absolute")
        caller.send("POST", headers=[("Content-Length", "4")])
        for octet in b"slow":
            pause(0.25)
            caller.sock.sendall(bytes([octet]))
        assert read_response(caller.sock, "POST").body == b"thanks"


def test_an_upstream_that_does_not_answer_a_body_is_a_504(provider: Provider) -> None:
    silent = threading.Event()
    provider.otherwise(held(silent, fixed(b"too late")))
    with broker(provider, forwarding=ForwardLimits(first_byte_s=0.4, idle_s=60)) as port:
        caller = call(port, "absolute")
        caller.send("POST", headers=[("Content-Length", "4")])
        provider.wait_for_requests(1, whole=False)
        caller.sock.sendall(b"body")
        assert read_response(caller.sock, "POST").status == 504
    silent.set()


def test_an_upstream_that_does_not_take_a_body_in_is_a_504(provider: Provider) -> None:
    gate = threading.Event()
    provider.otherwise(play(gate, fixed(b"too late")))
    with broker(provider, forwarding=ForwardLimits(first_byte_s=60, idle_s=0.4)) as port:
        caller = call(port, "absolute")
        caller.send("POST", headers=[("Content-Length", str(1000 * MIB))])
        assert fill(caller.sock) < 1000 * MIB
        response = read_response(caller.sock, "POST")
        assert (response.status, response.value("X-Proxy-Error")) == (504, "upstream-timeout")
        assert ended(port).reason is Reason.UPSTREAM_TIMEOUT
    gate.set()


def test_a_client_that_stops_within_its_body_is_given_up_and_told_so(provider: Provider) -> None:
    with broker(provider, forwarding=ForwardLimits(first_byte_s=60, idle_s=60, body_s=0.4)) as port:
        caller = call(port, "absolute")
        caller.send("POST", headers=[("Content-Length", "10")])
        caller.sock.sendall(b"12345")
        answer = read_response(caller.sock, "POST")
        assert (answer.status, answer.value("X-Proxy-Error")) == (408, "head-timeout")
        assert ended(port).reason is Reason.HEAD_TIMEOUT
        provider.wait_for_closed()


def test_an_upload_may_take_longer_than_any_of_its_pauses_may(provider: Provider) -> None:
    provider.otherwise(fixed(b"thanks"))
    with broker(provider, forwarding=ForwardLimits(first_byte_s=60, idle_s=1.5)) as port:
        caller = call(port, "absolute")
        caller.send("POST", headers=[("Content-Length", "4")])
        for octet in b"slow":
            pause(0.5)
            caller.sock.sendall(bytes([octet]))
        assert read_response(caller.sock, "POST").body == b"thanks"
