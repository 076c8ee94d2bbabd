"""An upstream's answer on its way to the client, in bytes: read, watched for the secret, framed anew.

No I/O and no clock. Next: http1.py (reads), reflection.py (watches), client_side.py (frames), exchange.py
(moves the bytes).
"""

from itertools import chain

from egress_proxy.core.decision import Reason
from egress_proxy.proxy.client_side import ClientSide
from egress_proxy.proxy.http1 import BODILESS, AnswerEnd, AnswerHead, Header, NotHttp, UpstreamSide
from egress_proxy.proxy.reflection import BodyGuard, GzipInspector, body_guard
from egress_proxy.proxy.secret_search import Forms

_CODINGS_SHOWN = 100
# Kept small: at deflate's highest ratio it is 16 MiB of text, inspected in many turns while it is held.
_GZIP_READ_BYTES = 16_384
# An upstream that goes on and on with interim answers never gives one.
_INTERIM_LIMIT = 64


class UpstreamLost(Exception):
    """The upstream broke off, or spoke nonsense; ``reason`` is what a client that has no answer yet gets."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class Answering:
    """The answer to one request. ``body_bytes`` as sent on, without framing."""

    __slots__ = (
        *("_forms", "_guard", "_http", "_interim_left", "_is_head", "_opaque", "_side"),
        *("body_bytes", "is_over", "status"),
    )

    def __init__(
        self, http: UpstreamSide, side: ClientSide, forms: Forms, *, is_head: bool, opaque_bodies: bool
    ) -> None:
        self._http = http
        self._side = side
        self._forms = forms
        self._is_head = is_head
        self._opaque = opaque_bodies
        self._guard: BodyGuard | None = None
        self._interim_left = _INTERIM_LIMIT
        self.status: int | None = None
        self.body_bytes = 0
        self.is_over = False

    def take_in(self, data: bytes) -> bytes:
        """What the client gets for the upstream's bytes (empty: its end).

        Raises UpstreamLost, NotHttp, ReflectionFound, BodyNotInspectable; then it gets nothing.
        """
        self._http.feed(data)
        return self.go_on()

    def go_on(self) -> bytes:
        """The same for what was taken in before, as much as one turn may look at. Raises the same."""
        ready: list[bytes] = []
        if self.is_behind and self._guard is not None:
            self._guard.go_on()
        while not self.is_over and not self.is_behind:
            part = self._http.answer()
            match part:
                case None:
                    break
                case bytes():
                    self._take_part(part)
                case AnswerEnd():
                    ready.append(self._finish(part))
                case AnswerHead() if part.status < 200:
                    ready.append(self._interim(part))
                case AnswerHead():
                    ready.append(self._begin(part))
        if not self.is_over and self._guard is not None:
            ready.append(self._framed(self._guard.release()))
        return b"".join(ready)

    def let_go(self) -> bytes:
        """What waited for more, once its time is up. Raises the same."""
        return b"" if self._guard is None else self._framed(self._guard.flush())

    @property
    def is_behind(self) -> bool:
        """Whether `go_on` is owed before anything else is taken in."""
        return self._guard is not None and self._guard.is_behind

    @property
    def holds(self) -> bool:
        """Whether something waits that `let_go` is to send on."""
        return self._guard is not None and self._guard.holds and not self.is_over

    @property
    def read_limit_bytes(self) -> int | None:
        """How much of the upstream's bytes may be taken in at once, where that is less than usual."""
        return _GZIP_READ_BYTES if isinstance(self._guard, GzipInspector) else None

    def _interim(self, head: AnswerHead) -> bytes:
        self._interim_left -= 1
        if self._interim_left < 0:
            raise NotHttp("there is no end to the interim answers")
        return self._side.interim(self._masked(head))

    def _begin(self, head: AnswerHead) -> bytes:
        has_no_body = self._is_head or head.status in BODILESS
        codings = None if has_no_body else head.value(b"content-encoding")
        self._guard = body_guard(codings, self._forms, self._opaque)
        if self._guard is None:
            shown = ascii(self._forms.mask(codings).decode("latin-1"))[:_CODINGS_SHOWN] if codings else ""
            raise UpstreamLost(Reason.BODY_NOT_INSPECTABLE, f"its Content-Encoding is {shown}")
        self.status = head.status
        return self._side.start(self._masked(head))

    def _take_part(self, data: bytes) -> None:
        if self._guard is not None:
            self._guard.take(data)

    def _finish(self, end: AnswerEnd) -> bytes:
        self.is_over = True
        rest = b"" if self._guard is None else self._framed(self._guard.flush())
        return rest + self._side.end(self._masked_headers(end.trailers))

    def _framed(self, data: bytes) -> bytes:
        self.body_bytes += len(data)
        return self._side.part(data) if data else b""

    def _masked(self, head: AnswerHead) -> AnswerHead:
        return AnswerHead(head.status, self._forms.mask(head.reason), self._masked_headers(head.headers))

    def _masked_headers(self, headers: tuple[Header, ...]) -> tuple[Header, ...]:
        if not headers or not self._forms.found_in(b"\n".join(chain.from_iterable(headers))):
            return headers  # most of the time: one search instead of two for each header
        # A star may stand in a name as well (RFC 9110 5.6.2), but in no length.
        framing, mask = b"content-length", self._forms.mask
        return tuple((n, v) if n.lower() == framing else (mask(n), mask(v)) for n, v in headers)
