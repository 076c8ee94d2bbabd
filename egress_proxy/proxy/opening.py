"""A CONNECT's way to its upstream, for clients that have a task: room, dial, a second look, the record.

What arrivals.py does without one, in the same order. Next: admission.py (the steps), connection.py.
"""

import socket
from dataclasses import dataclass

from egress_proxy.core.access import Access
from egress_proxy.core.address import Address
from egress_proxy.core.decision import Allow, Deny
from egress_proxy.proxy.admission import give_room_back, record_allowed, take_room
from egress_proxy.proxy.parts import Parts
from egress_proxy.proxy.peer import Peer
from egress_proxy.proxy.rejudge import no_longer_allowed


@dataclass(frozen=True, slots=True)
class Dialled:
    """A connected upstream that is on record as allowed: a use of its grant is spent, whatever comes now. The
    place of the dial is still taken; whoever opens the tunnel, or does not, leaves it."""

    upstream: socket.socket
    address: Address
    allow: Allow


async def dial(request_id: str, peer: Peer, access: Access, allow: Allow, parts: Parts) -> Dialled | Deny:
    """Connect to the target; nothing is said to the client. Without success, room and use are given back."""
    refusal = take_room(access, allow, parts)
    if refusal is not None:
        return refusal
    dialled: Dialled | Deny | None = None
    try:
        dialled = await _dial(request_id, peer, access, allow, parts)
    finally:
        if not isinstance(dialled, Dialled):
            give_room_back(access, allow, parts)
    return dialled


async def _dial(request_id: str, peer: Peer, access: Access, allow: Allow, parts: Parts) -> Dialled | Deny:
    connected = await parts.outbound.connect(allow)
    if isinstance(connected, Deny):
        return connected
    upstream, address, allow = connected
    try:
        # Dialling took time.
        refusal = no_longer_allowed(access, allow, parts) or record_allowed(
            request_id, peer, access, allow, str(address), parts
        )
    except BaseException:
        upstream.close()
        raise
    if refusal is not None:
        upstream.close()
        return refusal
    return Dialled(upstream, address, allow)
