"""Rules of TLS over a used stream: who is refused, how it ends, and that no byte is lost or sent too early.

Real handshakes over loopback with a server in a thread; certificates by trustme.
See egress_proxy/proxy/tls.py.
"""

import asyncio
import contextlib
import hashlib
import select
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from egress_proxy.proxy.stream import SocketStream, StreamReset, StreamTruncated
from egress_proxy.proxy.tls import TlsFailed, TlsStream
from tests.conftest import Start
from tests.egress_proxy.proxy.key_updates import Sealer
from tests.egress_proxy.proxy.socket_pairs import await_event, await_unread
from tests.egress_proxy.proxy.stream_ends import descriptors, receive, send, until_readable
from tests.egress_proxy.proxy.tls_origin import NAME, TlsOrigin, dialled, drain, echo, exchange_all, secured
from tests.support.byte_stream import End, close_with_reset, end_direction, read_exactly
from tests.support.certificates import CertificateAuthority, Leaf, server_context
from tests.support.deadline import DEFAULT_S
from tests.support.origins import BannerOrigin, EarlyCloseOrigin, ResetOrigin, SilentOrigin, pattern

BULK_BYTES = 4 * 1024 * 1024
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


async def read_all(stream: TlsStream) -> bytes:
    received = bytearray()
    while block := await receive(stream):
        received += block
    return bytes(received)


# Who is refused


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("shown", "reason"),
    [
        (lambda ca: ca.wrong_name(), "Hostname mismatch, certificate is not valid for 'ok.example'."),
        (lambda ca: ca.leaf("*.ok.example"), "Hostname mismatch, certificate is not valid for 'ok.example'."),
        (lambda ca: ca.expired(NAME), "certificate has expired"),
        (lambda ca: ca.not_yet_valid(NAME), "certificate is not yet valid"),
        (lambda ca: ca.self_signed(NAME), "self signed certificate"),
        (lambda ca: ca.foreign(NAME), "unable to get local issuer certificate"),
    ],
)
async def test_a_wrong_certificate_is_refused_with_the_reason_before_a_byte_is_sent(
    shown: Callable[[CertificateAuthority], Leaf],
    reason: str,
    version: ssl.TLSVersion,
    ca: CertificateAuthority,
    start: Start,
) -> None:
    context = server_context(shown(ca))
    context.maximum_version = version
    origin = start(TlsOrigin(context))
    async with dialled(origin.port) as below:
        with pytest.raises(TlsFailed) as failed:
            await TlsStream.connect(below, ca.client_context(), NAME)
    assert str(failed.value).replace("self-signed", "self signed") == reason  # as OpenSSL 3, as 1.1
    await asyncio.to_thread(origin.wait_for_handshake)
    origin.stop()
    assert origin.application_bytes == 0


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_server_is_told_why_it_was_refused(
    version: ssl.TLSVersion, ca: CertificateAuthority, start: Start
) -> None:
    context = server_context(ca.foreign(NAME))
    context.maximum_version = version
    told: list[str] = []

    def read(sock: ssl.SSLSocket) -> None:  # with TLS 1.3 its handshake ends before the client's
        try:
            sock.recv(1)
        except ssl.SSLError as error:
            told.append(str(error))
            raise

    origin = start(TlsOrigin(context, read))
    async with dialled(origin.port) as below:
        with pytest.raises(TlsFailed):
            await TlsStream.connect(below, ca.client_context(), NAME)
    handshake = await asyncio.to_thread(origin.wait_for_handshake)
    origin.stop()
    assert "UNKNOWN_CA" in "".join([handshake, *told]).upper()


async def test_the_right_certificate_is_taken_for_a_name_a_wildcard_and_an_address(
    ca: CertificateAuthority, start: Start
) -> None:
    wildcard = ("*.ok.example", "api.ok.example")
    for shown, asked in [(NAME, NAME), wildcard, ("127.0.0.1", "127.0.0.1"), ("::1", "::1")]:
        origin = start(TlsOrigin(server_context(ca.leaf(shown)), echo))
        async with dialled(origin.port) as below:
            stream = await TlsStream.connect(below, ca.client_context(), asked)
            await send(stream, b"hello")
            assert await receive(stream) == b"hello"


