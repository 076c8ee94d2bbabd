"""Rules of dialling: in turn and staggered, never an address that was not judged, and no socket forgotten.

Real sockets on 127.0.0.x; a full queue is the black hole. Which addresses are judged: test_outbound.py.
See egress_proxy/proxy/dialer.py.
"""

import asyncio
import contextlib
import errno
import os
import random
import resource
import select
import socket
import time
from collections.abc import Iterator
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress_proxy.core.address import Address
from egress_proxy.proxy import dialer, socket_options
from egress_proxy.proxy.dialer import (
    ATTEMPT_DELAY_S,
    DialFailed,
    begin_dial,
    dial,
    dial_error,
    in_dialling_order,
)
from tests.conftest import Start
from tests.egress_proxy.proxy.stream_ends import descriptors
from tests.support.netns import NetworkNamespace
from tests.support.origins import EchoOrigin, StuckOrigin, closed_port

# What a good address behind dead ones may take at most (case C20), and refusing ones in all.
GOOD_S = 2.0
REFUSED_S = 1.0


def addresses(*texts: str) -> list[Address]:
    return [ip_address(text) for text in texts]


async def dialled(texts: list[str], port: int) -> str:
    """Which address was connected; the socket is closed."""
    sock, address = await dial(addresses(*texts), port)
    with sock:
        assert sock.getpeername()[:2] == (str(address), port)
        return str(address)


# Order


@pytest.mark.parametrize(
    ("given_order", "tried"),
    [
        (["192.0.2.1"], ["192.0.2.1"]),
        (["2001:db8::1", "192.0.2.1"], ["2001:db8::1", "192.0.2.1"]),
        (["192.0.2.1", "2001:db8::1"], ["192.0.2.1", "2001:db8::1"]),
        (
            ["2001:db8::1", "2001:db8::2", "2001:db8::3", "192.0.2.1"],
            ["2001:db8::1", "192.0.2.1", "2001:db8::2", "2001:db8::3"],
        ),
        (
            ["192.0.2.1", "192.0.2.2", "2001:db8::1", "192.0.2.3", "2001:db8::2"],
            ["192.0.2.1", "2001:db8::1", "192.0.2.2", "2001:db8::2", "192.0.2.3"],
        ),
        ([], []),
    ],
)
def test_the_families_take_turns_and_the_first_one_begins(given_order: list[str], tried: list[str]) -> None:
    assert in_dialling_order(addresses(*given_order)) == addresses(*tried)


@given(st.lists(st.ip_addresses()))
def test_every_address_is_tried_as_often_as_it_was_given_and_no_other(judged: list[Address]) -> None:
    assert sorted(map(str, in_dialling_order(judged))) == sorted(map(str, judged))
    assert in_dialling_order(judged)[:1] == judged[:1]


# Reaching


@pytest.mark.parametrize("bind", ["127.0.0.2", "::1"])
async def test_a_single_address_is_dialled(bind: str, start: Start) -> None:
    origin = start(EchoOrigin(bind))
    sock, address = await dial(addresses(bind), origin.port, 7)
    with sock:
        assert str(address) == bind
        assert not sock.getblocking()
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket_options._IDLE) == 7
        assert not sock.get_inheritable()
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(sock, b"hello")
        assert await loop.sock_recv(sock, 100) == b"hello"


async def test_only_the_first_that_answers_is_connected(start: Start) -> None:
    first = start(EchoOrigin("127.0.0.2"))
    others = [start(EchoOrigin(bind, first.port)) for bind in ("127.0.0.3", "127.0.0.1")]
    assert await dialled(["127.0.0.2", "127.0.0.3"], first.port) == "127.0.0.2"
    first.wait_for_connections(1)
    assert [other.connections_accepted for other in others] == [0, 0]


async def test_a_refusing_address_costs_no_time(start: Start) -> None:
    good = start(EchoOrigin("127.0.0.9"))
    refusing = [f"127.0.0.{number}" for number in range(4, 9)]
    begun = time.monotonic()
    assert await dialled([*refusing, "127.0.0.9"], good.port) == "127.0.0.9"
    assert time.monotonic() - begun < REFUSED_S


async def test_a_black_hole_is_given_a_moment_and_then_company(start: Start) -> None:
    good = start(EchoOrigin("127.0.0.3"))
    start(StuckOrigin("127.0.0.2", good.port))
    begun = time.monotonic()
    assert await dialled(["127.0.0.2", "127.0.0.3"], good.port) == "127.0.0.3"
    assert ATTEMPT_DELAY_S <= time.monotonic() - begun < GOOD_S


async def test_a_black_hole_of_the_other_family_is_given_a_moment_and_then_company(start: Start) -> None:
    good = start(EchoOrigin("127.0.0.3"))
    start(StuckOrigin("::1", good.port))
    assert await dialled(["::1", "127.0.0.3"], good.port) == "127.0.0.3"


