"""Tunnels in a running data port of which a test holds both far ends, without a CONNECT and a dial.

No expectations here. Whole connections, from the request head on, are in test_connection.py.
"""

from __future__ import annotations

import itertools
import socket
from dataclasses import dataclass
from ipaddress import ip_address

from egress_proxy.core.access import Client
from egress_proxy.core.decision import Allow, OptIn
from egress_proxy.core.host import parse_authority
from egress_proxy.core.sni_policy import SniPolicy
from egress_proxy.proxy.tunnel import TunnelFacts
from tests.egress_proxy.proxy.socket_pairs import Pair, connected_pair
from tests.support.data_port import DataPort

ADDRESS = ip_address("192.0.2.7")
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class LiveTunnel:
    """``client`` and ``upstream``: who is at the far ends, closed with the port at the latest."""

    facts: TunnelFacts
    client: socket.socket
    upstream: socket.socket
    pairs: tuple[Pair, Pair]

    def close(self) -> None:
        self.client.close()
        self.upstream.close()


def open_tunnel(
    port: DataPort,
    target: str = "ok.example:7000",
    *,
    early: bytes = b"",
    sni: SniPolicy | None = None,
    grant: str | None = None,
    client: str = "anonymous",
    small: bool = False,
) -> LiveTunnel:
    """Open a tunnel in the port's table. The SNI check looks at targets with port 443 only."""
    ours = connected_pair(small=small), connected_pair(small=small)
    named = parse_authority(target)
    facts = port.call(
        lambda: TunnelFacts(
            f"t-{next(_numbers)}",
            Client(client),
            named,
            ADDRESS,
            Allow(named, "test", OptIn.NONE, grant),
            port.loop.time(),
        )
    )
    port.call(lambda: port.table.open(facts, ours[0].ours, ours[1].ours, early, sni or SniPolicy()))
    port.close_at_end(ours[0].peer, ours[1].peer)
    return LiveTunnel(facts, ours[0].peer, ours[1].peer, ours)
