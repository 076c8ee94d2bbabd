"""One new client until its tunnel is open: what it waits for, and the dial that is under way for it.

Values only; the steps are in arrivals.py.
"""

import socket
from dataclasses import dataclass

from egress_proxy.core.access import Access
from egress_proxy.core.address import Address
from egress_proxy.core.decision import Allow
from egress_proxy.core.grants import Grants
from egress_proxy.core.policy import Policy
from egress_proxy.core.request import RequestHead


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


class Arrival:
    """One client that has no tunnel yet. ``due_at``: the loop's clock, when its waiting ends."""

    __slots__ = ("client_spoke", "dial", "due_at", "peer", "sock", "upstream_spoke")

    def __init__(self, sock: socket.socket, peer: str, due_at: float) -> None:
        self.sock = sock
        self.peer = peer
        self.due_at = due_at
        self.dial: Dial | None = None
        # An edge comes once: what came while nobody was reading is remembered for the tunnel.
        self.client_spoke = self.upstream_spoke = False