async def test_a_server_that_does_not_speak_tls_is_refused(ca: CertificateAuthority, start: Start) -> None:
    origin = start(BannerOrigin(b"220 mail.example ready\r\n"))
    async with dialled(origin.port) as below:
        with pytest.raises(TlsFailed, match="WRONG_VERSION_NUMBER"):
            await TlsStream.connect(below, ca.client_context(), NAME)


async def test_a_server_that_leaves_during_the_handshake_is_a_failure(
    ca: CertificateAuthority, start: Start
) -> None:
    origin = start(EarlyCloseOrigin())
    async with dialled(origin.port) as below:
        with pytest.raises(TlsFailed):
            await TlsStream.connect(below, ca.client_context(), NAME)


async def test_a_server_that_resets_during_the_handshake_is_a_reset(
    ca: CertificateAuthority, start: Start
) -> None:
    origin = start(ResetOrigin(after_bytes=100))
    async with dialled(origin.port) as below:
        with pytest.raises(StreamReset):
            await TlsStream.connect(below, ca.client_context(), NAME)


async def test_a_handshake_that_hangs_can_be_given_up(ca: CertificateAuthority, start: Start) -> None:
    origin = start(SilentOrigin())
    async with dialled(origin.port) as below:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await TlsStream.connect(below, ca.client_context(), NAME)


# No byte is lost


