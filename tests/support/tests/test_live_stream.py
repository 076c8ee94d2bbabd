"""The stream that a test speaks, against a plain socket: order, endings, hang-ups.

Nothing of the product is used here.
See ../live_stream.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import answers, http
from tests.support.byte_stream import End, close_with_reset, connect, read_some, read_until_end
from tests.support.live_stream import LiveStream
from tests.support.provider import Provider

GET = b"GET /x HTTP/1.1\r\nHost: api.example\r\n\r\n"


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as running:
        yield running


def test_events_leave_one_by_one_when_the_test_says_so(provider: Provider) -> None:
    stream = LiveStream()
    provider.on("/x", stream, answers.fixed(b"next"))
    with connect(provider.port) as sock:
        sock.sendall(GET)
        assert http.read_head(sock).value("content-type") == "text/event-stream"
        assert read_until_end(sock, 0.05) == (b"", End.OPEN)
        for text in ("one", "two"):
            sent = stream.event(text)
            assert http.read_chunk(sock) == sent
        stream.finish()
        assert http.read_chunk(sock) == b""
        sock.sendall(GET)
        assert http.read_response(sock).body == b"next"


@pytest.mark.parametrize(("ending", "end"), [("drop", End.EOF), ("reset", End.RESET)])
def test_a_stream_can_break(provider: Provider, ending: str, end: End) -> None:
    stream = LiveStream(chunked=False, headers=())
    provider.on("/x", stream)
    with connect(provider.port) as sock:
        sock.sendall(GET)
        http.read_head(sock)
        stream.push(b"part")
        assert read_some(sock) == b"part"
        getattr(stream, ending)()
        assert read_until_end(sock) == (b"", end)


@pytest.mark.parametrize("end", [End.EOF, End.RESET])
def test_a_stream_sees_its_client_hang_up(provider: Provider, end: End) -> None:
    stream = LiveStream()
    provider.on("/x", stream)
    sock = connect(provider.port)
    sock.sendall(GET)
    stream.wait_begun()
    http.read_head(sock)
    if end is End.EOF:
        sock.close()
    else:
        close_with_reset(sock)
    assert stream.await_hangup() is end


def test_a_stream_answers_one_request_only() -> None:
    stream = LiveStream()
    provider = Provider()
    provider.on("/x", stream)

    def play() -> None:
        with provider, connect(provider.port) as sock:
            sock.sendall(GET + GET)
            http.read_head(sock)
            stream.finish()
            assert read_until_end(sock)[0] == b"0\r\n\r\n"

    with pytest.raises(ExceptionGroup, match="scripts"):
        play()


def test_waiting_for_a_request_that_never_comes_has_a_deadline() -> None:
    with pytest.raises(TimeoutError):
        LiveStream().wait_begun(0.05)
