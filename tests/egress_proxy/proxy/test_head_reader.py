"""Rules of reading a head: exactly one, within its bytes and its time, and early words for what is none.

Real sockets; what the bytes mean is core/request.py's, tested there.
See egress_proxy/proxy/head_reader.py.
"""

import asyncio
import contextlib
import socket
import time
import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress_proxy.core.decision import Deny, Reason
from egress_proxy.core.host import parse_authority
from egress_proxy.proxy.head_reader import Silence, judge_held, read_head
from egress_proxy.proxy.stream import SocketStream, StreamReset
from tests.egress_proxy.proxy.hellos import hello
from tests.egress_proxy.proxy.socket_pairs import unread_bytes
from tests.egress_proxy.proxy.stream_ends import connected
from tests.support.byte_stream import close_with_reset
from tests.support.deadline import DEFAULT_S

HEAD = b"CONNECT ok.example:443 HTTP/1.1\r\nHost: ok.example:443\r\n\r\n"
LIMIT = 16_384
TOO_LARGE = Deny(Reason.HEAD_TOO_LARGE)
NOT_HTTP = Deny(Reason.NOT_HTTP)
EARLY_S = 2.0  # what is not HTTP is closed within this (contract 8)

Outcome = bytes | Deny | Silence


async def read(stream: SocketStream, limit_bytes: int = LIMIT, timeout_s: float = DEFAULT_S) -> Outcome:
    return await read_head(stream, limit_bytes, timeout_s)


def said(outcome: Outcome) -> Outcome:
    """Without the target, which has a test of its own."""
    return replace(outcome, target=None) if isinstance(outcome, Deny) else outcome


async def outcome_of(data: bytes, limit_bytes: int = LIMIT) -> Outcome:
    """What becomes of bytes of a client that keeps the connection open and waits."""
    with connected() as (ours, theirs):
        theirs.sendall(data)
        async with asyncio.timeout(EARLY_S):
            return said(await read(ours, limit_bytes, timeout_s=60))


def head_of(size: int) -> bytes:
    """A head of so many bytes, its empty line included."""
    return HEAD[:-2] + b"X: " + b"x" * (size - len(HEAD) - 5) + b"\r\n\r\n"


# One head, and not a byte more


async def test_a_head_is_given_as_it_came_with_its_empty_line() -> None:
    with connected() as (ours, theirs):
        theirs.sendall(HEAD)
        assert await read(ours) == HEAD
        assert ours.take_unread() == b""


@pytest.mark.parametrize("behind", [b"H", b"HELLO", HEAD, HEAD[:5], b"\r\n\r\n", b"\0" * 60_000, hello()])
async def test_what_came_behind_a_head_is_given_back_to_the_byte(behind: bytes) -> None:
    with connected() as (ours, theirs):
        theirs.sendall(HEAD + behind)
        assert await read(ours) == HEAD
        received = b""
        while len(received) < len(behind):
            received += await ours.receive()
        assert received == behind


async def test_heads_that_were_sent_at_once_are_read_one_by_one() -> None:
    heads = [HEAD, HEAD.replace(b"ok", b"no"), b"GET / HTTP/1.0\r\n\r\n"]
    with connected() as (ours, theirs):
        theirs.sendall(b"".join(heads))
        assert [await read(ours) for _ in heads] == heads


async def test_a_head_that_comes_byte_by_byte_is_read_with_the_rest_glued_to_its_last() -> None:
    with connected() as (ours, theirs):
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(read(ours))
            for at in range(len(HEAD) - 1):
                theirs.send(HEAD[at : at + 1])
                await asyncio.sleep(0)  # one turn of the loop, in which the byte is read
                assert not reading.done()
            theirs.send(HEAD[-1:] + b"HELLO")
        assert reading.result() == HEAD
        assert ours.take_unread() == b"HELLO"


@pytest.mark.parametrize("cut", range(len(HEAD) - 4, len(HEAD)))
async def test_an_empty_line_in_two_pieces_is_one(cut: int) -> None:
    with connected() as (ours, theirs):
        ours.unread(HEAD[:cut])
        theirs.sendall(HEAD[cut:] + b"!")
        assert await read(ours) == HEAD
        assert await ours.receive() == b"!"


async def test_bytes_that_were_given_back_begin_the_next_head() -> None:
    with connected() as (ours, theirs):
        ours.unread(HEAD[:10])
        theirs.sendall(HEAD[10:])
        assert await read(ours) == HEAD


# Size


@pytest.mark.parametrize("limit", [200, LIMIT])
async def test_a_head_may_be_as_large_as_its_limit_and_not_a_byte_larger(limit: int) -> None:
    assert len(head_of(limit)) == limit
    assert await outcome_of(head_of(limit), limit) == head_of(limit)
    assert await outcome_of(head_of(limit + 1), limit) == TOO_LARGE