async def test_bytes_that_were_read_before_the_handshake_belong_to_it(
    ca: CertificateAuthority, start: Start
) -> None:
    origin = start(TlsOrigin(server_context(ca.leaf(NAME)), echo))
    async with dialled(origin.port) as below:
        below.unread(b"220 not TLS\r\n")
        with pytest.raises(TlsFailed, match="WRONG_VERSION_NUMBER"):
            await TlsStream.connect(below, ca.client_context(), NAME)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_server_flight_that_was_read_by_somebody_else_is_not_lost(
    version: ssl.TLSVersion, ca: CertificateAuthority
) -> None:
    """CPython issue 142352: here the whole answer to the hello lies in `unread` when TLS asks for it."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        below = GivingBack(asyncio.get_running_loop(), ours)
        context = server_context(ca.leaf(NAME))
        context.maximum_version = version
        serving = threading.Thread(target=_greet, args=(context, theirs), daemon=True)
        serving.start()
        stream = await TlsStream.connect(below, ca.client_context(), NAME)
        assert await receive(stream) == b"greeting"
        assert below.gave_back > 1
        stream.close()
        await asyncio.to_thread(serving.join, DEFAULT_S)


class GivingBack(SocketStream):
    """Reads ahead, gives all of it back, then hands it out in small pieces."""

    __slots__ = ("gave_back",)

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
        super().__init__(loop, sock)
        self.gave_back = 0

    async def receive(self, limit_s: float | None = None) -> bytes:
        data = await super().receive(limit_s)
        self.unread(data)
        self.gave_back += 1
        taken = self.take_unread()
        self.unread(taken[100:])
        return taken[:100]


def _greet(context: ssl.SSLContext, sock: socket.socket) -> None:
    sock.settimeout(DEFAULT_S)
    with context.wrap_socket(sock, server_side=True) as secured:
        secured.sendall(b"greeting")
        with contextlib.suppress(OSError):
            secured.recv(1)


async def test_what_comes_in_one_segment_with_the_handshake_is_received(
    ca: CertificateAuthority, start: Start
) -> None:
    async with secured(start, ca, lambda sock: sock.sendall(b"greeting"), tickets=2) as (stream, _):
        assert await receive(stream) == b"greeting"


@pytest.mark.parametrize("version", VERSIONS)
async def test_megabytes_both_ways_at_once_arrive_byte_for_byte(
    version: ssl.TLSVersion, ca: CertificateAuthority, start: Start
) -> None:
    context = server_context(ca.leaf(NAME))
    context.maximum_version = version
    up, down = pattern(BULK_BYTES)[::-1], pattern(BULK_BYTES)
    arrived: list[bytes] = []

    def both_ways(sock: ssl.SSLSocket) -> None:
        arrived.append(exchange_all(sock, down, BULK_BYTES))
        end_direction(sock)

    origin = start(TlsOrigin(context, both_ways))
    async with dialled(origin.port) as below:
        stream = await TlsStream.connect(below, ca.client_context(), NAME)
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(read_all(stream))
            for begin in range(0, BULK_BYTES, 99_999):
                await send(stream, up[begin : begin + 99_999])
    assert hashlib.sha256(reading.result()).digest() == hashlib.sha256(down).digest()
    origin.stop()
    assert hashlib.sha256(arrived[0]).digest() == hashlib.sha256(up).digest()


async def test_what_is_given_while_the_connection_is_full_goes_out_in_order(
    ca: CertificateAuthority, start: Start
) -> None:
    """As a body and what TLS itself has to say while reading do; the first one fills the connection."""
    begin = threading.Event()
    arrived: list[bytes] = []
    bulk, small = pattern(BULK_BYTES), [bytes([number]) * 1000 for number in range(50)]

    def read_late(sock: ssl.SSLSocket) -> None:
        begin.wait(DEFAULT_S)
        arrived.append(read_exactly(sock, BULK_BYTES + 50_000))
        sock.sendall(b"done")

    async with secured(start, ca, read_late) as (stream, _):
        stream.give(bulk)
        assert stream.is_clogged()
        for piece in small:
            stream.give(piece)
        begin.set()
        assert await receive(stream, DEFAULT_S) == b"done"
        assert not stream.is_clogged()
    assert arrived == [bulk + b"".join(small)]


async def test_who_gave_too_much_is_told_when_it_has_gone_out(ca: CertificateAuthority, start: Start) -> None:
    begin = threading.Event()

    def read_late(sock: ssl.SSLSocket) -> None:
        begin.wait(DEFAULT_S)
        read_exactly(sock, BULK_BYTES)
        sock.sendall(b"done")

    async with secured(start, ca, read_late) as (stream, _):
        gone = asyncio.Event()
        stream.on_room = gone.set
        stream.give(pattern(BULK_BYTES))
        assert stream.is_clogged()
        begin.set()
        await asyncio.wait_for(gone.wait(), DEFAULT_S)
        assert not stream.is_clogged()
        assert not stream.is_broken()
        assert await receive(stream, DEFAULT_S) == b"done"


async def test_a_server_that_resets_while_the_connection_is_full_breaks_it(
    ca: CertificateAuthority, start: Start
) -> None:
    begin = threading.Event()

    def leave_late(sock: ssl.SSLSocket) -> None:
        begin.wait(DEFAULT_S)
        close_with_reset(sock)

    async with secured(start, ca, leave_late) as (stream, _):
        told = asyncio.Event()
        stream.on_room = told.set
        stream.give(pattern(BULK_BYTES))
        begin.set()
        await asyncio.wait_for(told.wait(), DEFAULT_S)
        assert stream.is_broken()
        assert not stream.is_clogged()


@pytest.mark.parametrize("limit_bytes", [1, 1000, 16_384])
async def test_a_read_takes_no_more_from_the_connection_than_it_may(
    limit_bytes: int, ca: CertificateAuthority, start: Start
) -> None:
    def send_records(sock: ssl.SSLSocket) -> None:
        for begin in range(0, 50_000, 1000):
            sock.sendall(pattern(50_000)[begin : begin + 1000])
        drain(sock)

    async with secured(start, ca, send_records) as (stream, sock):
        await asyncio.to_thread(await_unread, sock, 50_000)
        received, pieces = bytearray(), []
        while len(received) < 50_000:
            piece = stream.take(limit_bytes) or b""
            pieces.append(len(piece))
            received += piece
        assert max(pieces) <= max(limit_bytes, 1000)  # a record that is whole at last is taken whole
        assert received == pattern(50_000)


async def test_an_empty_send_is_no_end(ca: CertificateAuthority, start: Start) -> None:
    async with secured(start, ca, echo) as (stream, _):
        await send(stream, b"")
        await send(stream, b"x")
        assert await receive(stream) == b"x"


# How it ends


def leave_cleanly(sock: ssl.SSLSocket) -> None:
    sock.sendall(b"body")
    end_direction(sock)
    drain(sock)


def leave_without_notify(sock: ssl.SSLSocket) -> None:
    sock.sendall(b"body")
    socket.socket.shutdown(sock, socket.SHUT_WR)
    drain(sock)


async def test_an_announced_end_is_the_end(ca: CertificateAuthority, start: Start) -> None:
    async with secured(start, ca, leave_cleanly) as (stream, _):
        assert await read_all(stream) == b"body"
        assert await receive(stream) == b""


async def test_an_end_without_close_notify_is_a_truncation(ca: CertificateAuthority, start: Start) -> None:
    async with secured(start, ca, leave_without_notify) as (stream, _):
        assert await receive(stream) == b"body"
        with pytest.raises(StreamTruncated):
            await receive(stream)


async def test_a_context_that_overlooks_missing_ends_does_not_hide_a_truncation(
    ca: CertificateAuthority, start: Start
) -> None:
    """Python's own default in some versions, `OP_IGNORE_UNEXPECTED_EOF`."""
    context = ca.client_context()
    context.options |= ssl.OP_IGNORE_UNEXPECTED_EOF
    origin = start(TlsOrigin(server_context(ca.leaf(NAME)), leave_without_notify))
    async with dialled(origin.port) as below:
        stream = await TlsStream.connect(below, context, NAME)
        assert await receive(stream) == b"body"
        with pytest.raises(StreamTruncated):
            await receive(stream)


