"""Connections to the upstreams of inject rules: verified TLS, kept alive, handed out only while alive.

A connection carries the requests of one rule only. No request is sent here. Next: outbound.py (opens them),
forward.py (uses them).
"""

import asyncio
import math
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field

from egress_proxy.core.access import InjectRoute, Scheme
from egress_proxy.core.address import Address
from egress_proxy.core.decision import Allow, Deny, Reason
from egress_proxy.core.host import Name, Target
from egress_proxy.core.seams import Answer
from egress_proxy.proxy.http1 import UpstreamSide
from egress_proxy.proxy.outbound import Outbound
from egress_proxy.proxy.stream import SocketStream, Stream, StreamReset, StreamTruncated
from egress_proxy.proxy.tls import TlsFailed, TlsStream

# Servers close idle connections after 60 to 75 s as a rule; ours go first.
IDLE_S = 50.0
IDLE_PER_ROUTE = 32
# How often a session is asked for where the upstream resumes none: Python loses a copy of it each time
# (CPython issue 116810), some kilobytes.
SESSION_S = 600.0


@dataclass(slots=True)
class Upstream:
    """One connection. ``is_fresh``: it has carried no request yet. ``completed``: as in `Allow`."""

    stream: Stream
    address: Address
    completed: Name | None = None
    http: UpstreamSide = field(default_factory=UpstreamSide)
    is_fresh: bool = True
    idle_since: float = 0.0


class Lane:
    """The connections of one inject rule to its upstream; ``session`` is what the next handshake resumes."""

    def __init__(self, route: InjectRoute, pool: "UpstreamPool") -> None:
        self.route = route
        self._pool = pool
        self._idle: list[Upstream] = []
        self.session: ssl.SSLSession | None = None
        self._session_due_at = -math.inf

    async def acquire(self, allow: Allow, *, fresh: bool = False) -> Upstream | Deny:
        """A connection for one request, kept or new; ``fresh`` asks for a new one."""
        kept = None if fresh else self.take_kept(allow)
        return kept or await self._pool.open(self, allow)

    def take_kept(self, allow: Allow) -> Upstream | None:
        """A kept connection that is alive and still allowed; None when there is none."""
        while self._idle:
            upstream = self._idle.pop()  # the youngest is the likeliest to be alive
            if self._pool.is_usable(upstream, allow):
                return upstream
            upstream.stream.close()
        return None

    def put_back(self, upstream: Upstream) -> None:
        """Undo `take_kept`: nothing was sent on it."""
        self._idle.append(upstream)

    def release(self, upstream: Upstream) -> None:
        """Give a connection back after a complete exchange."""
        if upstream.is_fresh and isinstance(upstream.stream, TlsStream):
            self._keep_session(upstream.stream)
        if len(self._idle) >= IDLE_PER_ROUTE or not upstream.http.is_reusable():
            upstream.stream.close()
            return
        upstream.is_fresh = False
        upstream.idle_since = self._pool.clock()
        self._idle.append(upstream)

    def _keep_session(self, stream: TlsStream) -> None:
        """With a session the next handshake costs a third."""
        now = self._pool.clock()
        if not stream.is_resumed() and now >= self._session_due_at:
            self.session, self._session_due_at = stream.session(), now + SESSION_S

    def close_idle(self, since: float) -> None:
        """Close connections that have been idle since then, or have been closed by the upstream."""
        idle, self._idle = self._idle, []
        for one in idle:
            if one.idle_since > since and one.stream.is_quiet():
                self._idle.append(one)
            else:
                one.stream.close()


# A reload can give a rule's name to another upstream, which must not get this one's connections.
_Destination = tuple[str, Target, Scheme]


class UpstreamPool:
    """``make_context`` builds the TLS context once, on the first use: it reads all system roots."""

    def __init__(
        self, outbound: Outbound, make_context: Callable[[], ssl.SSLContext], clock: Callable[[], float]
    ) -> None:
        self.clock = clock
        self._outbound = outbound
        self._make_context = make_context
        self._context: ssl.SSLContext | None = None
        self._lanes: dict[_Destination, Lane] = {}

    def lane(self, route: InjectRoute) -> Lane:
        """To be looked up once for a rule: that costs more than what is asked of it."""
        destination = route.name, route.upstream, route.scheme
        return self._lanes.setdefault(destination, Lane(route, self))

    def close_idle(self, older_than_s: float = 0.0) -> None:
        """Close connections that have been idle for so long, or have been closed by the upstream."""
        since = self.clock() - older_than_s
        for lane in self._lanes.values():
            lane.close_idle(since)

    def is_usable(self, upstream: Upstream, allow: Allow) -> bool:
        """Whether a kept connection is alive, not too old, and leads where it still may."""
        in_time = self.clock() - upstream.idle_since < IDLE_S
        judged = self._outbound.judge(allow, Answer((upstream.address,), completed=upstream.completed))
        return in_time and not isinstance(judged, Deny) and upstream.stream.is_quiet()

    async def open(self, lane: Lane, allow: Allow) -> Upstream | Deny:
        """A new connection."""
        started = self.clock()
        connected = await self._outbound.connect(allow)
        if isinstance(connected, Deny):
            return connected
        sock, address, dialled = connected
        plain = SocketStream(asyncio.get_running_loop(), sock)
        if lane.route.scheme is Scheme.HTTP:
            return Upstream(plain, address, dialled.completed)
        left_s = self._outbound.timeout_s - (self.clock() - started)
        secured = await self._secure(plain, lane, allow, left_s)
        return secured if isinstance(secured, Deny) else Upstream(secured, address, dialled.completed)

    async def _secure(
        self, plain: SocketStream, lane: Lane, allow: Allow, timeout_s: float
    ) -> TlsStream | Deny:
        if self._context is None:
            self._context = self._make_context()
        reason, detail = Reason.UPSTREAM_TLS, "the upstream broke off the handshake"
        try:
            async with asyncio.timeout(timeout_s):
                name = str(lane.route.host)
                return await TlsStream.connect(plain, self._context, name, lane.session)
        except TimeoutError:
            reason, detail = Reason.UPSTREAM_TIMEOUT, "the TLS handshake took too long"
        except TlsFailed as error:
            detail = str(error)
        except (StreamReset, StreamTruncated):
            pass
        except BaseException:
            plain.close()
            raise
        plain.close()
        return Deny(reason, allow.target, allow.rule, detail)
