"""Builds a service from its plan, without the control API: the parts, the listeners, what drives tunnels.

Nothing is decided and no setting is read here. Next: serve.py (the service with its control API),
control_start.py (that), service.py (what runs then), plan.py (the values).
"""

import asyncio
import secrets
import socket
import ssl
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from egress_proxy.cli.ask import MakeAsker
from egress_proxy.cli.event_sink import EventSink
from egress_proxy.cli.plan import AttachPlan, ServicePlan
from egress_proxy.cli.service import Doors, MakeArrivals, Service
from egress_proxy.core.access import Access
from egress_proxy.core.decision import Decision
from egress_proxy.core.host import Target
from egress_proxy.core.policy import decide
from egress_proxy.core.seams import Audit
from egress_proxy.logs import decision_log
from egress_proxy.proxy.attach_socket import listen_attach
from egress_proxy.proxy.audit import AuditLog
from egress_proxy.proxy.forward import Forwarder
from egress_proxy.proxy.grant_store import MemoryGrantStore
from egress_proxy.proxy.hosts_file import HostsFile
from egress_proxy.proxy.listener import Intake, listen_tcp
from egress_proxy.proxy.name_cache import NameCache
from egress_proxy.proxy.order import ForwardLimits
from egress_proxy.proxy.outbound import Outbound
from egress_proxy.proxy.parts import ConnectionLimits, InForce, Parts
from egress_proxy.proxy.pipes import PipePool
from egress_proxy.proxy.readiness import LoopReadiness
from egress_proxy.proxy.recorder import Recorder
from egress_proxy.proxy.resolver import DnsLookup, NameServer
from egress_proxy.proxy.sandbox_ledger import SandboxLedgers
from egress_proxy.proxy.steady_clock import steady_s
from egress_proxy.proxy.tunnel_table import Readiness, TunnelLimits, TunnelTable
from egress_proxy.proxy.unix_socket import ListenError, listen_unix
from egress_proxy.proxy.upstream_pool import UpstreamPool

# How long a client may keep a connection without a request; servers wait 60 to 75 s.
KEEP_ALIVE_S = 75.0
# For sandboxes of a service that has no data port itself. Below what kernels give out to who asks for any.
_PORTS_INSIDE = range(20_000, 30_000)


class StartFailed(Exception):
    """The service cannot start. The message says why, in one line."""


@dataclass(frozen=True, slots=True)
class Composed:
    """A service that has not begun to accept. ``attach``: its attach socket's path; ``warnings``: lines
    for the person who starts it."""

    service: Service
    doors: Doors
    attach: Path | None
    warnings: tuple[str, ...]
    sink: EventSink


@asynccontextmanager
async def serving(plan: ServicePlan, make_asker: MakeAsker | None = None) -> AsyncIterator[Composed]:
    """A service without control API that accepts, until the block ends. Signals are the caller's.

    Raises StartFailed.
    """
    async with AsyncExitStack() as stack:
        composed = await compose(plan, stack, make_asker)
        accepts = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(composed.service.run(composed.doors, accepts.set, obey_signals=False))
            await accepts.wait()
            try:
                yield composed
            finally:
                composed.service.stop()


async def compose(plan: ServicePlan, stack: AsyncExitStack, make_asker: MakeAsker | None = None) -> Composed:
    """Everything is closed with ``stack``. Raises StartFailed."""
    ledgers = SandboxLedgers()
    audit, reopen = _open_audit(plan, ledgers, stack)
    doors, warnings = _open_doors(plan, stack)
    loop = asyncio.get_running_loop()
    lookup = _lookup(plan)
    cache = NameCache(lookup, HostsFile(), steady_s, lookup.completions)
    names = await stack.enter_async_context(cache)
    in_force = InForce(plan.parts.policy, plan.parts.clients, plan.parts.credentials, plan.parts.own)
    outbound = _outbound(plan, names, doors, in_force)
    pool = UpstreamPool(outbound, ssl.create_default_context, loop.time)
    readiness, make_arrivals = _driver(plan, stack)
    times = plan.limits
    limits = ForwardLimits(times.first_byte_timeout_s, times.idle_timeout_s, times.body_timeout_s)
    grants = MemoryGrantStore(steady_s, time.time)

    def judge(access: Access) -> Decision:
        return decide(access, in_force.policy, grants.snapshot(), steady_s())

    parts = Parts(
        in_force=in_force,
        grants=grants,
        outbound=outbound,
        tunnels=_tunnels(plan, readiness, audit, grants),
        forwarder=Forwarder(pool, lambda: in_force.credentials, limits, _recorder(plan, stack)),
        audit=audit,
        clock=steady_s,
        limits=ConnectionLimits(plan.limits.head_bytes, plan.limits.head_timeout_s, KEEP_ALIVE_S),
        asker=None if make_asker is None else make_asker(grants, judge),
        sandboxes=ledgers,
    )
    service = Service(
        parts, pool, plan.reload, reopen, plan.limits.drain_timeout_s, make_arrivals, audit.finish
    )
    attach = plan.attach.path if plan.attach and doors.attach else None
    return Composed(service, doors, attach, warnings, audit)