async def test_the_next_one_is_tried_when_its_time_has_come_and_not_before(start: Start) -> None:
    stuck = start(StuckOrigin("127.0.0.2"))
    second = start(EchoOrigin("127.0.0.3", stuck.port))
    third = start(EchoOrigin("127.0.0.4", stuck.port))
    assert await dialled(["127.0.0.2", "127.0.0.3", "127.0.0.4"], stuck.port) == "127.0.0.3"
    second.wait_for_connections(1)
    assert third.connections_accepted == 0


async def test_a_name_with_forty_silent_addresses_costs_two_descriptors_at_a_time(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each dial of it opened forty, and a hundred clients had all that there are."""
    monkeypatch.setattr(dialer, "ATTEMPT_DELAY_S", 0.01)
    monkeypatch.setattr(dialer, "ATTEMPT_LIMIT_S", 0.05)
    silent = [f"127.0.1.{number}" for number in range(1, 41)]
    port = start(StuckOrigin(silent[0])).port
    for text in silent[1:7]:
        start(StuckOrigin(text, port))
    tried: list[str] = []
    under_way: list[int] = [0]
    begin = dialer._attempt

    async def counted(address: Address, at: int, keepalive_s: int) -> socket.socket:
        tried.append(str(address))
        under_way.append(under_way[-1] + 1)
        try:
            return await begin(address, at, keepalive_s)
        finally:
            under_way.append(under_way[-1] - 1)

    monkeypatch.setattr(dialer, "_attempt", counted)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.6):
            await dialled(silent, port)
    assert tried == silent[:6]
    assert max(under_way) == 2
    assert under_way[-1] == 0


async def test_three_silent_addresses_make_way_for_a_fourth(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialer, "ATTEMPT_LIMIT_S", 0.3)
    monkeypatch.setattr(dialer, "ATTEMPT_DELAY_S", 0.1)
    good = start(EchoOrigin("127.0.0.5"))
    silent = ["127.0.0.2", "127.0.0.3", "127.0.0.4"]
    for address in silent:
        start(StuckOrigin(address, good.port))
    assert await dialled([*silent, "127.0.0.5"], good.port) == "127.0.0.5"


async def test_a_slow_address_may_still_win(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first stays in the race while the second is tried."""
    monkeypatch.setattr(dialer, "ATTEMPT_DELAY_S", 0.05)
    stuck = start(StuckOrigin("127.0.0.2"))
    start(StuckOrigin("127.0.0.3", stuck.port))
    task = asyncio.get_running_loop().create_task(dialled(["127.0.0.2", "127.0.0.3"], stuck.port))
    done, _ = await asyncio.wait([task], timeout=0.2)
    assert not done
    stuck.__exit__()
    good = start(EchoOrigin("127.0.0.2", stuck.port))
    async with asyncio.timeout(10):  # the kernel sends its SYN again after 1, 3, 7 s
        assert await task == "127.0.0.2"
    good.wait_for_connections(1)


async def test_with_a_broken_route_the_other_family_is_reached(net: NetworkNamespace) -> None:
    with net.entered():
        net.black_hole("2606:2800::/32")
        net.unreachable("2a00:1450::/32")
        net.add_address("93.184.216.34")
        with EchoOrigin("93.184.216.34") as good:
            for dead in ("2606:2800::1", "2a00:1450::1"):
                begun = time.monotonic()
                assert await dialled([dead, "93.184.216.34"], good.port) == "93.184.216.34"
                assert time.monotonic() - begun < GOOD_S


# Failing


async def test_no_address_is_a_failure() -> None:
    with pytest.raises(DialFailed, match="no address"):
        await dial([], 443)


@pytest.mark.parametrize("count", [1, 2, 20])
async def test_refusals_by_all_are_a_failure_at_once_that_says_so(count: int) -> None:
    begun = time.monotonic()
    with closed_port() as port, pytest.raises(DialFailed, match=r"^connection refused$"):
        await dial(addresses(*["127.0.0.1"] * count), port)
    assert time.monotonic() - begun < REFUSED_S


async def test_the_failure_does_not_name_the_address() -> None:
    """It is shown to clients, and names inside a network are not theirs to learn."""
    with closed_port("127.0.0.7") as port, pytest.raises(DialFailed) as failed:
        await dial(addresses("127.0.0.7"), port)
    assert "127" not in str(failed.value)
    assert str(port) not in str(failed.value)


async def test_black_holes_alone_take_as_long_as_the_caller_gives(start: Start) -> None:
    stuck = start(StuckOrigin("127.0.0.2"))
    start(StuckOrigin("127.0.0.3", stuck.port))
    for texts in (["127.0.0.2"], ["127.0.0.2", "127.0.0.3"]):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.4):
                await dialled(texts, stuck.port)


async def test_no_room_for_another_descriptor_is_a_failure_and_no_fault() -> None:
    with closed_port() as port, no_more_descriptors(), pytest.raises(DialFailed, match="too many open files"):
        await dial(addresses("127.0.0.1", "127.0.0.2"), port)


@contextlib.contextmanager
def no_more_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# Without waiting


