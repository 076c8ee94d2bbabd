"""The composition root of the service: builds the parts, opens the listeners, says where they are.

Nothing is decided and no setting is read here: a ServicePlan has every value. Next: service.py (what runs
then), plan.py (the values), proxy/connection.py (what happens to a client).
"""

import asyncio
import contextlib
import gc
import socket
import ssl
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from ipaddress import ip_address

from control_api.deps import ControlDeps, Phase, ServiceStatus
from control_api.server import ControlServer
from egress_proxy import __version__
from egress_proxy.cli.exit_codes import ExitCode
from egress_proxy.cli.plan import ControlPlan, ServicePlan
from egress_proxy.cli.service import MakeArrivals, Service
from egress_proxy.cli.suffixes import suffix_of
from egress_proxy.core.events import Event
from egress_proxy.core.host import Target
from egress_proxy.core.seams import Audit
from egress_proxy.logs import decision_log, show_faults_of_others
from egress_proxy.proxy.audit import AuditLog
from egress_proxy.proxy.forward import Forwarder, ForwardLimits
from egress_proxy.proxy.grant_store import MemoryGrantStore
from egress_proxy.proxy.hosts_file import HostsFile
from egress_proxy.proxy.listener import Intake, ListenError, listen_tcp, listen_unix
from egress_proxy.proxy.name_cache import NameCache
from egress_proxy.proxy.outbound import Outbound
from egress_proxy.proxy.parts import ConnectionLimits, InForce, Parts
from egress_proxy.proxy.pipes import PipePool
from egress_proxy.proxy.readiness import LoopReadiness
from egress_proxy.proxy.recorder import Recorder
from egress_proxy.proxy.resolver import DnsLookup, NameServer
from egress_proxy.proxy.tunnel_table import Readiness, TunnelLimits, TunnelTable
from egress_proxy.proxy.upstream_pool import UpstreamPool

# How long a client may keep a connection without a request; servers wait 60 to 75 s.
KEEP_ALIVE_S = 75.0


class StartFailed(Exception):
    """The service cannot start. The message says why, in one line."""


def run(plan: ServicePlan) -> int:
    """Serve until a signal says stop; the exit code."""
    show_faults_of_others(plan.verbosity, sys.stderr, time.time)
    try:
        asyncio.run(_serve(plan))
    except StartFailed as error:
        print(f"error: {error}", file=sys.stderr)
        return ExitCode.FAILURE
    return ExitCode.OK


@dataclass(frozen=True, slots=True)
class _Listeners:
    data: socket.socket
    unix: socket.socket | None

    @property
    def targets(self) -> tuple[Target, ...]:
        host, port = self.data.getsockname()[:2]
        return (Target(ip_address(host), port),)


async def _serve(plan: ServicePlan) -> None:
    async with AsyncExitStack() as stack:
        audit, reopen = _open_audit(plan, stack)
        listeners = _open_listeners(plan, stack)
        loop = asyncio.get_running_loop()
        names = await stack.enter_async_context(NameCache(_lookup(plan), HostsFile(), loop.time))
        own: list[Target] = list(listeners.targets)
        in_force = InForce(plan.parts.policy, plan.parts.clients, plan.parts.credentials)
        outbound = Outbound(
            names.resolve, lambda: own, plan.connect_timeout_s, names.ready, lambda: in_force.policy.deny
        )
        pool = UpstreamPool(outbound, ssl.create_default_context, loop.time)
        readiness, make_arrivals = _driver(plan, stack)
        forwarder = _forwarder(plan, in_force, pool, stack)
        parts = _parts(plan, in_force, audit, outbound, readiness, forwarder)
        drain_s = plan.limits.drain_timeout_s
        service = Service(parts, pool, plan.reload, reopen, drain_s, make_arrivals)
        control = None
        if plan.control is not None:
            control = await _start_control(plan.control, service, own, stack)
        sockets = [sock for sock in (listeners.data, listeners.unix) if sock is not None]
        # What start-up has made stays to the end. Left out of collections it costs no pauses, and the
        # interpreter ends in a tenth of the time: a stopped service is to be gone within a second.
        gc.freeze()
        await service.run(sockets, lambda: _announce(listeners, control))


