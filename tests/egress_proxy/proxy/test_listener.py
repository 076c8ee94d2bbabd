"""The doors themselves: who is let in, how many, and what happens when there is no room or something breaks.

What is said to a client that is in is test_connection.py's. Real sockets, real limits of the kernel.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import os
import resource
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from egress_proxy.core.decision import Reason
from egress_proxy.core.events import Decided, Event, Faulted
from egress_proxy.core.reply import refusal_code
from egress_proxy.core.seams import AuditUnavailable
from egress_proxy.proxy import listener
from egress_proxy.proxy.connection import After, Connection
from egress_proxy.proxy.listener import (
    ACCEPT_BATCH,
    ACCEPT_PAUSE_S,
    RESERVED_DESCRIPTORS,
    connection_limit,
    listen_tcp,
)
from egress_proxy.proxy.peer import Peer
from egress_proxy.proxy.pipes import pipe_limit
from egress_proxy.proxy.stream import SocketStream
from egress_proxy.proxy.unix_socket import ListenError, listen_unix
from tests.conftest import Start
from tests.egress_proxy.proxy.brokers import broker, call
from tests.egress_proxy.proxy.socket_pairs import connected_pair
from tests.support.answers import fixed, held
from tests.support.byte_stream import End, close_with_reset, connect, read_end, read_exactly, read_until_end
from tests.support.data_port import TUNNELS, DataPort
from tests.support.deadline import eventually
from tests.support.http import parse_head, read_head, read_response
from tests.support.origins import EchoOrigin
from tests.support.proc_figures import open_descriptors
from tests.support.provider import Provider
from tests.support.service_answers import connect_request


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    # pytest's own paths may be too long for a socket's name.
    return tmp_path if len(str(tmp_path)) < 80 else Path(os.path.relpath(tmp_path))


@pytest.fixture
def echo(start: Start) -> EchoOrigin:
    return start(EchoOrigin())


# TCP.


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_free_port_is_found_and_listened_on(host: str) -> None:
    with listen_tcp(host, 0) as sock:
        assert sock.getblocking() is False
        connect(sock.getsockname()[1], host).close()


def test_a_port_that_is_taken_is_an_error_that_names_it() -> None:
    with listen_tcp("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        before = open_descriptors(os.getpid())
        with pytest.raises(ListenError, match=f"cannot listen on 127.0.0.1:{port}: address already in use"):
            listen_tcp("127.0.0.1", port)
        assert open_descriptors(os.getpid()) == before


def test_a_port_can_be_listened_on_again_at_once(start: Start, echo: EchoOrigin) -> None:
    with DataPort(allow=[echo.address]) as port:
        sock = port.tunnel(echo.address)
        port.stop()  # our side ends first, and leaves the port in TIME_WAIT
        sock.close()
    listen_tcp("127.0.0.1", port.port).close()


# Unix sockets.


def over_unix(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(5)
    sock.connect(str(path))
    return sock


def test_the_data_port_is_served_over_a_unix_socket(start: Start, folder: Path, echo: EchoOrigin) -> None:
    port = start(DataPort(allow=[echo.address]))
    path = folder / "data.sock"
    port.call(lambda: port.intake.listen(listen_unix(path)))
    with over_unix(path) as sock:
        sock.sendall(connect_request(echo.address) + b"HELLO")
        assert read_head(sock).status == 200
        assert read_exactly(sock, 5) == b"HELLO"
    assert port.log.only(Decided).peer == "unix"


def test_another_user_is_turned_away_from_a_unix_socket(
    start: Start, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = start(DataPort())
    path = folder / "data.sock"
    port.call(lambda: port.intake.listen(listen_unix(path)))
    ours = os.geteuid()
    monkeypatch.setattr("os.geteuid", lambda: ours + 1)  # as the service of another user sees us
    with over_unix(path) as sock:
        assert read_end(sock) is End.EOF
    assert port.log.all == []


# How many.


def test_the_limit_leaves_descriptors_for_upstreams_and_for_the_rest() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = connection_limit()
    reserved = RESERVED_DESCRIPTORS + 2 * pipe_limit()
    assert limit * 2 + reserved <= soft
    assert limit * 2 + reserved > soft - 2


@contextlib.contextmanager
def descriptors_limited_to(n: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (n, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def no_descriptor_left() -> Iterator[None]:
    """The process can open nothing within the block."""
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    with contextlib.ExitStack() as stack, descriptors_limited_to(highest + 8):
        with contextlib.suppress(OSError):
            while True:
                stack.callback(os.close, os.dup(0))
        yield


@pytest.fixture(params=["loop", "epoll"])
def small(request: pytest.FixtureRequest, start: Start, echo: EchoOrigin) -> DataPort:
    """A data port that has descriptors for eight clients."""
    with descriptors_limited_to(RESERVED_DESCRIPTORS + 16):
        return start(DataPort(allow=[echo.address], relay=request.param))


def test_who_comes_when_there_is_no_descriptor_left_is_told_so(small: DataPort, echo: EchoOrigin) -> None:
    tunnels = [small.tunnel(echo.address) for _ in range(8)]
    late = small.open()
    late.sendall(connect_request(echo.address))
    answer, end = read_until_end(late)
    head = parse_head(answer.partition(b"\r\n\r\n")[0] + b"\r\n\r\n")
    assert end is End.EOF
    assert (head.status, head.value("Retry-After")) == (503, "1")
    assert head.value("X-Proxy-Error") == refusal_code(Reason.TOO_MANY_TUNNELS)
    assert len(answer) - len(head.raw) == int(head.value("Content-Length") or 0)
    for sock in tunnels:
        sock.close()
    eventually(lambda: small.table.count().open == 0 and small.tasks() == 1)
    small.tunnel(echo.address)


@pytest.mark.parametrize("said", [b"", b"CONNECT a.example:443 HT"], ids=["nothing", "half a head"])
def test_whoever_says_nothing_makes_way_for_others(small: DataPort, echo: EchoOrigin, said: bytes) -> None:
    tunnel = small.tunnel(echo.address)
    silent = [small.open() for _ in range(30)]
    for sock in silent:
        with contextlib.suppress(OSError):  # the first ones have made way already
            sock.sendall(said)
    began = time.monotonic()
    for _ in range(3):
        small.tunnel(echo.address).close()
    assert time.monotonic() - began < 2
    tunnel.sendall(b"still here")
    assert read_exactly(tunnel, 10) == b"still here"


@pytest.mark.parametrize("relay", ["loop", "epoll"])
def test_half_heads_are_bounded_by_what_may_be_under_way_however_many_descriptors_there_are(
    relay: str, start: Start, echo: EchoOrigin
) -> None:
    port = start(DataPort(allow=[echo.address], relay=relay, tunnels=dataclasses.replace(TUNNELS, in_all=20)))
    tunnel, limit = port.tunnel(echo.address), port.call(lambda: port.table.places.waiting_limit)
    halves = [port.open() for _ in range(limit + 40)]
    for sock in halves:
        with contextlib.suppress(OSError):  # the first ones have made way already
            sock.sendall(b"CONNECT a.example:443 HT" + b"x" * 8_000)
    eventually(lambda: sum(select.select([one], [], [], 0)[0] != [] for one in halves) >= 40)
    port.tunnel(echo.address)
    tunnel.sendall(b"still here")
    assert read_exactly(tunnel, 10) == b"still here"


def test_a_listener_hands_its_options_down_to_clients(start: Start, echo: EchoOrigin) -> None:
    """Whoever made the listener: an event stream must not wait for a full segment."""
    port = start(DataPort(allow=[echo.address]))
    port.tunnel(echo.address)
    [tunnel] = port.call(lambda: list(port.parts.tunnels._open))
    assert tunnel.client_socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_who_was_turned_away_keeps_no_descriptor(small: DataPort, echo: EchoOrigin) -> None:
    for _ in range(8):
        small.tunnel(echo.address)
    echo.wait_for_connections(8)  # whose descriptors are this process's, too
    read_until_end(small.open())
    before = small.call(lambda: open_descriptors(os.getpid()))
    for _ in range(20):
        with connect(small.port) as late:
            assert read_until_end(late)[0].startswith(b"HTTP/1.1 503 ")
    assert small.call(lambda: open_descriptors(os.getpid())) == before


class CountingListener(socket.socket):
    """Counts how often the product asked it for a client."""

    accepts = 0

    def accept(self) -> tuple[socket.socket, object]:
        self.accepts += 1
        return super().accept()


def test_when_the_kernel_has_no_descriptor_the_listener_rests_instead_of_spinning(
    start: Start, echo: EchoOrigin
) -> None:
    port = start(DataPort(allow=[echo.address]))
    doors = CountingListener(fileno=listen_tcp("127.0.0.1", 0).detach())
    doors.setblocking(False)
    port.call(lambda: port.intake.listen(doors))
    clients = [socket.socket() for _ in range(3)]
    with no_descriptor_left():
        for sock in clients:
            sock.settimeout(5)
            sock.connect(doors.getsockname())
        eventually(lambda: doors.accepts > 0)
        before = doors.accepts
        select.select([], [], [], 3 * ACCEPT_PAUSE_S)
        assert before <= doors.accepts <= before + 4
        assert port.log.all == []
    for sock in clients:
        sock.sendall(connect_request(echo.address))
        assert read_head(sock).status == 200
        sock.close()


def test_a_listener_that_was_closed_while_it_rested_stays_closed(start: Start) -> None:
    port = start(DataPort())
    watched = port.registered_descriptors()
    with socket.socket() as client:
        with no_descriptor_left():
            client.connect(("127.0.0.1", port.port))
            eventually(lambda: port.registered_descriptors() == watched - 1)
            port.call(port.intake.stop_accepting)
        select.select([], [], [], 2 * ACCEPT_PAUSE_S)
        assert port.registered_descriptors() == watched - 1


def test_others_have_their_turn_between_batches_of_clients(start: Start) -> None:
    port = start(DataPort())
    clients: list[socket.socket] = []
    turns: list[int] = []

    def come_all_at_once() -> None:
        clients.extend(connect(port.port) for _ in range(3 * ACCEPT_BATCH))
        port.loop.call_soon(watch)

    def watch() -> None:
        turns.append(len(asyncio.all_tasks(port.loop)))
        if turns[-1] < 3 * ACCEPT_BATCH:
            port.loop.call_soon(watch)

    port.call(come_all_at_once)
    eventually(lambda: turns[-1:] != [] and turns[-1] >= 3 * ACCEPT_BATCH)
    grown = [after - before for before, after in itertools.pairwise(turns)]
    assert max(grown) <= ACCEPT_BATCH
    for sock in clients:
        sock.close()


# Probes.


@pytest.mark.parametrize("relay", ["loop", "epoll"])
def test_probes_leave_no_event_and_no_descriptor(start: Start, relay: str) -> None:
    port = start(DataPort(relay=relay))
    connect(port.port).close()
    eventually(lambda: port.tasks() == 1)
    before = open_descriptors(os.getpid()), port.registered_descriptors()
    for number in range(200):
        probe = connect(port.port)
        if number % 2:
            close_with_reset(probe)
        else:
            probe.close()
    eventually(
        lambda: port.tasks() == 1 and (open_descriptors(os.getpid()), port.registered_descriptors()) == before
    )
    assert port.log.all == []


# Faults.


def end_of_somebody(port: DataPort) -> End:
    """How the connection of a client ends that says something."""
    sock = port.open()
    sock.sendall(b"x")
    return read_end(sock)


def test_a_fault_in_a_connection_is_logged_once_and_ends_that_connection_alone(
    start: Start, echo: EchoOrigin, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = start(DataPort(allow=[echo.address], expect_faults=True))
    tunnel = port.tunnel(echo.address)

    async def fail(self: Connection) -> After:
        await self.stream.receive()
        self.request_id = "r-7"
        raise RuntimeError("canary")

    with monkeypatch.context() as patched:
        patched.setattr(Connection, "serve", fail)
        assert end_of_somebody(port) is not End.OPEN
    fault = port.log.only(Faulted)
    assert (fault.request_id, fault.error) == ("r-7", "RuntimeError")
    assert fault.where.startswith("test_listener.py:")
    assert "canary" not in repr(fault)
    tunnel.sendall(b"HELLO")
    assert read_exactly(tunnel, 5) == b"HELLO"
    port.tunnel(echo.address)


def test_a_fault_that_cannot_be_logged_still_ends_that_connection_alone(
    start: Start, echo: EchoOrigin, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = start(DataPort(allow=[echo.address], expect_faults=True))

    async def fail(self: Connection) -> After:
        await self.stream.receive()
        raise RuntimeError

    def refuse(event: Event) -> None:
        if isinstance(event, Faulted):
            raise AuditUnavailable

    port.log.refusing = refuse
    with monkeypatch.context() as patched:
        patched.setattr(Connection, "serve", fail)
        assert end_of_somebody(port) is not End.OPEN
    port.tunnel(echo.address)


# The end.


def test_stopping_closes_the_doors_and_leaves_who_is_in(start: Start, echo: EchoOrigin) -> None:
    port = start(DataPort(allow=[echo.address]))
    tunnel, waiting = port.tunnel(echo.address), port.open()
    eventually(lambda: port.tasks() == 2)
    port.call(port.intake.stop_accepting)
    with pytest.raises(ConnectionRefusedError):
        connect(port.port)
    waiting.sendall(connect_request(echo.address))
    assert read_head(waiting).status == 200
    tunnel.sendall(b"HELLO")
    assert read_exactly(tunnel, 5) == b"HELLO"


def test_idle_connections_end_at_once_and_busy_ones_are_counted(start: Start) -> None:
    provider = start(Provider())
    gate = threading.Event()
    provider.on("/", fixed(b"ok"))
    provider.on("/slow", held(gate, fixed(b"slow")))
    port = start(broker(provider))
    silent, kept, busy = port.open(), call(port), call(port)
    assert kept.ask("GET").status == 200
    busy.send("GET", "/slow")
    provider.wait_for_requests(2)
    assert port.call(port.intake.end_idle) == 1
    for sock in (silent, kept.sock):
        assert read_end(sock) is End.EOF
    gate.set()
    assert read_response(busy.sock).body == b"slow"
    eventually(lambda: port.call(port.intake.end_idle) == 0)


def test_a_connection_that_was_refused_holds_up_nobody(start: Start) -> None:
    port = start(DataPort())
    sock = port.open()
    sock.sendall(connect_request("evil.test:443"))
    assert read_response(sock).status == 403  # and it stays, without closing its side
    assert port.log.only(Decided).reason is Reason.NOT_LISTED
    assert port.call(port.intake.end_idle) == 0


def test_all_are_ended_whatever_they_do(start: Start) -> None:
    provider = start(Provider())
    provider.otherwise(held(threading.Event(), fixed(b"never")))
    port = start(broker(provider))
    silent, busy = port.open(), call(port)
    busy.send("GET")
    provider.wait_for_requests(1)
    port.call(port.intake.end_all)
    assert read_end(silent) is End.EOF
    assert read_end(busy.sock) is not End.OPEN
    eventually(lambda: port.tasks() == 1)


def test_a_client_that_is_ended_before_its_first_turn_keeps_no_descriptor(start: Start) -> None:
    port = start(DataPort())
    before = open_descriptors(os.getpid())

    def serve_and_end(sock: socket.socket) -> None:
        port.intake.serve(SocketStream(port.loop, sock), Peer("early"))
        port.intake.end_all()

    pair = connected_pair()
    port.call(lambda: serve_and_end(pair.ours))
    assert read_end(pair.peer) is End.EOF
    pair.peer.close()
    assert port.call(lambda: open_descriptors(os.getpid())) == before
    assert port.log.all == []


# Told by a process of its own, since the limit on descriptors cannot be raised again by everybody.

LIMITS = """
import resource
import select
resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
from egress_proxy.proxy.listener import connection_limit
print(connection_limit())
"""


def test_with_hardly_any_descriptors_a_few_clients_are_served_all_the_same() -> None:
    root = Path(listener.__file__).resolve().parents[2]
    told = subprocess.run(
        [sys.executable, "-c", LIMITS], capture_output=True, text=True, timeout=30, cwd=root, check=True
    )
    assert told.stdout.strip() == "8"