async def test_a_reset_is_a_reset_for_reader_and_writer(ca: CertificateAuthority, start: Start) -> None:
    async with secured(start, ca, close_with_reset) as (stream, _):
        with pytest.raises(StreamReset):
            await receive(stream)
        with pytest.raises(StreamReset):
            await send(stream, b"x")


async def test_a_broken_record_is_no_end(ca: CertificateAuthority, start: Start) -> None:
    def corrupt(sock: ssl.SSLSocket) -> None:
        socket.socket.sendall(sock, b"\x17\x03\x03\x00\x20" + bytes(32))
        drain(sock)

    async with secured(start, ca, corrupt) as (stream, _):
        with pytest.raises(StreamReset):
            await receive(stream)


async def test_an_aborted_stream_is_a_reset_at_the_server(ca: CertificateAuthority, start: Start) -> None:
    ends: list[End] = []
    watched = threading.Event()

    def watch(sock: ssl.SSLSocket) -> None:
        try:
            ends.append(End.OPEN if socket.socket.recv(sock, 1) else End.EOF)
        except ConnectionResetError:
            ends.append(End.RESET)
        watched.set()

    async with secured(start, ca, watch) as (stream, _):
        stream.abort()
        await asyncio.to_thread(watched.wait, DEFAULT_S)
    assert ends == [End.RESET]


async def test_closing_gives_the_descriptor_back(ca: CertificateAuthority, start: Start) -> None:
    async with secured(start, ca, echo) as (stream, _):
        before = descriptors()
        stream.close()
        assert descriptors() <= before - 1


# Key updates (RFC 8446 4.6.3). OpenSSL answers one when there is something to read behind it, or to send.

KEY_UPDATE_BYTES = 27  # and as many is its answer
Seal = Callable[[ssl.SSLSocket, Sealer], None]


@contextlib.asynccontextmanager
async def updating(
    start: Start, ca: CertificateAuthority, folder: Path, script: Seal
) -> AsyncIterator[tuple[TlsStream, SocketStream]]:
    """Our stream, and the one below it, to a server whose script seals what it sends."""
    context = server_context(ca.leaf(NAME))
    context.num_tickets = 0
    keylog = folder / "secrets"
    context.keylog_filename = str(keylog)
    origin = start(TlsOrigin(context, lambda sock: script(sock, Sealer(sock, keylog))))
    async with dialled(origin.port) as below:
        yield await TlsStream.connect(below, ca.client_context(), NAME), below


def send_raw(sock: ssl.SSLSocket, records: bytes) -> None:
    socket.socket.sendall(sock, records)


async def test_a_key_update_is_answered_and_no_end(
    ca: CertificateAuthority, start: Start, tmp_path: Path
) -> None:
    def update(sock: ssl.SSLSocket, sealer: Sealer) -> None:
        send_raw(sock, sealer.sealed(b"one") + sealer.key_update() + sealer.sealed(b"two"))
        send_raw(sock, sealer.sealed(sock.recv(10)))  # sealed by the new key, or OpenSSL refuses it

    async with updating(start, ca, tmp_path, update) as (stream, _):
        assert await receive(stream) + (await receive(stream) if stream.has_more() else b"") == b"onetwo"
        await send(stream, b"three")
        assert await receive(stream) == b"three"


