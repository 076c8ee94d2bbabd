"""Starts the control API beside a service. Imported only where there is one: it brings a web framework.

It gets callables and no secret. Next: control_api/deps.py (what it is given), serve.py (who asks).
"""

import time
from contextlib import AsyncExitStack
from ipaddress import ip_address

from control_api.deps import ControlDeps, Phase, ServiceStatus
from control_api.server import ControlServer
from egress_proxy import __version__
from egress_proxy.cli.composition import Composed, StartFailed, words_of
from egress_proxy.cli.event_sink import EventSink
from egress_proxy.cli.plan import ControlPlan
from egress_proxy.core.host import Target
from egress_proxy.core.policy import denial_of
from egress_proxy.suffixes import suffix_of


async def start_control(plan: ControlPlan, composed: Composed, stack: AsyncExitStack) -> int:
    """Its port, which is never dialled from now on. Raises StartFailed."""
    parts, own, started_at = composed.service.parts, composed.doors.own, time.time()
    listeners = list(own)  # those of sandboxes, which own gets too, are none of the service's
    deps = ControlDeps(
        is_token=plan.token.holds,
        grants=parts.grants,
        tunnels=parts.tunnels,
        reload=composed.service.reload,
        audit=parts.audit,
        now=time.time,
        clock=parts.clock,
        suffix_of=suffix_of,
        own_listeners=lambda: own,
        client_ids=lambda: (*parts.in_force.clients.own, *parts.sandboxes.living),
        denial_of=lambda rule: denial_of(rule, parts.in_force.policy.deny),
        health=lambda: _health(composed.sink),
        status=lambda: _status(composed, started_at, tuple(listeners)),
    )
    server = ControlServer(deps)
    stack.push_async_callback(server.stop)
    try:
        port = await server.start(plan.port)
    except OSError as error:
        raise StartFailed(f"cannot listen on 127.0.0.1:{plan.port}: {words_of(error)}") from None
    listeners.append(Target(ip_address("127.0.0.1"), port))
    own[listeners[-1]] += 1
    return port


def _health(sink: EventSink) -> str:
    """For whoever has no token: whether it serves as it should, and the one word for what is wrong."""
    if sink.lost.is_losing:
        return "audit-failing"
    return "refusal-flood" if sink.is_counting else "ok"


def _status(composed: Composed, started_at: float, listeners: tuple[Target, ...]) -> ServiceStatus:
    service, lost = composed.service, composed.sink.lost
    policy = service.parts.in_force.policy
    return ServiceStatus(
        version=__version__,
        started_at=started_at,
        phase=Phase.DRAINING if service.is_draining else Phase.SERVING,
        listeners=listeners,
        on_miss=policy.on_miss,
        allow_rules=sum(1 for _ in policy.allow),
        deny_rules=sum(1 for _ in policy.deny),
        inject_rules=len(policy.routes),
        lost_lines=lost.count,
        lost_since=lost.since,
        is_counting=composed.sink.is_counting,
    )
