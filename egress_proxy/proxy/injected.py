"""The steps of an injected request that wait for nothing, for both who take them: connection.py and kept.py.

Nothing is decided here: core is asked. Next: intake.py (text to what is asked), core/policy.py, forward.py.
"""

import contextlib
from dataclasses import dataclass

from egress_proxy.core.access import Access, Client, Door
from egress_proxy.core.decision import Allow, Deny, Reason
from egress_proxy.core.events import Ended
from egress_proxy.core.policy import decide
from egress_proxy.core.reply import refusal_status
from egress_proxy.core.request import RequestHead
from egress_proxy.core.seams import AuditUnavailable
from egress_proxy.proxy.admission import client_of
from egress_proxy.proxy.faults import fault_event
from egress_proxy.proxy.forward import Forwarded
from egress_proxy.proxy.intake import injected_request
from egress_proxy.proxy.order import Order
from egress_proxy.proxy.parts import Parts
from egress_proxy.proxy.peer import Peer
from egress_proxy.proxy.rejudge import is_known


@dataclass(frozen=True, slots=True)
class Inside:
    """The CONNECT to an inject rule's host that a client came through: we are the other end of it.
    ``since_s``: the loop's clock."""

    request_id: str
    access: Access
    since_s: float


@dataclass(frozen=True, slots=True)
class Admitted:
    access: Access
    order: Order


@dataclass(frozen=True, slots=True)
class Refused:
    """``access`` is None when it was not even clear who asks for what."""

    deny: Deny
    access: Access | None = None


def admit(
    request_id: str, head: RequestHead, inside: Inside | None, peer: Peer, parts: Parts
) -> Admitted | Refused:
    """Judge one request for an inject rule; ``inside`` as the connection has it."""
    request = injected_request(head, None if inside is None else inside.access.target)
    if isinstance(request, Deny):
        return Refused(request)
    client = _client_of(head, inside, peer, parts)
    if isinstance(client, Deny):
        return Refused(client)
    door = Door.ABSOLUTE if inside is None else Door.CONNECT_INJECT
    access = Access(client, request.target, door, head.method, request.path)
    decision = decide(access, parts.in_force.policy, parts.grants.snapshot(), parts.clock())
    if isinstance(decision, Deny):
        return Refused(decision, access)
    if not isinstance(decision, Allow) or decision.route is None:
        return Refused(Deny(Reason.INJECT_OTHER_TARGET, access.target), access)
    order = Order(request_id, head, request.path, request.body_bytes, decision.route, decision)
    return Admitted(access, order)


def _client_of(head: RequestHead, inside: Inside | None, peer: Peer, parts: Parts) -> Client | Deny:
    """Who sends this request; inside a CONNECT whoever sent that, as long as there is such a client."""
    if inside is None:
        return client_of(head, peer, parts)
    client = inside.access.client
    return client if is_known(client, parts) else Deny(Reason.CLIENT_UNKNOWN)


def record_end(admitted: Admitted, done: Forwarded, duration_s: float, parts: Parts) -> None:
    """It has happened: where that cannot be written down, the next request is refused."""
    ended = ended_event(admitted, done, duration_s)
    with contextlib.suppress(AuditUnavailable):
        if done.fault is None:
            parts.audit(ended)
        else:
            parts.audit(fault_event(ended.request_id, done.fault), ended)


def ended_event(admitted: Admitted, done: Forwarded, duration_s: float) -> Ended:
    access, order = admitted.access, admitted.order
    return Ended(
        request_id=order.request_id,
        client=access.client,
        target=order.allow.target,
        door=access.door,
        cause=done.cause,
        bytes_out=done.bytes_out,
        bytes_in=done.bytes_in,
        duration_s=round(duration_s, 3),
        status=refusal_status(done.deny.reason) if done.deny else done.status,
        reason=done.deny.reason if done.deny else None,
        detail=done.deny.detail if done.deny else "",
    )
