"""Who may call: Host, Origin, type of the body, and last the token, with back-off after wrong ones.

Nothing here knows what is called. The numbers of the back-off stand beside the constants, with what they mean
for a guesser and for the owner. Next: server.py (the caller), answers.py (how a refusal is worded).
"""

import asyncio
import enum
from collections.abc import Callable, Sequence

from aiohttp import web

from control_api.answers import Refusal
from egress_proxy.core.host import Host, HostError, Name, Target, parse_authority, parse_host

HTTP_PORT = 80

# After n wrong tokens in a row every Bearer call, right or wrong, waits FIRST_WAIT_S * 2**(n-1): 0.05 s after
# one, never more than 1.6 s. Without a wrong one a step is forgotten every 2 s, so after 12 s at most calls
# are answered at once again. The right token is late, but always served: a guesser cannot lock the owner out,
# and one count for all costs no memory per guesser. A guesser gets one answer per connection and 1.6 s: that
# slows guessing down and does not make a short token good.
FIRST_WAIT_S = 0.05
MOST_STEPS = 6
FORGET_STEP_S = 2.0
# How soon a wait ends whose caller has hung up: such calls must not pile up, and must have no effect.
_LOOK_EVERY_S = 0.05

_HOST = Refusal(403, "host-not-ours", "Host must be localhost, 127.0.0.1 or [::1], with any port or none")
_ORIGIN = Refusal(403, "origin-not-ours", "web pages other than the proxy's own may not call this")
_TYPE = Refusal(415, "not-json", "a body needs Content-Type: application/json, in UTF-8 and not compressed")
_TOKEN = Refusal(
    401,
    "unauthorized",
    "send the control token as `Authorization: Bearer TOKEN`, once and spelled just so",
    (("WWW-Authenticate", 'Bearer realm="egress-control"'),),
)


class Passed(enum.Enum):
    """Nothing was found against the call. Only this value lets it on."""

    PASSED = enum.auto()


Judged = Passed | Refusal


def judge_page(request: web.BaseRequest) -> Judged:
    """Stops pages in the user's browser: by Host after DNS rebinding, by Origin when they call directly.

    The port of Host is not ours where a tunnel or a container publishes it under another one. Rebinding needs
    a name that is not loopback, and a page of another local port shows itself by its Origin.
    """
    ours = _authority(request.headers.getall("Host", []))
    if ours is None or not _is_loopback(ours.host):
        return _HOST
    origins = request.headers.getall("Origin", [])
    if not origins:
        return Passed.PASSED
    pages = [origin.removeprefix("http://") for origin in origins if origin.startswith("http://")]
    same = len(pages) == len(origins) and _authority(pages) == ours
    return Passed.PASSED if same else _ORIGIN


def _is_loopback(host: Host) -> bool:
    # Names below localhost are what a resolver says, and 0.0.0.0 is what pages of another site may call.
    return host.text == "localhost" if isinstance(host, Name) else host.is_loopback


def _authority(values: Sequence[str]) -> Target | None:
    """`host[:port]` of a header that must stand once; port 80 when none is named (RFC 9110 7.2)."""
    if len(values) != 1:
        return None
    try:
        return parse_authority(values[0])
    except HostError:
        pass
    try:
        return Target(parse_host(values[0]), HTTP_PORT)
    except HostError:
        return None


def judge_content_type(request: web.BaseRequest) -> Judged:
    """A page may send text/plain and forms without asking first, JSON never: demand it where a body is.

    Without a type it counts as JSON for whoever is no page, which its Origin tells.
    """
    headers = request.headers
    if not (request.content_length or "Transfer-Encoding" in headers):
        return Passed.PASSED
    unsaid = "" if "Origin" in headers else "application/json"
    kind, _, rest = headers.get("Content-Type", unsaid).partition(";")
    charset = rest.replace(" ", "").replace('"', "").lower()
    plain = headers.get("Content-Encoding", "identity").lower() == "identity"
    if kind.strip().lower() != "application/json" or charset not in ("", "charset=utf-8") or not plain:
        return _TYPE
    return Passed.PASSED


class Backoff:
    """How long the next call waits. ``clock`` gives seconds that never go back."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._steps = 0
        self._last_wrong = 0.0

    def note_wrong(self) -> None:
        self._steps = min(self._remembered() + 1, MOST_STEPS)
        self._last_wrong = self._clock()

    def wait_s(self) -> float:
        steps = self._remembered()
        return FIRST_WAIT_S * 2.0 ** (steps - 1) if steps else 0.0

    def _remembered(self) -> int:
        return max(0, self._steps - int((self._clock() - self._last_wrong) / FORGET_STEP_S))


class TokenCheck:
    """Asks ``is_token``, which knows the token; this class does not."""

    def __init__(self, is_token: Callable[[bytes], bool], backoff: Backoff) -> None:
        self._is_token = is_token
        self._backoff = backoff

    async def judge(self, request: web.BaseRequest, known: Callable[[], object] = lambda: None) -> Judged:
        """Passed for exactly one `Authorization: Bearer TOKEN`; `bearer` in other case is refused. ``known``
        is called before the wait: others must not take the place of a caller whose token is right.

        What is no Bearer line counts as no attempt: a page in a browser can send such calls, and must not be
        able to slow the owner down.
        """
        values = request.headers.getall("Authorization", [])
        if len(values) != 1 or not values[0].startswith("Bearer "):
            return _TOKEN
        # aiohttp keeps bytes that are no UTF-8 as lone surrogates; this gives the bytes back.
        sent = values[0].removeprefix("Bearer ").encode("utf-8", "surrogateescape")
        right = self._is_token(sent)
        if right:
            known()
        else:
            self._backoff.note_wrong()
        heard = await _stays_for(request, self._backoff.wait_s())
        return Passed.PASSED if right and heard else _TOKEN


async def _stays_for(request: web.BaseRequest, wait_s: float) -> bool:
    """Wait; whether the caller is still there at the end. Else guesses could be sent without waiting."""
    loop = asyncio.get_running_loop()
    end = loop.time() + wait_s
    # aiohttp tells of a caller that hung up by this attribute alone.
    while request.transport is not None and (left := end - loop.time()) > 0:  # noqa: ASYNC110
        await asyncio.sleep(min(left, _LOOK_EVERY_S))
    return request.transport is not None
