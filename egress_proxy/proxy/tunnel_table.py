"""All open tunnels: opens and counts them, ends those that are idle, revoked or no longer allowed.

One coarse timer for all; a byte costs it nothing. Decisions are core's. Next: tunnel.py, readiness.py.
"""

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Protocol

from egress_proxy.core.access import Door
from egress_proxy.core.decision import Deny, Reason
from egress_proxy.core.events import EndCause, Ended, Event, Noticed
from egress_proxy.core.seams import Audit, AuditUnavailable, GrantStore, TunnelCount
from egress_proxy.core.sni_policy import FlightVerdict, Hello, OtherFlight, SniPolicy, judge_first_flight
from egress_proxy.proxy.faults import fault_event
from egress_proxy.proxy.pipes import PipePool
from egress_proxy.proxy.places import Places
from egress_proxy.proxy.relay import Flow, Meter
from egress_proxy.proxy.tunnel import Tunnel, TunnelFacts

# How often the table is looked through at most: the bound on how late a grant's end closes its tunnels.
SWEEP_S = 1.0
# A tunnel that moved nothing for so long is idle when the service stops, and need not be waited for.
QUIET_S = 0.25
HTTPS_PORT = 443
# Judged again in one go after a reload: some milliseconds.
SLICE = 256


@dataclass(frozen=True, slots=True)
class TunnelLimits:
    """``per_client``: for clients with a token of their own, and for sandboxes; others share ``in_all``."""

    in_all: int
    per_client: int
    idle_s: float
    half_close_s: float
    hello_s: float


class Readiness(Protocol):
    """Calls `Tunnel.advance` when a flow can move."""

    def start(self, tunnel: Tunnel, spoke: tuple[bool, bool] = (False, False)) -> None: ...

    def forget(self, tunnel: Tunnel) -> None: ...


