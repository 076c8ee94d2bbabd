"""Case C42: streams go out as they come, live long, and an end that is none is an error to the client.

Whole answers: test_case_inject_answers.py.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from tests.end_to_end.case_inject import Injecting, open_injecting
from tests.end_to_end.case_parts import Refusal, whole_refusal
from tests.support.answers import (
    abort,
    chunk,
    close,
    close_without_notify,
    fixed,
    head,
    held,
    nonsense,
    play,
    read_body,
    reset,
    torn_chunk,
    torn_length,
    until_close,
)
from tests.support.byte_stream import End, read_exactly, read_until_end
from tests.support.certificates import CertificateAuthority
from tests.support.conversation import Answer
from tests.support.http import read_chunk, read_head, read_response, request_bytes
from tests.support.live_stream import LiveStream

GET = request_bytes("GET", "http://api.example/")
FIRST_BYTE_S, IDLE_S = 1.0, 1.5
LIMITS = f"[limits]\nfirst_byte_timeout_s = {FIRST_BYTE_S}\nidle_timeout_s = {IDLE_S}\n"
TIMEOUT = Refusal(504, "upstream-timeout")
PROTOCOL = Refusal(502, "upstream-protocol")


@pytest.fixture(scope="module")
def running(ca: CertificateAuthority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Injecting]:
    with open_injecting(ca, tmp_path_factory.mktemp("inject"), config=LIMITS) as injecting:
        yield injecting


@pytest.fixture
def inject(running: Injecting) -> Iterator[Injecting]:
    running.begin()
    yield running
    running.finish()


def test_every_event_is_there_before_the_next_is_sent(inject: Injecting) -> None:
    """11 bytes each: nothing waits for more to fill a buffer."""
    stream = LiveStream()
    inject.provider.on("/events", stream)
    sock = inject.service.open()
    sock.sendall(request_bytes("GET", "http://api.example/events"))
    answer = read_head(sock)  # before the first event
    assert answer.value("Content-Type") == "text/event-stream"
    delays = []
    for number in range(20):
        sent_at = time.monotonic()
        event = stream.event(f"{number:03d}")
        assert len(event) == 11
        assert read_chunk(sock) == event
        delays.append(time.monotonic() - sent_at)
    stream.finish()
    assert read_chunk(sock) == b""
    assert sorted(delays)[len(delays) // 2] < 0.2  # the promise; one of twenty may meet a busy machine
    assert max(delays) < 2


@pytest.mark.parametrize("chunked", [True, False])
def test_a_stream_outlives_the_limit_of_its_first_byte(inject: Injecting, chunked: bool) -> None:
    stream = LiveStream(chunked=chunked)
    inject.provider.on("/events", stream)
    sock = inject.service.open()
    sock.sendall(request_bytes("GET", "http://api.example/events"))
    read_head(sock)
    silent = threading.Event()
    begun = time.monotonic()
    for number in range(4):  # each silence is shorter than the limit between bytes, all together are not
        silent.wait(IDLE_S / 3)
        event = stream.event(str(number))
        assert read_chunk(sock) == event
    assert time.monotonic() - begun > IDLE_S
    stream.finish()
    assert read_chunk(sock) == b""


def test_a_stream_that_falls_silent_for_too_long_is_cut(inject: Injecting) -> None:
    stream = LiveStream()
    inject.provider.on("/events", stream)
    sock = inject.service.open()
    sock.sendall(request_bytes("GET", "http://api.example/events"))
    read_head(sock)
    assert read_until_end(sock, IDLE_S + 3) == (b"", End.RESET)
    assert stream.await_hangup() is not End.OPEN


def test_no_first_byte_in_time_is_504(inject: Injecting) -> None:
    gate = threading.Event()
    inject.provider.on("/", held(gate, fixed(b"late")))
    begun = time.monotonic()
    received, end = inject.service.raw_end(GET)
    assert whole_refusal(received, end) == TIMEOUT
    assert FIRST_BYTE_S - 0.1 < time.monotonic() - begun < FIRST_BYTE_S + 2
    gate.set()


def test_an_end_that_the_connection_gives_is_an_end(inject: Injecting) -> None:
    inject.provider.on("/", until_close(b"to the end"))
    assert inject.get().body == b"to the end"
    received, end = inject.service.raw_end(GET.replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert (received.partition(b"\r\n\r\n")[2], end) == (b"to the end", End.EOF)


TORN: dict[str, Answer] = {
    "in a chunk": torn_chunk(b"whole", torn=b"to", declared=100),
    "between chunks": play(read_body, head(200, [("Transfer-Encoding", "chunked")]) + chunk(b"whole"), close),
    "in a chunk's length": play(
        read_body, head(200, [("Transfer-Encoding", "chunked")]) + chunk(b"whole") + b"1", close
    ),
    "before the last line": play(
        read_body, head(200, [("Transfer-Encoding", "chunked")]) + chunk(b"whole") + b"0\r\n", close
    ),
    "of a length": torn_length(b"some", declared=100),
    "of a length, by a reset": torn_length(b"some", declared=100, ending=abort),
    "without a notice": until_close(b"some", ending=close_without_notify),
    "without length, by a reset": until_close(b"some", ending=abort),
    "bad chunk size": play(
        read_body, head(200, [("Transfer-Encoding", "chunked")]) + chunk(b"whole") + b"xyz\r\nbad", close
    ),
    "a chunk that is too long": play(
        read_body, head(200, [("Transfer-Encoding", "chunked")]) + b"2\r\nwhole\r\n0\r\n\r\n", close
    ),
}


@pytest.mark.parametrize("answer", TORN.values(), ids=TORN.keys())
def test_a_body_that_breaks_off_is_no_clean_end(inject: Injecting, answer: Answer) -> None:
    inject.provider.on("/", answer)
    inject.cut_off(GET)
    inject.cut_off(GET.replace(b"HTTP/1.1", b"HTTP/1.0"))


def test_a_stream_that_is_dropped_is_an_error_to_its_reader(inject: Injecting) -> None:
    for drop in (LiveStream.drop, LiveStream.drop_without_notify, LiveStream.reset):
        stream = LiveStream()
        inject.provider.on("/events", stream)
        sock = inject.service.open()
        sock.sendall(request_bytes("GET", "http://api.example/events"))
        read_head(sock)
        event = stream.event("one")
        assert read_chunk(sock) == event
        drop(stream)
        received, end = read_until_end(sock)
        assert b"0\r\n\r\n" not in received
        assert end is End.RESET


NONSENSE: dict[str, Answer] = {
    "a mail server": nonsense(),
    "nothing": play(read_body, close),
    "a reset": reset(),
    "half a head": play(read_body, b"HTTP/1.1 200 OK\r\nContent-Le", close),
    "a bad status": play(read_body, b"HTTP/1.1 2x0 OK\r\n\r\n", close),
    "no status": play(read_body, b"HTTP/1.1\r\n\r\n", close),
    "another protocol": play(read_body, b"ICY 200 OK\r\n\r\n", close),
    "two lengths": play(
        read_body, head(200, [("Content-Length", "1"), ("Content-Length", "2")]) + b"ab", close
    ),
    "a length with a sign": play(read_body, head(200, [("Content-Length", "+1")]) + b"a", close),
    "an odd coding": play(
        read_body, head(200, [("Transfer-Encoding", "gzip, chunked")]) + b"0\r\n\r\n", close
    ),
    "a line without a colon": play(read_body, b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", close),
    "an endless head": play(read_body, b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100_000, close),
}


@pytest.mark.parametrize("answer", NONSENSE.values(), ids=NONSENSE.keys())
def test_what_is_no_answer_is_502(inject: Injecting, answer: Answer) -> None:
    inject.provider.on("/", answer)
    received, end = inject.service.raw_end(GET)
    assert whole_refusal(received, end) == PROTOCOL


def test_a_101_that_nobody_asked_for_is_502(inject: Injecting) -> None:
    switching = head(101, [("Upgrade", "h2c"), ("Connection", "Upgrade")])
    inject.provider.on("/", play(read_body, switching + b"raw bytes", close))
    received, _ = inject.service.raw_end(GET)
    assert received.startswith(b"HTTP/1.1 502 ")
    assert b"raw bytes" not in received


def test_bytes_behind_an_answer_are_nobodys(inject: Injecting) -> None:
    """A second answer that was never asked for must not become that of the next request."""
    inject.provider.on("/", fixed(b"one") + fixed(b"forged"))
    inject.provider.on("/next", fixed(b"two"))
    sock = inject.service.open()
    assert inject.get(sock=sock).body == b"one"
    assert inject.get("/next", sock=sock).body == b"two"


def test_a_kept_connection_that_the_upstream_closed_is_opened_anew(inject: Injecting) -> None:
    sock = inject.service.open()
    for _ in range(3):
        assert inject.get(sock=sock).body == b"ok"
        inject.provider.wait_for_idle(1)
        assert inject.provider.close_idle() == 1
    # Closed in the very moment of the next request: what may be sent twice is, what may not is a 502.
    inject.provider.on("/dies", fixed(b"first"), play(close), fixed(b"third"))
    assert inject.get("/dies").body == b"first"
    assert inject.get("/dies").body == b"third"
    inject.provider.on("/post", fixed(b"first"), play(read_body, close), fixed(b"twice"))
    post = request_bytes("POST", "http://api.example/post", body=b"order")
    assert inject.ask(post).body == b"first"
    assert inject.ask(post).status == 502


def test_a_client_that_leaves_ends_the_exchange_upstream(inject: Injecting) -> None:
    stream = LiveStream()
    inject.provider.on("/events", stream)
    sock = inject.service.open()
    sock.sendall(request_bytes("GET", "http://api.example/events"))
    read_head(sock)
    sock.close()
    assert stream.await_hangup(10) is not End.OPEN


def test_a_body_goes_up_while_the_answer_comes_down(inject: Injecting) -> None:
    """An upstream that answers as it reads (a translation, a log tail) deadlocks on nobody."""
    gate = threading.Event()
    begin = head(200, [("Transfer-Encoding", "chunked")]) + chunk(b"reading")
    inject.provider.on("/", play(begin, gate, read_body, chunk(b"done") + b"0\r\n\r\n"))
    sock = inject.service.open()
    sock.sendall(request_bytes("POST", "http://api.example/", [("Content-Length", "6")]) + b"abc")
    assert read_head(sock).status == 200
    assert read_chunk(sock) == b"reading"
    gate.set()
    sock.sendall(b"def")
    assert read_chunk(sock) == b"done"
    assert read_chunk(sock) == b""
    assert inject.only_request.body == b"abcdef"


def test_a_large_body_arrives_whole_both_ways(inject: Injecting) -> None:
    body = bytes(range(256)) * 40_000
    inject.provider.on("/", lambda exchange: exchange.send(fixed(exchange.read_body()[:1] * len(body))))
    sock = inject.service.open()
    sock.sendall(request_bytes("PUT", "http://api.example/", body=body))
    answer = read_response(sock, timeout_s=20)
    assert answer.body == b"\0" * len(body)
    assert inject.only_request.body_count == len(body)
    sock.close()
    assert read_exactly(inject.service.tunnel("api.example:80", extra=GET), 8) == b"HTTP/1.1"
