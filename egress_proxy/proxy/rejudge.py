"""Whether something that was allowed a while ago still is: after a dial, a reload, the end of a grant.

It asks core's decide() again and says why not. Next: core/policy.py, tunnel_table.py (closes what is not).
"""

from egress_proxy.core.access import Access, Client, Door
from egress_proxy.core.decision import Allow, Deny, Reason
from egress_proxy.core.policy import decide
from egress_proxy.core.seams import Answer
from egress_proxy.proxy.exchange import Exchange
from egress_proxy.proxy.order import Order
from egress_proxy.proxy.parts import Parts
from egress_proxy.proxy.peer import Peer
from egress_proxy.proxy.tunnel import TunnelFacts


def is_known(client: Client, parts: Parts) -> bool:
    """Whether there still is such a client: a sandbox that lives, or one whose token is in force."""
    return client.id in parts.sandboxes.living or parts.in_force.clients.knows(client)


def order_is_void(access: Access, order: Order, peer: Peer, parts: Parts) -> Deny | None:
    """Why an injected request that waited for its upstream may not go out any more; None while it may.

    Only the very rule that admitted it counts: one of the same name can lead elsewhere, with another secret.
    """
    if access.client != peer.sandbox and not is_known(access.client, parts):
        return Deny(Reason.CLIENT_UNKNOWN, access.target)
    decision = decide(access, parts.in_force.policy, parts.grants.snapshot(), parts.clock())
    if isinstance(decision, Allow) and decision.route == order.route:
        return None
    return decision if isinstance(decision, Deny) else Deny(Reason.INJECT_OTHER_TARGET, access.target)


def no_longer_allowed(access: Access, allow: Allow, parts: Parts) -> Deny | None:
    """Why what was allowed as ``allow`` is not any more; None while just that still stands.

    Another entry or grant that would allow it now does not count: its uses and bytes were not taken.
    """
    grants = parts.grants.snapshot()
    decision = decide(access, parts.in_force.policy, grants, parts.clock())
    if allow.grant_id is None:
        stands = isinstance(decision, Allow) and decision.grant_id is None
    else:
        grant = grants.by_id.get(allow.grant_id)
        # A grant whose uses are spent was spent on this; deny entries count, and the grant's own end.
        denied = isinstance(decision, Deny) and decision.reason is not Reason.GRANT_EXHAUSTED
        stands = grant is not None and grant.is_live(parts.clock()) and not denied
    if stands:
        return None
    return decision if isinstance(decision, Deny) else Deny(Reason.NOT_LISTED, access.target)


def request_is_unwanted(exchange: Exchange, access: Access, peer: Peer, parts: Parts) -> bool:
    """For a reload: whether an injected request under way would be refused now, or go out otherwise."""
    if order_is_void(access, exchange.order, peer, parts) is not None:
        return True
    upstream, allow = exchange.upstream, exchange.order.allow
    answer = Answer((upstream.address,), completed=upstream.completed)
    if isinstance(parts.outbound.judge(allow, answer), Deny):
        return True
    return not parts.forwarder.holds_still(exchange.order, exchange.held)


def tunnel_is_unwanted(facts: TunnelFacts, parts: Parts) -> bool:
    """For a reload: whether an open tunnel's client, target or address would be refused now."""
    access = Access(facts.client, facts.target, Door.TUNNEL)
    if not is_known(facts.client, parts):
        return True
    if no_longer_allowed(access, facts.allow, parts) is not None:
        return True
    now = decide(access, parts.in_force.policy, parts.grants.snapshot(), parts.clock())
    allow = now if isinstance(now, Allow) else facts.allow
    answer = Answer((facts.address,), completed=facts.allow.completed)
    return isinstance(parts.outbound.judge(allow, answer), Deny)
