"""The control port: one request from end to end, in `ControlServer._answer`. On loopback only.

No call is answered here and nothing is decided but the order of the checks. Next: auth.py (who may call),
routes.py (what is answered), deps.py (what start-up passes in), connection.py (one connection).
"""

import asyncio
import contextlib
import itertools
from ipaddress import IPv4Address

from aiohttp import web

from control_api.answers import Refusal, refusal_answer, shown
from control_api.auth import Backoff, Judged, Passed, TokenCheck, judge_content_type, judge_page
from control_api.connection import Connection, TurnedAway, fault_place, peer_text
from control_api.deps import ControlDeps
from control_api.routes import Admission, Outcome, Route, Routes
from egress_proxy.core.events import ControlRefused, Faulted
from egress_proxy.core.host import Target
from egress_proxy.core.seams import AuditUnavailable

# IPv4 alone: clients name 127.0.0.1, and a second listener on ::1 could be another program's port.
BIND_ADDRESS = IPv4Address("127.0.0.1")
# A thousand calls at once are a busy agent host; more is a leak or an attack.
CONNECTION_LIMIT = 1024
# asyncio accepts so many in one go, before it reads from any: fewer than there are places, so that a caller
# has shown its token before others can have pushed it out.
ACCEPT_BATCH = 128
# Two waits of this length lie in aiohttp's shutdown: for calls to finish, then for them to be given up.
_GRACE_S = 0.15
_PATH_LIMIT = 200
_METHOD_LIMIT = 20

_FULL = Refusal(503, "too-many-connections", "close some, or try again in a moment", (("Retry-After", "1"),))
_UNRECORDED = Refusal(503, "audit-unavailable", "the audit log cannot be written, so nothing is granted")
_BAD_HTTP = Refusal(400, "bad-request", "this port speaks HTTP/1.1: send a well-formed request")


class ControlServer:
    """`start` once; `stop` then, or when that failed."""

    def __init__(self, deps: ControlDeps) -> None:
        self._deps = deps
        self._fault_numbers = itertools.count(1)
        self._listener: asyncio.Server | None = None
        self._open: dict[Connection, None] = {}  # in the order of their coming

    async def start(self, port: int) -> int:
        """Accept calls; the port, which is an ephemeral one for 0. Raises OSError when it is taken."""
        loop = asyncio.get_running_loop()
        self._token = TokenCheck(self._deps.is_token, Backoff(loop.time))
        self._web = web.Server(self._answer)
        listener = await loop.create_server(
            self._accept, str(BIND_ADDRESS), port, backlog=ACCEPT_BATCH, start_serving=False
        )
        bound: int = listener.sockets[0].getsockname()[1]
        self._routes = Routes(self._deps, Target(BIND_ADDRESS, bound))
        self._listener = listener
        await listener.start_serving()
        return bound

    async def stop(self) -> None:
        """Accept nothing more, let calls finish for a moment, then cut them off. Under half a second."""
        if self._listener is None:
            return
        self._listener.close()
        self._web.pre_shutdown()  # idle connections end at once
        await self._web.shutdown(_GRACE_S)

    def _accept(self) -> asyncio.Protocol:
        if len(self._open) >= CONNECTION_LIMIT and not self._make_way():
            return TurnedAway(lambda peer: self._refused(_FULL, peer, "", ""))
        connection = Connection(self._web, self._failed, self._faulted, self._forget)
        self._open[connection] = None
        return connection

    def _make_way(self) -> bool:
        """Who came first and has shown no token goes: silent callers must not shut out one who revokes."""
        stranger = next((one for one in self._open if not one.has_token), None)
        if stranger is not None:
            self._forget(stranger)
            stranger.force_close()
        return stranger is not None

    def _forget(self, connection: Connection) -> None:
        self._open.pop(connection, None)

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        """Host and Origin, type of the body, token, path, method, and only then the call itself."""
        try:
            outcome = await self._judge_and_call(request)
        except AuditUnavailable:
            outcome = _UNRECORDED
        return self._refuse(request, outcome) if isinstance(outcome, Refusal) else outcome

    async def _judge_and_call(self, request: web.BaseRequest) -> Outcome:
        route = self._routes.find(request.raw_path.partition("?")[0])
        judged = await self._judge(request, route)
        if judged is not Passed.PASSED:
            return judged
        call = route.call_for(request.method)
        return call if isinstance(call, Refusal) else await call(request, route.part)

    async def _judge(self, request: web.BaseRequest, route: Route) -> Judged:
        for judged in (judge_page(request), judge_content_type(request)):
            if judged is not Passed.PASSED:
                return judged
        if route.admission is Admission.OPEN:
            return Passed.PASSED
        return await self._token.judge(request, lambda: _keep_place(request))

    def _refuse(self, request: web.BaseRequest, refusal: Refusal) -> web.Response:
        # The query stays out: it is where a misled client would put the token.
        path = request.raw_path.partition("?")[0]
        return self._refused(refusal, peer_text(request.transport), request.method, path)

    def _refused(self, refusal: Refusal, peer: str, method: str, path: str) -> web.Response:
        event = ControlRefused(peer, shown(method, _METHOD_LIMIT), shown(path, _PATH_LIMIT), refusal.status)
        with contextlib.suppress(AuditUnavailable):  # refusing is safe, recorded or not
            self._deps.audit(event)
        return refusal_answer(refusal)

    def _failed(self, request: web.BaseRequest, status: int, error: BaseException | None) -> web.Response:
        """aiohttp could not read a request (400), or a call of ours raised (anything else)."""
        if status == _BAD_HTTP.status:
            return self._refused(_BAD_HTTP, peer_text(request.transport), "", "")
        detail = f"this is a fault of the proxy; its log has more under {self._faulted(error)}"
        return refusal_answer(Refusal(500, "internal-error", detail))

    def _faulted(self, error: BaseException | None) -> str:
        """Record it; the number under which it is found."""
        number = f"control-{next(self._fault_numbers)}"
        kind = "TimeoutError" if error is None else type(error).__name__  # aiohttp drops that one
        with contextlib.suppress(AuditUnavailable):
            self._deps.audit(Faulted(number, kind, fault_place(error)))
        return number


def _keep_place(request: web.BaseRequest) -> None:
    if isinstance(request.protocol, Connection):
        request.protocol.has_token = True
