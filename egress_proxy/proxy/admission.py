"""The steps of a CONNECT that wait for nothing, for both who take them: connection.py and arrivals.py.

Nothing is decided here: core is asked. Next: core/policy.py, intake.py (text to Target), rejudge.py.
"""

import contextlib

from egress_proxy.core.access import Access, Client, Door
from egress_proxy.core.decision import Allow, Deny, Reason
from egress_proxy.core.events import Decided, EndCause, Ended
from egress_proxy.core.reply import refusal_status
from egress_proxy.core.request import RequestHead
from egress_proxy.core.seams import AuditUnavailable
from egress_proxy.proxy.intake import connect_target
from egress_proxy.proxy.parts import Parts
from egress_proxy.proxy.peer import Peer

# A method is a token of any length; a log line shows the beginning.
METHOD_SHOWN = 20


def client_of(head: RequestHead, peer: Peer, parts: Parts) -> Client | Deny:
    """Whose request it is. What comes in by a sandbox's own listener is its, whatever token it shows."""
    return peer.sandbox or parts.in_force.clients.identify(head)


def connect_access(head: RequestHead, peer: Peer, parts: Parts) -> Access | Deny:
    """Who wants to go where with a CONNECT: authority first, then the client."""
    target = connect_target(head)
    if isinstance(target, Deny):
        return target
    client = client_of(head, peer, parts)
    if isinstance(client, Deny):
        return client
    is_route = parts.in_force.policy.is_route(target)
    return Access(client, target, Door.CONNECT_INJECT if is_route else Door.TUNNEL)


def take_room(access: Access, allow: Allow, parts: Parts) -> Deny | None:
    """A place for the dial and one use of the grant; whoever takes them gives both back without a 200, and
    the place alone with one: the tunnel has its own."""
    full = parts.tunnels.places.take(access)
    if full is not None:
        return full
    if allow.grant_id is not None and not parts.grants.spend_use(allow.grant_id):
        parts.tunnels.places.leave(access.client)
        return Deny(Reason.GRANT_EXHAUSTED, access.target, allow.rule)
    return None


def give_room_back(access: Access, allow: Allow, parts: Parts) -> None:
    parts.tunnels.places.leave(access.client)
    if allow.grant_id is not None:
        parts.grants.give_back_use(allow.grant_id)


def allowed_event(request_id: str, peer: Peer, access: Access, allow: Allow, address: str | None) -> Decided:
    return Decided(
        request_id=request_id,
        client=access.client,
        peer=peer.address,
        door=access.door,
        method=access.method[:METHOD_SHOWN],
        target=access.target,
        status=200 if access.method == "CONNECT" else None,
        rule=allow.rule,
        grant=allow.grant_id,
        address=address,
        detail="" if allow.completed is None else f"the search list makes it {allow.completed}",
    )


def record_allowed(
    request_id: str, peer: Peer, access: Access, allow: Allow, address: str | None, parts: Parts
) -> Deny | None:
    """Write an allowed request down; what cannot be written down may not pass."""
    try:
        parts.audit(allowed_event(request_id, peer, access, allow, address))
    except AuditUnavailable:
        return Deny(Reason.AUDIT_UNAVAILABLE, access.target)
    return None


def record_unopened(
    request_id: str, access: Access, cause: EndCause, parts: Parts, lasted_s: float = 0.0
) -> None:
    """The end of what was allowed and recorded, and carried nothing: its client left before its 200, or the
    CONNECT only opened the way to an inject rule, whose requests have lines of their own."""
    with contextlib.suppress(AuditUnavailable):
        parts.audit(
            Ended(request_id, access.client, access.target, access.door, cause, 0, 0, round(lasted_s, 3))
        )


def refused_event(
    request_id: str, peer: Peer, deny: Deny, head: RequestHead | None, access: Access | None
) -> Decided:
    return Decided(
        request_id=request_id,
        client=access.client if access else peer.sandbox or Client(),
        peer=peer.address,
        door=access.door if access else None,
        method=head.method[:METHOD_SHOWN] if head else None,
        target=deny.target,
        status=refusal_status(deny.reason),
        reason=deny.reason,
        rule=deny.rule,
        detail=deny.detail,
    )
