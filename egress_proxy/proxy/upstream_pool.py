"""Connections to the upstreams of inject rules: verified TLS, kept alive, handed out only while alive.

A connection carries the requests of one rule only. Nothing is sent here. Next: outbound.py (opens them),
forward.py (uses them).
"""

import asyncio
import ssl
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from egress_proxy.core.access import InjectRoute, Scheme
from egress_proxy.core.address import Address
from egress_proxy.core.decision import Allow, Deny, Reason
from egress_proxy.core.host import Target
from egress_proxy.core.seams import Answer
from egress_proxy.proxy.http1 import UpstreamSide
from egress_proxy.proxy.outbound import Outbound
from egress_proxy.proxy.stream import SocketStream, Stream, StreamReset, StreamTruncated
from egress_proxy.proxy.tls import TlsFailed, TlsStream

# Servers close idle connections after 60 to 75 s as a rule; ours go first.
IDLE_S = 50.0
IDLE_PER_ROUTE = 32

# A reload can give a rule's name to another upstream, which must not get this one's connections.
_Destination = tuple[str, Target, Scheme]


@dataclass(slots=True)
class Upstream:
    """One connection. ``is_fresh``: it has carried no request yet."""

    stream: Stream
    address: Address
    http: UpstreamSide = field(default_factory=UpstreamSide)
    is_fresh: bool = True
    idle_since: float = 0.0


class UpstreamPool:
    """``make_context`` builds the TLS context once, on the first use: it reads all system roots."""

    def __init__(
        self, outbound: Outbound, make_context: Callable[[], ssl.SSLContext], clock: Callable[[], float]
    ) -> None:
        self._outbound = outbound
        self._make_context = make_context
        self._context: ssl.SSLContext | None = None
        self._clock = clock
        self._sessions: dict[_Destination, ssl.SSLSession] = {}
        self._idle: defaultdict[_Destination, list[Upstream]] = defaultdict(list)

    async def acquire(self, route: InjectRoute, allow: Allow, *, fresh: bool = False) -> Upstream | Deny:
        """A connection for one request, kept or new; ``fresh`` asks for a new one."""
        kept = None if fresh else self._kept(route, allow)
        return kept or await self._open(route, allow)

    def release(self, route: InjectRoute, upstream: Upstream) -> None:
        """Give a connection back after a complete exchange."""
        destination = _destination(route)
        if upstream.is_fresh and isinstance(upstream.stream, TlsStream):
            session = upstream.stream.session()
            if session is not None:
                self._sessions[destination] = session  # the next handshake costs a third
        idle = self._idle[destination]
        if len(idle) >= IDLE_PER_ROUTE or not upstream.http.is_reusable():
            upstream.stream.close()
            return
        upstream.is_fresh = False
        upstream.idle_since = self._clock()
        idle.append(upstream)

    def close_idle(self, older_than_s: float = 0.0) -> None:
        """Close connections that have been idle for so long, or have been closed by the upstream."""
        limit = self._clock() - older_than_s
        for destination, idle in list(self._idle.items()):
            kept = [one for one in idle if one.idle_since > limit and one.stream.is_quiet()]
            for one in idle:
                if one not in kept:
                    one.stream.close()
            self._idle[destination] = kept

    def _kept(self, route: InjectRoute, allow: Allow) -> Upstream | None:
        idle = self._idle[_destination(route)]
        while idle:
            upstream = idle.pop()  # the youngest is the likeliest to be alive
            in_time = self._clock() - upstream.idle_since < IDLE_S
            judged = self._outbound.judge(allow, Answer((upstream.address,)))
            if in_time and not isinstance(judged, Deny) and upstream.stream.is_quiet():
                return upstream
            upstream.stream.close()
        return None

    async def _open(self, route: InjectRoute, allow: Allow) -> Upstream | Deny:
        started = self._clock()
        connected = await self._outbound.connect(allow)
        if isinstance(connected, Deny):
            return connected
        sock, address = connected
        plain = SocketStream(asyncio.get_running_loop(), sock)
        if route.scheme is Scheme.HTTP:
            return Upstream(plain, address)
        left_s = self._outbound.timeout_s - (self._clock() - started)
        secured = await self._secure(plain, route, allow, left_s)
        return secured if isinstance(secured, Deny) else Upstream(secured, address)

    async def _secure(
        self, plain: SocketStream, route: InjectRoute, allow: Allow, timeout_s: float
    ) -> TlsStream | Deny:
        if self._context is None:
            self._context = self._make_context()
        reason, detail = Reason.UPSTREAM_TLS, "the upstream broke off the handshake"
        try:
            async with asyncio.timeout(timeout_s):
                session = self._sessions.get(_destination(route))
                return await TlsStream.connect(plain, self._context, str(route.host), session)
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


def _destination(route: InjectRoute) -> _Destination:
    return route.name, route.upstream, route.scheme