def _open_audit(plan: ServicePlan, stack: AsyncExitStack) -> tuple[Audit, Service.Reopen]:
    """The one sink that every part writes to, and what opens its file anew."""
    show = decision_log(plan.verbosity, sys.stderr, time.time, color=plan.color)

    def show_all(*events: Event) -> None:
        for event in events:
            show(event)

    if plan.audit is None:
        return show_all, lambda: None
    try:
        log = AuditLog(plan.audit.path, plan.audit.on_error, time.time)
    except OSError as error:
        raise StartFailed(f"cannot open the audit log {plan.audit.path}: {_words(error)}") from None
    stack.callback(log.close)

    def write(*events: Event) -> None:
        show_all(*events)
        log.write(*events)

    return write, log.reopen


def _open_listeners(plan: ServicePlan, stack: AsyncExitStack) -> _Listeners:
    try:
        data = listen_tcp(str(plan.bind.address), plan.bind.port)
        stack.callback(data.close)
        unix = None
        if plan.unix_path is not None:
            unix = listen_unix(plan.unix_path)
            stack.callback(plan.unix_path.unlink, missing_ok=True)
            stack.callback(unix.close)
    except ListenError as error:
        raise StartFailed(str(error)) from None
    return _Listeners(data, unix)


def _lookup(plan: ServicePlan) -> DnsLookup:
    server = plan.resolver
    return DnsLookup(None if server is None else NameServer(server.address, server.port))


def _parts(
    plan: ServicePlan,
    in_force: InForce,
    audit: Audit,
    outbound: Outbound,
    readiness: Readiness,
    forwarder: Forwarder,
) -> Parts:
    limits, loop = plan.limits, asyncio.get_running_loop()
    grants = MemoryGrantStore(time.time)
    pipes = PipePool() if sys.platform == "linux" else None
    tunnel_limits = TunnelLimits(
        limits.tunnels,
        limits.tunnels_per_client,
        limits.idle_timeout_s,
        limits.half_close_timeout_s,
        limits.head_timeout_s,
    )
    return Parts(
        in_force=in_force,
        grants=grants,
        outbound=outbound,
        tunnels=TunnelTable(loop, readiness, tunnel_limits, audit, grants, pipes),
        forwarder=forwarder,
        audit=audit,
        now=time.time,
        limits=ConnectionLimits(limits.head_bytes, limits.head_timeout_s, KEEP_ALIVE_S),
    )


def _forwarder(plan: ServicePlan, in_force: InForce, pool: UpstreamPool, stack: AsyncExitStack) -> Forwarder:
    limits = ForwardLimits(plan.limits.first_byte_timeout_s, plan.limits.idle_timeout_s)
    return Forwarder(pool, lambda: in_force.credentials, limits, _recorder(plan, stack))


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
        raise StartFailed(f"cannot open {plan.record_path} for requests: {_words(error)}") from None
    stack.callback(recorder.close)
    return recorder


async def _start_control(
    plan: ControlPlan, service: Service, own: list[Target], stack: AsyncExitStack
) -> int:
    """Start the control API and add its port to what is never dialled."""
    parts, started_at = service.parts, time.time()
    deps = ControlDeps(
        is_token=plan.token.holds,
        grants=parts.grants,
        tunnels=parts.tunnels,
        reload=service.reload,
        audit=parts.audit,
        now=parts.now,
        suffix_of=suffix_of,
        own_listeners=lambda: own,
        client_ids=lambda: tuple(parts.in_force.clients.own),
        status=lambda: _status(service, started_at, tuple(own)),
    )
    server = ControlServer(deps)
    stack.push_async_callback(server.stop)
    try:
        port = await server.start(plan.port)
    except OSError as error:
        raise StartFailed(f"cannot listen on 127.0.0.1:{plan.port}: {_words(error)}") from None
    own.append(Target(ip_address("127.0.0.1"), port))
    return port


def _status(service: Service, started_at: float, listeners: tuple[Target, ...]) -> ServiceStatus:
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
    )


def _announce(listeners: _Listeners, control_port: int | None) -> None:
    """What hosts wait for: printed when both ports accept, flushed, nothing else on stdout."""
    lines = [f"EGRESS_PROXY_PORT={listeners.targets[0].port}"]
    if control_port is not None:
        lines.append(f"EGRESS_CONTROL_PORT={control_port}")
    with contextlib.suppress(BrokenPipeError):  # a host that does not read is served all the same
        print("\n".join(lines), flush=True)


def _words(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
