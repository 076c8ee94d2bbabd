"""What runs between start and stop: accepting, reloading, and the order in which everything ends.

The parts are built in serve.py. Next: proxy/listener.py (accepts), proxy/tunnel_table.py (tunnels),
proxy/rejudge.py (what a reload closes).
"""

import asyncio
import functools
import gc
import itertools
import signal
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from egress_proxy.cli.plan import PolicyParts
from egress_proxy.core.access import Access, Client
from egress_proxy.core.events import EndCause, Event, Reloaded, ServiceChanged
from egress_proxy.core.host import Target
from egress_proxy.core.policy import Policy
from egress_proxy.core.seams import AuditUnavailable, ReloadOutcome, ReloadRefused
from egress_proxy.proxy.attachments import Attachments
from egress_proxy.proxy.connection import Connection
from egress_proxy.proxy.ended_grants import EndedGrants
from egress_proxy.proxy.exchange import Exchange
from egress_proxy.proxy.faults import fault_event
from egress_proxy.proxy.kept import KeptClients, Start
from egress_proxy.proxy.listener import Intake
from egress_proxy.proxy.parts import Parts
from egress_proxy.proxy.peer import Peer
from egress_proxy.proxy.rejudge import request_is_unwanted, tunnel_is_unwanted
from egress_proxy.proxy.stream import SocketStream
from egress_proxy.proxy.tunnel import TunnelFacts
from egress_proxy.proxy.upstream_pool import IDLE_S, UpstreamPool
from egress_proxy.settings.origins import SettingsError

# How often a stopping service looks whether the last requests and tunnels have come to rest.
DRAIN_STEP_S = 0.05
# How long a used-up grant is still listed, so that a person can see where it went.
USED_UP_SHOWN_S = 60.0
# Entries that are too many to be looked through for garbage now and then.
LONG_LIST = 10_000


class Newcomers(Protocol):
    """Serves clients until their tunnel is open, where there is a faster way than a task for each."""

    def take(self, sock: socket.socket, peer: Peer) -> None: ...

    def end_client(self, sandbox: Client) -> None: ...

    def drop_oldest_silent(self) -> bool: ...

    def close(self) -> None: ...

    def __len__(self) -> int: ...


MakeArrivals = Callable[[Parts, Intake, Callable[[], bool]], Newcomers | None]


@dataclass(frozen=True, slots=True)
class Doors:
    """Where it listens. ``port``: the data port's, or what takes its place in sandboxes where there is none.
    ``own``: what is never dialled, which grows with the listeners of sandboxes. ``same_user``: the listeners
    take connections of our own user alone."""

    listeners: tuple[socket.socket, ...]
    port: int
    own: Counter[Target]
    attach: socket.socket | None = None
    same_user: bool = False


