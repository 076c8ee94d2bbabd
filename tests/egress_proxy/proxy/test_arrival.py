"""What an arrival's tunnel rests on is what its dial was allowed as."""

from __future__ import annotations

import socket
from ipaddress import ip_address

from egress_proxy.core.access import Access, Client, Door
from egress_proxy.core.decision import Allow, OptIn
from egress_proxy.core.grants import Grants
from egress_proxy.core.host import parse_authority
from egress_proxy.core.policy import Policy
from egress_proxy.core.request import parse_head
from egress_proxy.proxy.arrival import Dial
from egress_proxy.proxy.tunnel import TunnelFacts

TARGET = parse_authority("ok.example:443")


def test_a_tunnel_rests_on_what_its_dial_was_allowed_as() -> None:
    access = Access(Client("sandbox-1"), TARGET, Door.TUNNEL)
    allow = Allow(TARGET, "ok.example", OptIn.NONE, "g-1")
    address = ip_address("192.0.2.1")
    head = parse_head(b"CONNECT ok.example:443 HTTP/1.1\r\n\r\n")
    with socket.socket() as upstream:
        dial = Dial(head, b"", access, allow, upstream, address, "r-1", (Policy(), Grants()))
        assert dial.facts(7.5) == TunnelFacts("r-1", access.client, TARGET, address, allow, 7.5)
