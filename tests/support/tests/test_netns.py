"""The network namespace against plain sockets: public addresses at home, black holes, no trace.

Nothing of the product is used here.
See ../netns.py.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.support import netns
from tests.support.byte_stream import connect, read_exactly
from tests.support.dns_stub import DnsStub
from tests.support.netns import NetworkNamespace
from tests.support.origins import BannerOrigin


@pytest.fixture
def net() -> Iterator[NetworkNamespace]:
    if reason := netns.unavailable():
        pytest.skip(reason)
    with NetworkNamespace() as made:
        yield made


@pytest.mark.parametrize("address", ["93.184.215.14", "2606:2800:21f::1"])
def test_a_public_address_can_be_at_home(net: NetworkNamespace, address: str) -> None:
    net.add_address(address)
    with (
        net.entered(),
        BannerOrigin(b"in", address) as origin,
        connect(origin.port, address) as sock,
    ):
        assert read_exactly(sock, 2) == b"in"


@pytest.mark.parametrize(
    ("prefix", "address"), [("198.51.101.0/24", "198.51.101.9"), ("2606:4700::/32", "2606:4700::9")]
)
def test_dialling_into_a_black_hole_hangs(net: NetworkNamespace, prefix: str, address: str) -> None:
    net.black_hole(prefix)
    with net.entered(), pytest.raises(TimeoutError):
        connect(443, address, timeout_s=0.3)


def test_an_unreachable_prefix_fails_at_once(net: NetworkNamespace) -> None:
    net.unreachable("198.51.101.0/24")
    with net.entered(), pytest.raises(OSError, match="No route to host") as failed:
        connect(443, "198.51.101.9")
    assert failed.value.errno == errno.EHOSTUNREACH


def test_the_thread_is_back_outside_after_the_block(net: NetworkNamespace) -> None:
    with BannerOrigin(b"out") as outside:
        with net.entered(), pytest.raises(ConnectionRefusedError):
            connect(outside.port)
        with connect(outside.port) as sock:
            assert read_exactly(sock, 3) == b"out"


def test_servers_and_commands_started_inside_are_inside(net: NetworkNamespace) -> None:
    with net.entered(), DnsStub() as dns:
        dns.add("x.example", "127.0.0.2")
        listening = net.run(["cat", "/proc/thread-self/net/udp"]).stdout
        assert f":{dns.port:04X}" in listening


def test_nothing_is_left_when_the_block_ends() -> None:
    if reason := netns.unavailable():
        pytest.skip(reason)
    before = set(os.listdir("/proc/self/fd"))
    with NetworkNamespace() as net, net.entered(), socket.socket():
        assert threading.active_count() >= 1
    assert set(os.listdir("/proc/self/fd")) == before
