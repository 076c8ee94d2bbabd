"""From an allowed target to a connected socket: look up, judge every address, dial the judged ones.

The one road outside, for tunnels and injected requests alike. A refusal comes back as a value. Next:
name_cache.py (looks up), core/dial_policy.py (judges), dialer.py (dials).
"""

import asyncio
import socket
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from egress_proxy.core.address import Address
from egress_proxy.core.decision import Allow, Deny, OptIn, Reason
from egress_proxy.core.dial_policy import judge_addresses
from egress_proxy.core.host import Name, Target
from egress_proxy.core.rule_index import RuleIndex
from egress_proxy.core.seams import Answer, Resolve
from egress_proxy.proxy.dialer import DialFailed, dial
from egress_proxy.proxy.name_cache import NoSuchName, ResolverTimeout
from egress_proxy.proxy.socket_options import TCP_KEEPALIVE_S


@dataclass(frozen=True, slots=True)
class Outbound:
    """``timeout_s`` bounds look-up and dial together; ``own_listeners`` are never dialled.

    ``keepalive_s``: how long a connection, and one of a client's, is quiet before it is probed.
    ``completions``: the whole names that a short one may stand for, in the order to ask for them.
    """

    resolve: Resolve
    own_listeners: Callable[[], Collection[Target]]
    timeout_s: float
    cached: Callable[[Name], Answer | None] = lambda _: None
    denied: Callable[[], RuleIndex[str]] = RuleIndex
    keepalive_s: int = TCP_KEEPALIVE_S
    completions: Callable[[Name], tuple[Name, ...]] = lambda name: (name,)

    def ready(self, allow: Allow) -> tuple[Address, ...] | Deny | None:
        """The judged addresses where no lookup has to be waited for; None where one has."""
        host = allow.target.host
        if not isinstance(host, Name):
            return self.judge(allow, Answer((host,)))
        if _is_short(host, allow) and self.completions(host)[0] != host:
            return None
        answer = self.cached(host)
        return None if answer is None else self.judge(allow, answer)

    async def connect(self, allow: Allow) -> tuple[socket.socket, Address, Allow] | Deny:
        """A connected non-blocking socket, the address it went to and ``allow`` with the name that was asked
        for, or why there is none."""
        try:
            async with asyncio.timeout(self.timeout_s):
                return await self._connect(allow)
        except (TimeoutError, ResolverTimeout):
            return Deny(Reason.UPSTREAM_TIMEOUT, allow.target, allow.rule)
        except NoSuchName as error:
            return Deny(Reason.NO_SUCH_NAME, allow.target, allow.rule, str(error))
        except DialFailed as error:
            return Deny(Reason.UPSTREAM_REFUSED, allow.target, allow.rule, str(error))

    async def _connect(self, allow: Allow) -> tuple[socket.socket, Address, Allow] | Deny:
        host = allow.target.host
        answer = await self._look_up(host, allow) if isinstance(host, Name) else Answer((host,))
        judged = self.judge(allow, answer)
        if isinstance(judged, Deny):
            return judged
        sock, address = await dial(judged, allow.target.port, self.keepalive_s)
        return sock, address, replace(allow, completed=answer.completed) if answer.completed else allow

    async def _look_up(self, host: Name, allow: Allow) -> Answer:
        """A server that does not answer ends the search: who can silence one must not choose the name."""
        names = self.completions(host) if _is_short(host, allow) else (host,)
        for name in names[:-1]:
            try:
                return _answer_for(host, name, await self.resolve(name))
            except NoSuchName:
                continue
        return _answer_for(host, names[-1], await self.resolve(names[-1]))

    def judge(self, allow: Allow, answer: Answer) -> tuple[Address, ...] | Deny:
        own, denied = self.own_listeners(), self.denied()
        return judge_addresses(allow, answer.addresses, answer.chain, own, denied, answer.completed)


def _is_short(host: Name, allow: Allow) -> bool:
    """Whether the machine's search list is for this name: of public names only those of one label."""
    return allow.opt_in is OptIn.INWARD or "." not in host.text


def _answer_for(host: Name, asked: Name, answer: Answer) -> Answer:
    return answer if asked == host else replace(answer, completed=asked)
