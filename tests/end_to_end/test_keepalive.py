"""Quiet connections are probed before a gateway forgets them, on both sides of the proxy.

The kernel's own timers are read, so no test waits for a probe. The options: proxy/socket_options.py.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.end_to_end.case_parts import write_config
from tests.support.deadline import eventually
from tests.support.http import read_head
from tests.support.origins import EchoOrigin
from tests.support.provider import Provider
from tests.support.service import Service

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux only")
RELAYS = ("epoll", "loop")
KEEP_ALIVE = "02"  # the kind of timer (Documentation/networking/proc_net_tcp)


def connections() -> list[list[str]]:
    return [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]


def first_probe_s(local_port: int, remote_port: int) -> float:
    """When the kernel probes this end of a connection between two loopback ports."""
    ends = [f"0100007F:{port:04X}" for port in (local_port, remote_port)]

    def timer() -> list[str]:
        [found] = [row[5] for row in connections() if row[1:3] == ends]
        return found.split(":")

    eventually(lambda: timer()[0] == KEEP_ALIVE)  # what was sent is to be acknowledged first
    return int(timer()[1], 16) / os.sysconf("SC_CLK_TCK")


def peer_port(origin_port: int) -> int:
    """The port from which the proxy is connected to an origin."""
    place = f"0100007F:{origin_port:04X}"
    return next(
        int(row[1].partition(":")[2], 16) for row in connections() if row[2] == place and row[3] == "01"
    )


@pytest.mark.parametrize("relay", RELAYS)
@pytest.mark.parametrize(("written", "most_s"), [("", 60), ("[limits]\ntcp_keepalive_s = 7\n", 7)])
def test_both_sides_of_a_tunnel_are_probed_within_a_minute(
    start_service: Callable[..., Service], tmp_path: Path, relay: str, written: str, most_s: float
) -> None:
    config = write_config(tmp_path, written)
    service = start_service("--config", config, "--allow", "127.0.0.1:*", "--relay", relay)
    with EchoOrigin() as origin, service.tunnel(origin.address) as client:
        client.sendall(b"hello")
        assert client.recv(5, socket.MSG_WAITALL) == b"hello"
        assert 0 < first_probe_s(service.proxy_port, client.getsockname()[1]) <= most_s
        assert 0 < first_probe_s(peer_port(origin.port), origin.port) <= most_s


def test_a_pooled_connection_and_its_client_are_probed_within_a_minute(
    start_service: Callable[..., Service],
) -> None:
    with Provider() as origin:
        rule = ("--inject-host", "localhost", "--inject-secret-env", "KEY", "--inject-scheme", "http")
        service = start_service(
            *rule, "--inject-port", str(origin.port), env={"KEY": "Bearer some-secret-key"}
        )
        with socket.create_connection(("127.0.0.1", service.proxy_port)) as client:
            client.sendall(b"GET http://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n")
            read_head(client)
            assert 0 < first_probe_s(service.proxy_port, client.getsockname()[1]) <= 60
            assert 0 < first_probe_s(peer_port(origin.port), origin.port) <= 60