class Service:
    """`run` returns when it was told to `stop` and everything has ended."""

    Callback: TypeAlias = Callable[[], None]

    def __init__(
        self,
        parts: Parts,
        pool: UpstreamPool,
        load: Callable[[], PolicyParts],
        reopen_audit: Callback,
        drain_s: float,
        make_arrivals: MakeArrivals,
        finish_audit: Callback = lambda: None,
    ) -> None:
        self.parts = parts
        self._pool = pool
        self._load = load
        self._reopen_audit = reopen_audit
        self._finish_audit = finish_audit
        self._drain_s = drain_s
        self._make_arrivals = make_arrivals
        self._arrivals: Newcomers | None = None
        self._intake: Intake | None = None
        self._attachments: Attachments | None = None
        self._ended_grants = EndedGrants(parts.audit)
        self._used_up_since: dict[str, float] = {}
        self._stopping = asyncio.Event()
        self._reloading = asyncio.Lock()
        parts.tunnels.on_sweep = self._sweep

    @property
    def is_draining(self) -> bool:
        return self._stopping.is_set()

    async def run(self, doors: Doors, announce: Callable[[], None], *, obey_signals: bool = True) -> None:
        """``announce`` is called when it accepts. Signals: SIGTERM and SIGINT stop it, SIGHUP reloads."""
        async with asyncio.TaskGroup() as group:
            audit, keepalive_s = self.parts.audit, self.parts.outbound.keepalive_s
            elsewhere, places = self._open_elsewhere, self.parts.tunnels.places
            intake = Intake(group, self._connection, self._kept, audit, elsewhere, places, keepalive_s)
            self._intake = intake
            self._open(doors, intake)
            self.parts.tunnels.start()
            if obey_signals:
                self._obey_signals(group)
            self._record(ServiceChanged("started", ""))
            announce()
            await self._stopping.wait()
            await self._end(intake)
        self._finish_audit()
        self._record(ServiceChanged("stopped", ""))

    def stop(self) -> None:
        self._stopping.set()

    def _open(self, doors: Doors, intake: Intake) -> None:
        self._arrivals = self._make_arrivals(self.parts, intake, self._stopping.is_set)
        if self._arrivals is not None:
            intake.newcomer = self._arrivals.take
            intake.drop_newcomer = self._arrivals.drop_oldest_silent
        for listener in doors.listeners:
            intake.listen(listener, same_user=doors.same_user)
        if doors.attach is not None:
            end_client = functools.partial(self._end_client, intake)
            self._attachments = Attachments(
                self.parts, intake, doors.own, doors.port, end_client, self._stopping.is_set
            )
            intake.listen(doors.attach, self._attachments.admit)

    def _obey_signals(self, group: asyncio.TaskGroup) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        loop.add_signal_handler(signal.SIGHUP, lambda: group.create_task(self._reload_by_signal()))

    def _end_client(self, intake: Intake, sandbox: Client) -> None:
        """A sandbox has ended: so does all that came in by its listener."""
        intake.end_client(sandbox)
        if self._arrivals is not None:
            self._arrivals.end_client(sandbox)
        self.parts.tunnels.close_where(lambda facts: facts.client == sandbox, EndCause.SANDBOX_ENDED)

    def _open_elsewhere(self) -> int:
        waiting = 0 if self._arrivals is None else len(self._arrivals)
        attached = 0 if self._attachments is None else len(self._attachments)  # two descriptors each, too
        return waiting + attached + self.parts.tunnels.count().open

    def _connection(self, stream: SocketStream, peer: Peer) -> Connection:
        return Connection(self.parts, stream, peer, self._stopping.is_set)

    def _kept(self, start: Start) -> KeptClients:
        return KeptClients(self.parts, self._stopping.is_set, start)

    async def _end(self, intake: Intake) -> None:
        """Idle things end at once; what still moves has the drain time, then it is cut."""
        loop = asyncio.get_running_loop()
        intake.stop_accepting()
        if self._arrivals is not None:
            self._arrivals.close()
        deadline = loop.time() + self._drain_s
        # That nothing has moved for a while is no event that could be waited for.
        while intake.end_idle() + self.parts.tunnels.close_quiet() > 0 and loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(DRAIN_STEP_S)
        self.parts.tunnels.close_all()
        intake.end_all()
        if self._attachments is not None:
            self._attachments.close()
        self._ended_grants.finish()
        self._pool.close_idle()

    async def reload(self) -> ReloadOutcome:
        """Read the settings again and swap them whole; what is no longer allowed ends.

        Raises ReloadRefused, and then everything is as before.
        """
        async with self._reloading:  # one after the other: the last one read is the one in force
            return await self._reload()

    async def _reload(self) -> ReloadOutcome:
        try:
            fresh = await asyncio.to_thread(_read_beside_the_loop, self._load)
        except SettingsError as error:
            self._record(Reloaded(str(error), 0))
            raise ReloadRefused(str(error)) from None
        in_force, before = self.parts.in_force, [self.parts.in_force.policy]
        in_force.policy, in_force.clients = fresh.policy, fresh.clients
        in_force.credentials, in_force.own = fresh.credentials, fresh.own
        self.parts.forwarder.forget()
        intake = self._intake
        requests = 0 if intake is None else intake.end_unwanted(self._is_unwanted)
        closed = 0
        for tunnels in self.parts.tunnels.in_slices():
            closed += self.parts.tunnels.close_where(
                self._is_unwanted_tunnel, EndCause.POLICY_CHANGED, tunnels
            )
            await asyncio.sleep(0)  # judging thousands takes its time, in which the others have their turn
        is_recorded = self._record(Reloaded("", closed, requests))
        await asyncio.to_thread(_let_go, before)
        return ReloadOutcome(closed, requests, is_recorded)

    def _is_unwanted(self, exchange: Exchange, access: Access, peer: Peer) -> bool:
        return request_is_unwanted(exchange, access, peer, self.parts)

    def _is_unwanted_tunnel(self, facts: TunnelFacts) -> bool:
        return tunnel_is_unwanted(facts, self.parts)

    async def _reload_by_signal(self) -> None:
        """SIGHUP: the log may have been moved away, and the settings may be new."""
        try:
            self._reopen_audit()
        except OSError as error:
            self._record(Reloaded(f"cannot open the audit log: {error.strerror}", 0))
        try:
            await self.reload()
        except ReloadRefused:
            pass  # recorded already; the old settings stay
        except Exception as error:
            # An outermost loop: a fault of ours in reading settings must not end the service.
            self._record(fault_event("reload", error))

    def _sweep(self) -> None:
        """Once in a while: grants that have run out take their tunnels with them."""
        ended = {grant.id: grant for grant in self.parts.grants.drop_ended()}
        if ended:
            closed = self.parts.tunnels.close_grants(ended, EndCause.GRANT_ENDED)
            self._ended_grants.tell(ended.values(), "ended", closed)
        self._drop_used_up()
        self._pool.close_idle(IDLE_S)

    def _drop_used_up(self) -> None:
        """A grant without uses stays for a while after its last tunnel: a dial may give its use back."""
        now, resting, listed = (
            self.parts.clock(),
            self.parts.tunnels.grants_in_use(),
            self.parts.grants.snapshot(),
        )
        idle = {g.id for g in listed.by_id.values() if g.uses_left == 0 and g.id not in resting}
        self._used_up_since = {one: self._used_up_since.get(one, now) for one in idle}
        over = [one for one, since in self._used_up_since.items() if now - since > USED_UP_SHOWN_S]
        if over:
            self.parts.grants.drop(over)
            self._ended_grants.tell([listed.by_id[one] for one in over], "used up")

    def _record(self, event: Event) -> bool:
        """Nothing here can be refused: whether it was written down."""
        try:
            self.parts.audit(event)
        except AuditUnavailable:
            return False
        return True


def _read_beside_the_loop(load: Callable[[], PolicyParts]) -> PolicyParts:
    """In a thread. To look for cycles among a hundred thousand new entries would stop the loop for half a
    second: there are none, so the collector rests, and leaves them out later if they are many."""
    gc.disable()
    try:
        fresh = load()
        if sum(1 for _ in itertools.islice(fresh.policy.allow, LONG_LIST)) == LONG_LIST:
            gc.freeze()
        return fresh
    finally:
        gc.enable()


def _let_go(policies: list[Policy]) -> None:
    """In a thread, a few entries at a time: a hundred thousand at once would hold up the loop as well."""
    pairs = [pair for policy in policies for index in (policy.allow, policy.deny) for pair in index]
    policies.clear()
    while pairs:
        del pairs[-1000:]