@pytest.mark.parametrize("count", [1, 2, 20])
async def test_a_key_update_is_answered_in_its_place_though_the_connection_is_full(
    count: int, ca: CertificateAuthority, start: Start, tmp_path: Path
) -> None:
    begin = threading.Event()
    arrived: list[bytes] = []

    def update(sock: ssl.SSLSocket, sealer: Sealer) -> None:
        send_raw(sock, b"".join(sealer.key_update() for _ in range(count)))
        begin.wait(DEFAULT_S)
        arrived.append(read_exactly(sock, BULK_BYTES + 5))
        send_raw(sock, sealer.sealed(b"done"))

    async with updating(start, ca, tmp_path, update) as (stream, below):
        stream.give(pattern(BULK_BYTES))
        assert stream.is_clogged()
        await asyncio.to_thread(await_unread, below.sock, count * KEY_UPDATE_BYTES)
        assert stream.take() is None
        assert not stream.has_more()
        stream.give(b"after")
        begin.set()
        assert await receive(stream, DEFAULT_S) == b"done"
    assert arrived == [pattern(BULK_BYTES) + b"after"]


async def test_a_server_that_asks_for_key_updates_without_end_and_takes_none_in_is_a_reset(
    ca: CertificateAuthority, start: Start, tmp_path: Path
) -> None:
    """Each would be one more answer that waits for it in our memory."""
    over = threading.Event()

    def flood(sock: ssl.SSLSocket, sealer: Sealer) -> None:
        with contextlib.suppress(OSError):
            send_raw(sock, b"".join(sealer.key_update() for _ in range(20_000)) + sealer.sealed(b"too late"))
        over.wait(20)

    async with updating(start, ca, tmp_path, flood) as (stream, below):
        stream.give(pattern(4 * BULK_BYTES))  # more than the kernel holds at both ends
        assert stream.is_clogged()
        waiting = len(below._unsent)
        with pytest.raises(StreamReset):
            await receive(stream, 20)
        assert len(below._unsent) - waiting <= 4096
        with pytest.raises(StreamReset):  # and so it stays
            stream.take()
        stream.close()
        over.set()


async def test_answers_that_waited_and_have_gone_out_do_not_count_any_more(
    ca: CertificateAuthority, start: Start, tmp_path: Path
) -> None:
    """100 each time the connection is full, of the 150 or so that may wait."""
    bulk = pattern(4 * BULK_BYTES)
    begin = [threading.Event(), threading.Event()]

    def update(sock: ssl.SSLSocket, sealer: Sealer) -> None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)  # or the second time it takes all
        for gate in begin:
            sock.recv(1)
            send_raw(sock, b"".join(sealer.key_update() for _ in range(100)))
            gate.wait(DEFAULT_S)
            read_exactly(sock, len(bulk) - 1)
            send_raw(sock, sealer.key_update() + sealer.sealed(b"next"))

    async with updating(start, ca, tmp_path, update) as (stream, below):
        for gate in begin:
            stream.give(bulk)
            assert stream.is_clogged()
            await asyncio.to_thread(await_unread, below.sock, 100 * KEY_UPDATE_BYTES)
            assert stream.take() is None
            gone = asyncio.Event()
            stream.on_room = gone.set
            gate.set()
            await asyncio.wait_for(gone.wait(), DEFAULT_S)
            assert await receive(stream, DEFAULT_S) == b"next"


async def test_a_server_that_takes_the_answers_in_may_update_its_keys_as_often_as_it_likes(
    ca: CertificateAuthority, start: Start, tmp_path: Path
) -> None:
    def update(sock: ssl.SSLSocket, sealer: Sealer) -> None:
        for number in range(300):
            send_raw(sock, sealer.key_update() + sealer.sealed(bytes([number % 256])))
            assert sock.recv(1) == bytes([number % 256])

    async with updating(start, ca, tmp_path, update) as (stream, _):
        for number in range(300):
            assert await receive(stream, DEFAULT_S) == bytes([number % 256])
            await send(stream, bytes([number % 256]))


async def test_what_came_before_a_key_update_that_cannot_be_answered_is_taken_and_then_the_reset(
    ca: CertificateAuthority, start: Start, tmp_path: Path
) -> None:
    def answer_and_reset(sock: ssl.SSLSocket, sealer: Sealer) -> None:
        send_raw(sock, sealer.sealed(b"a whole answer") + sealer.key_update() + sealer.key_update())
        close_with_reset(sock)

    async with updating(start, ca, tmp_path, answer_and_reset) as (stream, below):
        await asyncio.to_thread(await_event, below.sock, select.POLLHUP)
        assert stream.take() == b"a whole answer"
        assert stream.has_more()
        assert not stream.is_quiet()
        with pytest.raises(StreamReset):
            stream.take()


