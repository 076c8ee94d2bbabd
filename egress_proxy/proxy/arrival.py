"""One new client until its tunnel is open: what it waits for, and the dial that is under way for it.

Values only; the steps are in arrivals.py.
"""

import socket
from collections.abc import Callable
from dataclasses import dataclass

from egress_proxy.core.access import Access
from egress_proxy.core.address import Address
from egress_proxy.core.decision import Allow, Deny
from egress_proxy.core.grants import Grants
from egress_proxy.core.policy import Policy
from egress_proxy.core.request import RequestHead
from egress_proxy.proxy.peer import Peer
from egress_proxy.proxy.stream import SocketStream
from egress_proxy.proxy.tunnel import TunnelFacts

FallBack = Callable[[SocketStream, Peer, float], None]
"""A client's stream, who it is, and when its request head is due."""
RefuseDial = Callable[[SocketStream, Peer, RequestHead, Access, Deny, str], None]


@dataclass(frozen=True, slots=True)
class Dial:
    """An allowed CONNECT whose upstream is being connected."""

    head: RequestHead
    early: bytes
    access: Access
    allow: Allow
    upstream: socket.socket
    address: Address
    request_id: str
    judged_by: tuple[Policy, Grants]  # what was in force then: while it still is, the answer is the same

    def facts(self, started_at: float) -> TunnelFacts:
        """For the tunnel that it becomes. ``started_at``: the loop's clock."""
        access = self.access
        return TunnelFacts(
            self.request_id, access.client, access.target, self.address, self.allow, started_at
        )


@dataclass(slots=True, eq=False)
class Arrival:
    """One client that has no tunnel yet. ``due_at``: the loop's clock, when its waiting ends.

    An edge comes once: what came while nobody was reading is remembered for the tunnel.
    """

    sock: socket.socket
    peer: Peer
    due_at: float
    dial: Dial | None = None
    client_spoke: bool = False
    upstream_spoke: bool = False
    upstream_broke: bool = False