@pytest.mark.parametrize("missing", [1, 2, 3, 4])
async def test_a_head_that_has_no_end_at_its_limit_is_refused_without_waiting(missing: int) -> None:
    assert await outcome_of(head_of(LIMIT + missing)[:LIMIT]) == TOO_LARGE


@pytest.mark.parametrize(
    "data",
    [
        b"CONNECT " + b"a" * 70_000,
        b"CONNECT ok.example:443 HTTP/1.1\r\nX: " + b"a" * 60_000,
        b"CONNECT ok.example:443 HTTP/1.1\r\n" + b"X: y\r\n" * 5_000,
        b"A" * 70_000,
    ],
)
async def test_a_flood_is_refused_when_the_limit_is_reached(data: bytes) -> None:
    assert await outcome_of(data) == TOO_LARGE


async def test_the_size_of_what_comes_behind_does_not_count() -> None:
    with connected() as (ours, theirs):
        theirs.sendall(head_of(200) + b"x" * 60_000)
        assert await read(ours, limit_bytes=200) == head_of(200)


# What is not HTTP


@pytest.mark.parametrize(
    "data",
    [
        hello(),
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"\x16",
        b"\x05\x01\x00",  # SOCKS 5
        b"\x04\x01\x00\x50\x7f\x00\x00\x01\x00",  # SOCKS 4
        b"\x00",
        b"\xff\xff",
        b"\x80\x2e\x01\x00\x02",
        "é".encode(),
    ],
)
async def test_another_protocol_is_told_by_its_first_bytes_and_gets_no_text(data: bytes) -> None:
    assert await outcome_of(data) is Silence.BINARY


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.2p1\r\n",
        b"EHLO mail.example\r\n",
        b"GET / HTTP/2\r\n",
        b"GET /\r\n",  # HTTP/0.9
        b"hello\n",
        b"\r\n",
        b"\n",
        b"CONNECT ok.example:443 HTTP/1.1\n",  # no carriage return
        b"CONNECT  ok.example:443 HTTP/1.1\r\n",
        b"CONNECT ok.example:443\tHTTP/1.1\r\n",
        b"220 mail.example ready\r\n",
    ],
)
async def test_text_that_is_no_request_is_told_at_once(data: bytes) -> None:
    assert await outcome_of(data) == NOT_HTTP


@pytest.mark.parametrize("size", [1, 16, 18, 24])
async def test_the_preface_of_http2_is_no_request(size: int) -> None:
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    assert judge_held(preface[:size], LIMIT) == (None if size == 1 else NOT_HTTP)


@pytest.mark.parametrize("data", [b"SSH-2.0-x\r\n", b"\x05\x01\x00", b"\n"])
async def test_what_came_in_single_bytes_is_told_as_well(data: bytes) -> None:
    with connected() as (ours, theirs):
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(read(ours))
            for at in range(len(data)):
                if reading.done():
                    break
                theirs.send(data[at : at + 1])
                await asyncio.sleep(0)
        assert reading.result() in (NOT_HTTP, Silence.BINARY)


@pytest.mark.parametrize("data", [b"C", b"CONNECT", b"CONNECT ", HEAD[:20], HEAD[:33], HEAD[:-2], HEAD[:-1]])
async def test_what_may_become_a_request_is_waited_for(data: bytes) -> None:
    with connected() as (ours, theirs):
        theirs.sendall(data)
        assert said(await read(ours, timeout_s=0.1)) == Deny(Reason.HEAD_TIMEOUT)


async def test_a_bare_line_end_within_a_head_is_told_at_once() -> None:
    outcome = await outcome_of(b"CONNECT ok.example:443 HTTP/1.1\r\nHost: x\nX: y\r\n")
    assert isinstance(outcome, Deny)
    assert outcome.reason is Reason.MALFORMED


# However the bytes are cut

# Each is one that readers of whole pieces and of single bytes have told apart.
CUT_APART = [
    b"\x05\r\n\r\n",
    b".\r\n\r\n",
    b"\x16\x03\x01\x00\x05\r\n\r\n",
    b"(GET / HTTP/1.1\r\n\r\n",
    b"\r\n\r\n",
    b"hello\r\n\r\n",
    b"GET / HTTP/1.2\r\n\r\n",
    b"GET  / HTTP/1.1\r\n\r\n",
    b"T / HTTP/1.1\r\nH\n.0.1\r\n\r\n",
    b"CONNECT a:80 HTTP/1.1\r\nX: " + b"l" * 300 + b"\n\r\n\r\n",
    b"x" * 300 + b"\r\n\r\n",
    b"GET /" + b"x" * 300 + b" HTTP/3\r\n\r\n",
    b"CONNECT a:80 HTTP/1.1\r\n\r\nPOST / HTTP/9\r\n\r\n",
    HEAD,
]
PIECES = st.sampled_from(
    [b"GET ", b"CONNECT a:1 ", b"/", b"HTTP/1.1", b"\r\n", b"\n", b"\r", b"X: y", b"\0", b" ", b"x" * 99]
)