def _open_audit(
    plan: ServicePlan, ledgers: SandboxLedgers, stack: AsyncExitStack
) -> tuple[EventSink, Service.Callback]:
    """The one sink that every part writes to, and what opens its file anew."""
    show = decision_log(plan.verbosity, sys.stderr, time.time, color=plan.color)
    if plan.audit is None:
        return EventSink(show, ledgers, None, time.time), lambda: None
    try:
        log = AuditLog(plan.audit.path, plan.audit.on_error, time.time)
    except OSError as error:
        raise StartFailed(f"cannot open the audit log {plan.audit.path}: {words_of(error)}") from None
    stack.callback(log.close)
    return EventSink(show, ledgers, log, time.time), log.reopen


def _open_doors(plan: ServicePlan, stack: AsyncExitStack) -> tuple[Doors, tuple[str, ...]]:
    listeners: list[socket.socket] = []
    own: Counter[Target] = Counter()
    port = secrets.choice(_PORTS_INSIDE)
    try:
        if plan.bind is not None:
            listeners.append(listen_tcp(str(plan.bind.address), plan.bind.port))
            stack.callback(listeners[-1].close)
            host, port = listeners[-1].getsockname()[:2]
            own[Target(ip_address(host), port)] += 1
        if plan.unix_path is not None:
            listeners.append(listen_unix(plan.unix_path))
            stack.callback(listeners[-1].close)
        attach, warnings = _open_attach(plan.attach, stack)
    except ListenError as error:
        raise StartFailed(str(error)) from None
    return Doors(tuple(listeners), port, own, attach, plan.same_user), warnings


def _open_attach(
    plan: AttachPlan | None, stack: AsyncExitStack
) -> tuple[socket.socket | None, tuple[str, ...]]:
    """Raises ListenError for a path that somebody named; the default one may be another proxy's."""
    if plan is None:
        return None, ()
    try:
        attach = listen_attach(plan.path)
    except ListenError as error:
        if plan.is_named:
            raise
        return None, (f"sandboxes cannot attach: {error}; name a free path with --attach PATH",)
    stack.callback(attach.close)
    return attach, ()


def _outbound(plan: ServicePlan, names: NameCache, doors: Doors, in_force: InForce) -> Outbound:
    return Outbound(
        names.resolve,
        lambda: doors.own,
        plan.connect_timeout_s,
        names.ready,
        lambda: in_force.policy.deny,
        plan.limits.tcp_keepalive_s,
        names.completions,
    )


def _lookup(plan: ServicePlan) -> DnsLookup:
    server = plan.resolver
    return DnsLookup(None if server is None else NameServer(server.address, server.port))


def _tunnels(plan: ServicePlan, readiness: Readiness, audit: Audit, grants: MemoryGrantStore) -> TunnelTable:
    limits = plan.limits
    tunnel_limits = TunnelLimits(
        limits.tunnels,
        limits.tunnels_per_client,
        limits.idle_timeout_s,
        limits.half_close_timeout_s,
        limits.head_timeout_s,
    )
    # The loop's driver knows no bulk: a splice's worth for each flow in a row would hold up small tunnels.
    pipes = None if isinstance(readiness, LoopReadiness) else PipePool()
    return TunnelTable(asyncio.get_running_loop(), readiness, tunnel_limits, audit, grants, pipes)


def _driver(plan: ServicePlan, stack: AsyncExitStack) -> tuple[Readiness, MakeArrivals]:
    """What drives tunnels, and what serves new clients until they have one."""
    loop = asyncio.get_running_loop()
    if plan.relay == "loop" or (plan.relay is None and sys.platform != "linux"):
        return LoopReadiness(loop), lambda *_: None
    if sys.platform != "linux":
        raise StartFailed("--relay epoll needs Linux; leave it out")
    # These need Linux to be imported.
    from egress_proxy.proxy.arrivals import Arrivals
    from egress_proxy.proxy.epoll_readiness import EpollReadiness

    epoll = EpollReadiness(loop)
    stack.callback(epoll.close)

    def make_arrivals(parts: Parts, intake: Intake, is_draining: Callable[[], bool]) -> Arrivals:
        return Arrivals(parts, epoll, is_draining, intake.serve, intake.refuse_dial)

    return epoll, make_arrivals


def _recorder(plan: ServicePlan, stack: AsyncExitStack) -> Recorder | None:
    if plan.record_path is None:
        return None
    try:
        recorder = Recorder(plan.record_path, time.time)
    except OSError as error:
        raise StartFailed(f"cannot open {plan.record_path} for requests: {words_of(error)}") from None
    stack.callback(recorder.close)
    return recorder


def words_of(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