# What may be used again


async def test_an_idle_stream_is_quiet_though_session_tickets_came(
    ca: CertificateAuthority, start: Start
) -> None:
    """TLS 1.3 sends tickets when the handshake is over; they are no answer to a request."""
    async with secured(start, ca, echo, tickets=4) as (stream, sock):
        await until_readable(sock)
        assert stream.is_quiet()
        assert stream.is_quiet()
        await send(stream, b"still usable")
        assert await receive(stream) == b"still usable"
        assert stream.is_quiet()


RECORD_BYTES = 5 + 1 + 16  # what TLS 1.3 adds to a record: header, type, tag


async def test_records_that_came_together_are_taken_together_and_nothing_is_left(
    ca: CertificateAuthority, start: Start
) -> None:
    def send_two_records(sock: ssl.SSLSocket) -> None:
        sock.sendall(b"one")
        sock.sendall(b"two")
        drain(sock)

    async with secured(start, ca, send_two_records) as (stream, sock):
        await asyncio.to_thread(await_unread, sock, 2 * (len(b"one") + RECORD_BYTES))
        assert stream.take() == b"onetwo"
        assert not stream.has_more()
        assert stream.take() is None
        assert stream.is_quiet()


@pytest.mark.parametrize("leave", [leave_cleanly, leave_without_notify])
async def test_an_end_that_came_with_the_last_bytes_is_told_of_without_further_input(
    leave: Callable[[ssl.SSLSocket], None], ca: CertificateAuthority, start: Start
) -> None:
    """No selector will tell of it: whoever takes the bytes must be able to see that there is more."""
    left = threading.Event()

    def script(sock: ssl.SSLSocket) -> None:
        with contextlib.suppress(OSError):
            leave(sock)
        left.set()

    async with secured(start, ca, script) as (stream, sock):
        alert = RECORD_BYTES + 2 if leave is leave_cleanly else 0
        await asyncio.to_thread(await_unread, sock, len(b"body") + RECORD_BYTES + alert)
        assert stream.take() == b"body"
        if leave is leave_cleanly:
            assert stream.has_more()
            assert stream.take() == b""
        else:
            with pytest.raises(StreamTruncated):
                await receive(stream, DEFAULT_S)
            assert stream.has_more()
        assert not stream.is_quiet()
        stream.close()
        await asyncio.to_thread(left.wait, DEFAULT_S)


async def test_a_session_ticket_is_neither_bytes_nor_an_end(ca: CertificateAuthority, start: Start) -> None:
    async with secured(start, ca, drain, tickets=2) as (stream, sock):
        await until_readable(sock)
        assert stream.take() is None
        assert not stream.has_more()
        with pytest.raises(TimeoutError):
            await receive(stream, 0.05)


def send_unasked(sock: ssl.SSLSocket) -> None:
    sock.sendall(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
    drain(sock)


@pytest.mark.parametrize("tickets", [0, 2])
@pytest.mark.parametrize(
    "spoil", [send_unasked, end_direction, lambda sock: socket.socket.shutdown(sock, socket.SHUT_WR)]
)
async def test_a_stream_that_ended_or_brought_something_is_not_quiet(
    spoil: Callable[[ssl.SSLSocket], None], tickets: int, ca: CertificateAuthority, start: Start
) -> None:
    spoilt = threading.Event()

    def script(sock: ssl.SSLSocket) -> None:
        if tickets:
            sock.sendall(b"x")  # so that the tickets are read before
        sock.recv(1)
        spoil(sock)
        spoilt.set()
        drain(sock)

    async with secured(start, ca, script, tickets=tickets) as (stream, sock):
        if tickets:
            assert await receive(stream) == b"x"
        assert stream.is_quiet()
        await send(stream, b"!")
        await until_readable(sock)
        assert not stream.is_quiet()


async def test_a_stream_that_was_reset_is_not_quiet(ca: CertificateAuthority, start: Start) -> None:
    async with secured(start, ca, close_with_reset) as (stream, sock):
        await until_readable(sock)
        assert not stream.is_quiet()