def byte_by_byte(data: bytes, limit_bytes: int) -> int | Deny | Silence | None:
    for size in range(1, min(len(data), limit_bytes) + 1):
        judged = judge_held(data[:size], limit_bytes)
        if judged is not None:
            return judged
    return None


def reason_of(judged: int | Deny | Silence | None) -> object:
    # Of a target that had not come yet nothing can be said.
    return replace(judged, target=None) if isinstance(judged, Deny) else judged


@pytest.mark.parametrize("data", CUT_APART)
def test_bytes_get_one_answer_in_whatever_pieces_they_come(data: bytes) -> None:
    for limit in (64, 200, LIMIT):
        whole = judge_held(data[:limit], limit)
        assert reason_of(whole) == reason_of(byte_by_byte(data, limit))


@given(st.lists(PIECES, max_size=14).map(b"".join))
def test_any_bytes_get_one_answer_in_whatever_pieces_they_come(data: bytes) -> None:
    if data:
        assert reason_of(judge_held(data[:200], 200)) == reason_of(byte_by_byte(data, 200))


@pytest.mark.parametrize(
    ("data", "target"),
    [
        (b"CONNECT ok.example:443 HTTP/1.1\r\nX : 1\nY: 2\r\n", "ok.example:443"),
        (b"CONNECT ok.example:443 HTTP/1.1\n", "ok.example:443"),
        (b"GET http://u:p@ok.example/ HTTP/1.1\r\nX\n", "ok.example:80"),
        (b"BREW https://ok.example:8443/x HTTP/1.1\r\n" + b"X: y\r\n" * 4_000, "ok.example:8443"),
        (b"GET / HTTP/1.1\r\nX\n", None),
        (b"CONNECT ok.example:44\n", None),  # there may have been more of it
        (b"CONNECT nonsense HTTP/1.1\r\nX\n", None),
    ],
)
def test_a_refusal_names_the_target_where_one_can_be_read(data: bytes, target: str | None) -> None:
    judged = judge_held(data[:LIMIT], LIMIT)
    assert isinstance(judged, Deny)
    assert judged.target == (parse_authority(target) if target else None)


# Time


async def test_a_head_has_so_much_time_however_often_a_byte_comes() -> None:
    with connected() as (ours, theirs):
        begun = time.monotonic()
        async with asyncio.TaskGroup() as group:
            trickle = group.create_task(_trickle(theirs))
            outcome = await read(ours, timeout_s=0.3)
            trickle.cancel()
        assert said(outcome) == Deny(Reason.HEAD_TIMEOUT)
        assert 0.3 <= time.monotonic() - begun < 1.3


async def _trickle(sock: socket.socket) -> None:
    while True:
        sock.send(b"C")
        await asyncio.sleep(0.02)


async def test_who_never_says_a_word_gets_none() -> None:
    with connected() as (ours, _):
        assert await read(ours, timeout_s=0.05) is Silence.CLOSED


async def test_a_probe_that_connects_and_closes_is_harmless() -> None:
    with connected() as (ours, theirs):
        theirs.close()
        assert await read(ours) is Silence.CLOSED


async def test_who_leaves_in_the_middle_of_a_head_is_told_so() -> None:
    with connected() as (ours, theirs):
        theirs.sendall(HEAD[:20])
        theirs.shutdown(socket.SHUT_WR)
        outcome = await read(ours)
        assert isinstance(outcome, Deny)
        assert outcome.reason is Reason.MALFORMED


async def test_a_reset_is_a_reset() -> None:
    with connected() as (ours, theirs):
        close_with_reset(theirs)
        with pytest.raises(StreamReset):
            await read(ours)


# What half a head costs.


async def test_half_a_head_is_held_once_and_no_larger_than_it_is() -> None:
    """15 KiB of one cost 32: a buffer that had grown ahead, and the last piece beside it."""
    half = head_of(15_000)[:-2]
    with contextlib.ExitStack() as stack:
        pairs = [stack.enter_context(connected()) for _ in range(40)]
        readers = [asyncio.get_running_loop().create_task(read(ours)) for ours, _ in pairs]
        await asyncio.sleep(0)
        tracemalloc.start()
        try:
            for _, theirs in pairs:
                theirs.sendall(half)
            async with asyncio.timeout(DEFAULT_S):
                while any(unread_bytes(ours.sock) for ours, _ in pairs):
                    await asyncio.sleep(0)
            await asyncio.sleep(0.01)  # the last of them has its turn
            held = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    assert held / len(pairs) < len(half) + 4096