class TunnelTable:
    """Implements the Tunnels seam. `start` begins the sweeps, `close_all` ends everything."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        readiness: Readiness,
        limits: TunnelLimits,
        audit: Audit,
        grants: GrantStore,
        pipes: PipePool | None = None,
    ) -> None:
        self._loop = loop
        self._readiness = readiness
        self._limits = limits
        self._audit = audit
        self._grants = grants
        self._pipes = pipes
        self._open: set[Tunnel] = set()
        self.places = Places(limits.in_all, limits.per_client)
        self._unwritten: list[Event] = []
        self._timer: asyncio.TimerHandle | None = None
        self.on_sweep: Callable[[], None] = lambda: None  # what else is due now and then

    def start(self) -> None:
        shortest = min(self._limits.idle_s, self._limits.half_close_s, self._limits.hello_s)
        self._timer = self._loop.call_later(min(SWEEP_S, shortest / 4), self._sweep)

    def count(self) -> TunnelCount:
        return TunnelCount(len(self._open), self._limits.in_all)

    def open(
        self,
        facts: TunnelFacts,
        client: socket.socket,
        upstream: socket.socket,
        early: bytes,
        sni: SniPolicy,
        spoke: tuple[bool, bool] = (False, False),
    ) -> None:
        """Take both sockets over. ``early``: bytes that came with the request head. ``spoke``: Readiness."""
        out = Flow(client, upstream, self._meter(facts), self._pipes)
        back = Flow(upstream, client, pipes=self._pipes)
        if sni.check and facts.target.port == HTTPS_PORT:
            out.hold_until_judged(lambda flight: self._judge(facts, flight, sni))
        tunnel = Tunnel(facts, out, back, self._ended)
        self._open.add(tunnel)
        self.places.occupy(facts.client)
        try:
            if tunnel.offer(early):
                self._readiness.start(tunnel, spoke)
        except BaseException:
            tunnel.end(EndCause.FAULT)
            raise

    def _meter(self, facts: TunnelFacts) -> Meter | None:
        grant = self._grants.snapshot().by_id.get(facts.allow.grant_id or "")
        if grant is None or grant.bytes_left is None:
            return None
        return lambda count: self._grants.spend_bytes(grant.id, count)

    def _judge(self, facts: TunnelFacts, flight: Hello | OtherFlight, sni: SniPolicy) -> FlightVerdict | Deny:
        verdict = judge_first_flight(facts.target, flight, sni)
        if verdict in (FlightVerdict.UNNAMED, FlightVerdict.NOT_TLS):
            self._record(Noticed(facts.request_id, facts.client, facts.target, f"first_flight_{verdict}"))
        return verdict

    def _ended(self, tunnel: Tunnel, cause: EndCause, deny: Deny | None) -> None:
        self._readiness.forget(tunnel)
        self._open.discard(tunnel)
        facts = tunnel.facts
        self.places.leave(facts.client)
        if tunnel.fault is not None:
            self._record(fault_event(facts.request_id, tunnel.fault))
        self._record(
            Ended(
                request_id=facts.request_id,
                client=facts.client,
                target=facts.target,
                door=Door.TUNNEL,
                cause=cause,
                bytes_out=tunnel.out.carried,
                bytes_in=tunnel.back.carried,
                duration_s=round(self._loop.time() - facts.started_at, 3),
                reason=deny.reason if deny else None,
                detail=deny.detail if deny else "",
            )
        )

    def _record(self, event: Event) -> None:
        """Write it down with all else that ends in this turn of the loop, in one go."""
        if not self._unwritten:
            self._loop.call_soon(self._write_down)
        self._unwritten.append(event)

    def _write_down(self) -> None:
        events, self._unwritten = self._unwritten, []
        # The sink has said so itself; what is over cannot be refused any more.
        with contextlib.suppress(AuditUnavailable):
            self._audit(*events)

    def grants_in_use(self) -> frozenset[str]:
        """The grants that open tunnels rest on."""
        return frozenset(
            one.facts.allow.grant_id for one in self._open if one.facts.allow.grant_id is not None
        )

    def close_grant(self, grant_id: str, cause: EndCause) -> int:
        return self.close_grants((grant_id,), cause)[grant_id]

    def close_grants(self, grant_ids: Collection[str], cause: EndCause) -> Counter[str]:
        """The same for many at once; how many tunnels rested on each."""
        resting: Counter[str] = Counter()
        for tunnel in list(self._open):
            grant_id = tunnel.facts.allow.grant_id
            if grant_id is not None and grant_id in grant_ids:
                resting[grant_id] += 1
                tunnel.end(cause)
        return resting

    def in_slices(self) -> Iterator[list[Tunnel]]:
        """All that are open now, a few at a time."""
        tunnels = list(self._open)
        for begin in range(0, len(tunnels), SLICE):
            yield tunnels[begin : begin + SLICE]

    def close_where(
        self,
        unwanted: Callable[[TunnelFacts], bool],
        cause: EndCause,
        among: Collection[Tunnel] | None = None,
    ) -> int:
        """End the tunnels whose facts say so; how many there were. ``among``: all that are open, or these."""
        tunnels = self._open if among is None else among
        chosen = [tunnel for tunnel in tunnels if not tunnel.is_over and unwanted(tunnel.facts)]
        for tunnel in chosen:
            tunnel.end(cause)
        return len(chosen)

    def close_quiet(self) -> int:
        """End the tunnels that move nothing just now; how many are left. For draining."""
        now = self._loop.time()
        for tunnel in list(self._open):
            self._note_movement(tunnel, now)
            if now - tunnel.moved_at >= QUIET_S and not tunnel.awaits_its_reader:
                tunnel.end(EndCause.DRAINED)
        return len(self._open)

    def close_all(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for tunnel in list(self._open):
            tunnel.end(EndCause.DRAINED)
        if self._pipes is not None:
            self._pipes.close()
        self._write_down()

    def _sweep(self) -> None:
        self.start()  # first: a fault below must not make this the last sweep
        self.on_sweep()
        now = self._loop.time()
        for tunnel in list(self._open):
            self._note_movement(tunnel, now)
            cause = self._overdue(tunnel, now) or tunnel.unseen_reset()
            if cause is not None:
                tunnel.end(cause, _unfinished_hello(tunnel) if cause is EndCause.SNI_REFUSED else None)

    def _note_movement(self, tunnel: Tunnel, now: float) -> None:
        carried = tunnel.out.carried + tunnel.back.carried
        if carried != tunnel.seen_bytes:
            tunnel.seen_bytes = carried
            tunnel.moved_at = now

    def _overdue(self, tunnel: Tunnel, now: float) -> EndCause | None:
        quiet_s = now - tunnel.moved_at
        if quiet_s > self._limits.idle_s:
            return EndCause.IDLE
        if tunnel.is_half_closed and quiet_s > self._limits.half_close_s:
            return EndCause.HALF_CLOSED
        if tunnel.out.is_holding() and quiet_s > self._limits.hello_s:
            return EndCause.SNI_REFUSED
        return None


def _unfinished_hello(tunnel: Tunnel) -> Deny:
    return Deny(Reason.SNI_MISMATCH, tunnel.facts.target, detail="the ClientHello did not end in time")
