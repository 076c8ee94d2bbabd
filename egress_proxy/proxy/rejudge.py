"""Whether something that was allowed a while ago still is: after a dial, a reload, the end of a grant.

It asks core's decide() again and says why not. Next: core/policy.py, tunnel_table.py (closes what is not).
"""

from egress_proxy.core.access import Access, Door
from egress_proxy.core.decision import Allow, Deny, Reason
from egress_proxy.core.policy import decide
from egress_proxy.core.seams import Answer
from egress_proxy.proxy.parts import Parts
from egress_proxy.proxy.tunnel import TunnelFacts


def no_longer_allowed(access: Access, allow: Allow, parts: Parts) -> Deny | None:
    """Why a request that was allowed as ``allow`` is not any more; None while it is."""
    grants = parts.grants.snapshot()
    decision = decide(access, parts.in_force.policy, grants, parts.now())
    if isinstance(decision, Allow):
        return None
    grant = grants.by_id.get(allow.grant_id or "")
    # A grant whose uses are spent was spent on this; deny entries and the grant's end still count.
    rests_on_grant = grant is not None and grant.is_live(parts.now())
    if isinstance(decision, Deny) and not (decision.reason is Reason.GRANT_EXHAUSTED and rests_on_grant):
        return decision
    return None if rests_on_grant else Deny(Reason.NOT_LISTED, access.target)


def tunnel_is_unwanted(facts: TunnelFacts, parts: Parts) -> bool:
    """For a reload: whether an open tunnel's target or address would be refused now."""
    access = Access(facts.client, facts.target, Door.TUNNEL)
    if no_longer_allowed(access, facts.allow, parts) is not None:
        return True
    now = decide(access, parts.in_force.policy, parts.grants.snapshot(), parts.now())
    allow = now if isinstance(now, Allow) else facts.allow
    return isinstance(parts.outbound.judge(allow, Answer((facts.address,))), Deny)