@pytest.mark.parametrize("bind", ["127.0.0.2", "::1"])
async def test_a_dial_that_was_begun_stands_when_the_socket_can_be_written(bind: str, start: Start) -> None:
    origin = start(EchoOrigin(bind))
    with begin_dial(ip_address(bind), origin.port, 7) as sock:
        await until_writable(sock)
        assert dial_error(sock) is None
        assert sock.getpeername()[:2] == (bind, origin.port)
        assert not sock.getblocking()
        assert not sock.get_inheritable()
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket_options._IDLE) == 7


async def test_a_dial_that_was_begun_and_refused_says_so_without_the_address() -> None:
    with closed_port("127.0.0.7") as port, begin_dial(ip_address("127.0.0.7"), port) as sock:
        await until_writable(sock)
        assert dial_error(sock) == "connection refused"


async def test_a_black_hole_does_not_hold_up_who_begins(start: Start) -> None:
    stuck = start(StuckOrigin("127.0.0.2"))
    begun = time.monotonic()
    with begin_dial(ip_address("127.0.0.2"), stuck.port) as sock:
        assert time.monotonic() - begun < REFUSED_S
        assert select.select([], [sock], [], 0)[1] == []
        assert dial_error(sock) is None  # not yet: no error is no connection


def test_what_the_kernel_refuses_at_once_raises_and_leaves_no_descriptor(net: NetworkNamespace) -> None:
    with net.entered():
        net.unreachable("203.0.113.0/24")
        before = descriptors()
        for address in ("203.0.113.1", "2001:db8::1"):
            with pytest.raises(
                OSError, match=r"(?i)^\[Errno \d+\] (network is unreachable|no route to host)$"
            ):
                begin_dial(ip_address(address), 443)
        assert descriptors() == before
    with no_more_descriptors(), pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
        begin_dial(ip_address("127.0.0.1"), 443)


async def until_writable(sock: socket.socket) -> None:
    _, writable, _ = await asyncio.to_thread(select.select, [], [sock], [], REFUSED_S)
    assert writable == [sock]


# No socket is forgotten


@contextlib.contextmanager
def listening(*binds: str) -> Iterator[int]:
    """A port on which all these accept; nobody takes the connections, so they cost no descriptor."""
    with contextlib.ExitStack() as stack:
        port = 0
        for bind in binds:
            listener = stack.enter_context(socket.create_server((bind, port), backlog=1024))
            port = listener.getsockname()[1]
        yield port


async def cancelled_after(turns: int, texts: list[str], port: int) -> bool:
    """Dial, and cancel after so many turns of the loop; whether it was connected before."""
    task = asyncio.get_running_loop().create_task(dial(addresses(*texts), port))
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    try:
        sock, _ = await task
    except (asyncio.CancelledError, DialFailed):
        return False
    sock.close()
    return True


async def test_no_descriptor_is_left_however_soon_a_dial_is_cancelled(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every turn of the loop in which it can happen, among winners, losers, refusals and black holes."""
    monkeypatch.setattr(dialer, "ATTEMPT_DELAY_S", 0)
    with listening("127.0.0.4", "127.0.0.5", "127.0.0.6") as port:
        start(StuckOrigin("127.0.0.2", port))
        tasks, before = asyncio.all_tasks(), descriptors()
        connected = set()
        for texts in (
            ["127.0.0.4"],
            ["127.0.0.2"],
            ["127.0.0.4", "127.0.0.5", "127.0.0.6"],
            ["127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5"],
            ["127.0.0.3", "127.0.0.2", "127.0.0.4"],
        ):
            for turns in range(25):
                connected.add(await cancelled_after(turns, texts, port))
                assert descriptors() == before, (texts, turns)
    assert connected == {True, False}
    assert asyncio.all_tasks() == tasks


async def test_no_descriptor_is_left_when_a_dial_is_cancelled_twice(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its timeout and by the end of the service, say."""
    monkeypatch.setattr(dialer, "ATTEMPT_DELAY_S", 0)
    chance = random.Random(5)
    with listening("127.0.0.4", "127.0.0.5") as port:
        start(StuckOrigin("127.0.0.2", port))
        before = descriptors()
        for _ in range(200):
            texts = ["127.0.0.2", "127.0.0.4", "127.0.0.3", "127.0.0.5"]
            chance.shuffle(texts)
            task = asyncio.get_running_loop().create_task(dial(addresses(*texts), port))
            for _ in range(2):
                for _ in range(chance.randrange(8)):
                    await asyncio.sleep(0)
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                (await task)[0].close()
            assert descriptors() == before


async def test_losers_of_the_race_are_closed(start: Start) -> None:
    good = start(EchoOrigin("127.0.0.4"))
    start(StuckOrigin("127.0.0.2", good.port))
    before = descriptors()
    sock, _ = await dial(addresses("127.0.0.2", "127.0.0.3", "127.0.0.4"), good.port)
    good.wait_for_connections(1)
    assert descriptors() == before + 2  # both ends of the one that won
    sock.close()
