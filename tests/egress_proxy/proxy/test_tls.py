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

import pytest

from egress_proxy.proxy.stream import SocketStream, StreamReset, StreamTruncated
from egress_proxy.proxy.tls import TlsFailed, TlsStream
from tests.conftest import Start
from tests.egress_proxy.proxy.stream_ends import descriptors, until_readable
from tests.support.byte_stream import (
    BLOCK_BYTES,
    End,
    close_with_reset,
    connect,
    end_direction,
    read_end,
    read_exactly,
)
from tests.support.certificates import CertificateAuthority, Leaf, server_context
from tests.support.deadline import DEFAULT_S, wait_for
from tests.support.loopback_server import LoopbackServer
from tests.support.origins import SilentOrigin, StuckOrigin, pattern

NAME = "ok.example"
BULK_BYTES = 4 * 1024 * 1024
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


class TlsOrigin(LoopbackServer):
    """Shakes hands, counts application bytes by reading, and then does what ``script`` says."""

    def __init__(
        self, context: ssl.SSLContext, script: Callable[[ssl.SSLSocket], None] = read_end, bind: str = "127.0.0.1"
    ) -> None:
        super().__init__(bind)
        self._context = context
        self._script = script
        self.application_bytes = 0
        self.handshakes: list[str] = []  # "done", or how one failed

    def serve(self, sock: socket.socket, index: int) -> None:
        outcome = "done"
        try:
            with self._context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False) as secured:
                self.replace_socket(index, secured)
                secured.do_handshake()
                self._note("done")
                outcome = ""
                self._script(secured)
        except OSError as error:  # SSLError is one
            if outcome:
                self._note(str(error))

    def _note(self, outcome: str) -> None:
        with self.changed:
            self.handshakes.append(outcome)
            self.changed.notify_all()

    def count(self, sock: ssl.SSLSocket) -> None:
        """A script: read to the end and count."""
        while block := sock.recv(BLOCK_BYTES):
            self.application_bytes += len(block)

    def wait_for_handshake(self) -> str:
        wait_for(self.changed, lambda: len(self.handshakes) > 0, DEFAULT_S, "a handshake")
        return self.handshakes[0]


def echo(sock: ssl.SSLSocket) -> None:
    while block := sock.recv(BLOCK_BYTES):
        sock.sendall(block)


@contextlib.asynccontextmanager
async def dialled(port: int, host: str = "127.0.0.1") -> AsyncIterator[SocketStream]:
    sock = await asyncio.to_thread(connect, port, host)
    sock.setblocking(False)
    with sock:
        yield SocketStream(asyncio.get_running_loop(), sock)


@contextlib.asynccontextmanager
async def secured(
    start: Start, ca: CertificateAuthority, script: Callable[[ssl.SSLSocket], None], *, tickets: int = 0
) -> AsyncIterator[TlsStream]:
    """A client's stream to a server that runs ``script``, sending so many session tickets first."""
    context = server_context(ca.leaf(NAME))
    context.num_tickets = tickets
    origin = start(TlsOrigin(context, script))
    async with dialled(origin.port) as below:
        yield await TlsStream.connect(below, ca.client_context(), NAME)


async def read_all(stream: TlsStream) -> bytes:
    received = bytearray()
    while block := await stream.receive():
        received += block
    return bytes(received)


# Who is refused


def wrong_name(ca: CertificateAuthority) -> Leaf:
    return ca.wrong_name()


def expired(ca: CertificateAuthority) -> Leaf:
    return ca.expired(NAME)


def not_yet_valid(ca: CertificateAuthority) -> Leaf:
    return ca.not_yet_valid(NAME)


def self_signed(ca: CertificateAuthority) -> Leaf:
    return ca.self_signed(NAME)


def foreign(ca: CertificateAuthority) -> Leaf:
    return ca.foreign(NAME)


def of_a_parent(ca: CertificateAuthority) -> Leaf:
    return ca.leaf("*.ok.example")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("shown", "reason"),
    [
        (wrong_name, "Hostname mismatch, certificate is not valid for 'ok.example'."),
        (of_a_parent, "Hostname mismatch, certificate is not valid for 'ok.example'."),
        (expired, "certificate has expired"),
        (not_yet_valid, "certificate is not yet valid"),
        (self_signed, "self-signed certificate"),
        (foreign, "unable to get local issuer certificate"),
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
    origin = TlsOrigin(context)
    origin._script = origin.count
    start(origin)
    async with dialled(origin.port) as below:
        with pytest.raises(TlsFailed) as failed:
            await TlsStream.connect(below, ca.client_context(), NAME)
    assert str(failed.value) == reason
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
            await stream.send(b"hello")
            assert await stream.receive() == b"hello"


async def test_a_server_that_does_not_speak_tls_is_refused(ca: CertificateAuthority, start: Start) -> None:
    def speak(sock: socket.socket) -> None:
        sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    class Plain(LoopbackServer):
        def serve(self, sock: socket.socket, index: int) -> None:
            speak(sock)

    origin = start(Plain())
    async with dialled(origin.port) as below:
        with pytest.raises(TlsFailed, match="WRONG_VERSION_NUMBER"):
            await TlsStream.connect(below, ca.client_context(), NAME)


async def test_a_server_that_leaves_during_the_handshake_is_a_failure(
    ca: CertificateAuthority, start: Start
) -> None:
    class Leaving(LoopbackServer):
        def serve(self, sock: socket.socket, index: int) -> None:
            sock.recv(BLOCK_BYTES)

    origin = start(Leaving())
    async with dialled(origin.port) as below:
        with pytest.raises(TlsFailed):
            await TlsStream.connect(below, ca.client_context(), NAME)


async def test_a_server_that_resets_during_the_handshake_is_a_reset(
    ca: CertificateAuthority, start: Start
) -> None:
    class Resetting(LoopbackServer):
        def serve(self, sock: socket.socket, index: int) -> None:
            sock.recv(BLOCK_BYTES)
            close_with_reset(sock)

    origin = start(Resetting())
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
        assert await stream.receive() == b"greeting"
        assert below.gave_back > 1
        stream.close()
        await asyncio.to_thread(serving.join, DEFAULT_S)


class GivingBack(SocketStream):
    """Reads ahead, gives all of it back, then hands it out in small pieces."""

    __slots__ = ("gave_back",)

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
        super().__init__(loop, sock)
        self.gave_back = 0

    async def receive(self) -> bytes:
        data = await super().receive()
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
    async with secured(start, ca, lambda sock: sock.sendall(b"greeting"), tickets=2) as stream:
        assert await stream.receive() == b"greeting"


@pytest.mark.parametrize("version", VERSIONS)
async def test_megabytes_both_ways_at_once_arrive_byte_for_byte(
    version: ssl.TLSVersion, ca: CertificateAuthority, start: Start
) -> None:
    context = server_context(ca.leaf(NAME))
    context.maximum_version = version
    up, down = pattern(BULK_BYTES)[::-1], pattern(BULK_BYTES)
    arrived: list[bytes] = []

    def both_ways(sock: ssl.SSLSocket) -> None:
        sending = threading.Thread(target=sock.sendall, args=(down,), daemon=True)
        sending.start()
        arrived.append(read_exactly(sock, BULK_BYTES))
        sending.join(DEFAULT_S)
        end_direction(sock)

    origin = start(TlsOrigin(context, both_ways))
    async with dialled(origin.port) as below:
        stream = await TlsStream.connect(below, ca.client_context(), NAME)
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(read_all(stream))
            for begin in range(0, BULK_BYTES, 99_999):
                await stream.send(up[begin : begin + 99_999])
    assert hashlib.sha256(reading.result()).digest() == hashlib.sha256(down).digest()
    origin.stop()
    assert hashlib.sha256(arrived[0]).digest() == hashlib.sha256(up).digest()


async def test_an_empty_send_is_no_end(ca: CertificateAuthority, start: Start) -> None:
    async with secured(start, ca, echo) as stream:
        await stream.send(b"")
        await stream.send(b"x")
        assert await stream.receive() == b"x"


# How it ends


def leave_cleanly(sock: ssl.SSLSocket) -> None:
    sock.sendall(b"body")
    end_direction(sock)
    _drain(sock)


def leave_without_notify(sock: ssl.SSLSocket) -> None:
    sock.sendall(b"body")
    socket.socket.shutdown(sock, socket.SHUT_WR)
    _drain(sock)


def _drain(sock: ssl.SSLSocket) -> None:
    """Wait for the client to close, below TLS."""
    with contextlib.suppress(OSError):
        while select.select([sock], [], [], DEFAULT_S)[0] and socket.socket.recv(sock, BLOCK_BYTES):
            pass


async def test_an_announced_end_is_the_end(ca: CertificateAuthority, start: Start) -> None:
    async with secured(start, ca, leave_cleanly) as stream:
        assert await read_all(stream) == b"body"
        assert await stream.receive() == b""


async def test_an_end_without_close_notify_is_a_truncation(ca: CertificateAuthority, start: Start) -> None:
    async with secured(start, ca, leave_without_notify) as stream:
        assert await stream.receive() == b"body"
        with pytest.raises(StreamTruncated):
            await stream.receive()


async def test_a_context_that_overlooks_missing_ends_does_not_hide_a_truncation(
    ca: CertificateAuthority, start: Start
) -> None:
    """Python's own default in some versions, `OP_IGNORE_UNEXPECTED_EOF`."""
    context = ca.client_context()
    context.options |= ssl.OP_IGNORE_UNEXPECTED_EOF
    origin = start(TlsOrigin(server_context(ca.leaf(NAME)), leave_without_notify))
    async with dialled(origin.port) as below:
        stream = await TlsStream.connect(below, context, NAME)
        assert await stream.receive() == b"body"
        with pytest.raises(StreamTruncated):
            await stream.receive()


async def test_a_reset_is_a_reset_for_reader_and_writer(ca: CertificateAuthority, start: Start) -> None:
    async with secured(start, ca, close_with_reset) as stream:
        with pytest.raises(StreamReset):
            await stream.receive()
        with pytest.raises(StreamReset):
            await stream.send(b"x")


async def test_a_broken_record_is_no_end(ca: CertificateAuthority, start: Start) -> None:
    def corrupt(sock: ssl.SSLSocket) -> None:
        socket.socket.sendall(sock, b"\x17\x03\x03\x00\x20" + bytes(32))
        _drain(sock)

    async with secured(start, ca, corrupt) as stream:
        with pytest.raises(StreamReset):
            await stream.receive()


async def test_an_aborted_stream_is_a_reset_at_the_server(ca: CertificateAuthority, start: Start) -> None:
    ends: list[End] = []

    def watch(sock: ssl.SSLSocket) -> None:
        try:
            socket.socket.recv(sock, 1)
        except ConnectionResetError:
            ends.append(End.RESET)

    origin = start(TlsOrigin(server_context(ca.leaf(NAME)), watch))
    async with dialled(origin.port) as below:
        stream = await TlsStream.connect(below, ca.client_context(), NAME)
        await asyncio.to_thread(origin.wait_for_handshake)
        stream.abort()
    origin.stop()
    assert ends == [End.RESET]


async def test_closing_gives_the_descriptor_back(ca: CertificateAuthority, start: Start) -> None:
    async with secured(start, ca, echo) as stream:
        before = descriptors()
        stream.close()
        assert descriptors() <= before - 1


# What may be used again


async def test_an_idle_stream_is_quiet_though_session_tickets_came(
    ca: CertificateAuthority, start: Start
) -> None:
    """TLS 1.3 sends tickets when the handshake is over; they are no answer to a request."""
    async with secured(start, ca, echo, tickets=4) as stream:
        await until_readable(stream._below.sock)
        assert stream.is_quiet()
        assert stream.is_quiet()
        await stream.send(b"still usable")
        assert await stream.receive() == b"still usable"
        assert stream.is_quiet()


def send_unasked(sock: ssl.SSLSocket) -> None:
    sock.sendall(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
    _drain(sock)


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
        _drain(sock)

    async with secured(start, ca, script, tickets=tickets) as stream:
        if tickets:
            assert await stream.receive() == b"x"
        assert stream.is_quiet()
        await stream.send(b"!")
        await until_readable(stream._below.sock)
        assert not stream.is_quiet()


async def test_a_stream_that_was_reset_is_not_quiet(ca: CertificateAuthority, start: Start) -> None:
    async with secured(start, ca, close_with_reset) as stream:
        await until_readable(stream._below.sock)
        assert not stream.is_quiet()
