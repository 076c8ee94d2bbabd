"""The two halves of one exchange: the request's body goes up while the answer comes down.

An upstream may answer before the body is through, so both run at once where there is a body to wait for.
No credential is known here beyond the forms to look for. Next: forward.py (who makes exchanges), http1.py.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain

from egress_proxy.core.decision import Allow, Deny, Reason
from egress_proxy.core.events import EndCause
from egress_proxy.proxy.client_side import ClientSide
from egress_proxy.proxy.client_watch import CLIENT_LEFT_S, ClientWatch
from egress_proxy.proxy.http1 import AnswerEnd, AnswerHead, Header, NotHttp
from egress_proxy.proxy.recorder import Recording
from egress_proxy.proxy.reflection import BodyGuard, BodyNotInspectable, ReflectionFound, body_guard
from egress_proxy.proxy.secret_search import Forms
from egress_proxy.proxy.stream import SocketStream, StreamReset, StreamTruncated
from egress_proxy.proxy.upstream_pool import Upstream
from egress_proxy.vault.injection import UpstreamHead


@dataclass(frozen=True, slots=True)
class ExchangeEnd:
    """``is_answered``: the client has a complete answer. ``is_whole``: the upstream side ended well, too."""

    cause: EndCause
    is_answered: bool = False
    is_whole: bool = False
    deny: Deny | None = None


class ClientLost(Exception):
    """The client reset its connection or ended in the middle of its body."""


class UpstreamLost(Exception):
    """The upstream broke off, or spoke nonsense; ``reason`` is what a client that has no answer yet gets."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def _not_taken_in() -> UpstreamLost:
    return UpstreamLost(Reason.UPSTREAM_TIMEOUT, "the upstream does not take the request in")


_UNREADABLE_BODY = UpstreamLost(Reason.BODY_NOT_INSPECTABLE, "its body is not what its Content-Encoding says")


@dataclass(slots=True)
class Uploading:
    """Sends head and body upstream."""

    client: SocketStream
    side: ClientSide
    upstream: Upstream
    head: UpstreamHead
    recording: Recording | None
    expects_continue: bool
    idle_s: float
    sent_bytes: int = 0
    is_done: bool = False

    async def send_ready(self) -> None:
        """Send the head and as much of the body as has come already, in one write."""
        headers = self.head.headers
        if self.expects_continue:
            headers = (*headers, (b"Expect", b"100-continue"))
        first = self.upstream.http.start(self.head.method, self.head.target, headers)
        try:
            await self.upstream.stream.send(first + self._take_ready(), self.idle_s)
        except TimeoutError:
            raise _not_taken_in() from None
        except StreamReset:
            # It may have answered before it closed (413): whoever reads the answer finds out.
            self.is_done = True

    def _take_ready(self) -> bytes:
        ready = self.side.body() or b""
        self.sent_bytes += len(ready)
        if self.recording is not None:
            self.recording.feed(ready)
        if self.side.is_body_read():
            self.is_done = True
            self.upstream.http.end()
        return ready

    async def send_rest(self) -> None:
        """Send the body as the client brings it. Raises ClientLost."""
        while not self.is_done:
            try:
                data = await self.client.receive(self.idle_s)
            except (StreamReset, TimeoutError) as error:
                raise ClientLost from error
            if not data:
                raise ClientLost
            self.side.feed(data)
            try:
                await self.upstream.stream.send(self._take_ready(), self.idle_s)
            except StreamReset:
                return
            except TimeoutError:
                raise _not_taken_in() from None


@dataclass(slots=True)
class Answering:
    """Brings the answer to the client: guarded, flushed whenever the upstream pauses."""

    client: SocketStream
    watch: ClientWatch
    side: ClientSide
    upstream: Upstream
    forms: Forms
    allow: Allow
    is_head: bool
    opaque_bodies: bool
    first_byte_s: float
    idle_s: float
    upload_is_done: Callable[[], bool]
    has_sent: bool = False
    status: int | None = None
    body_bytes: int = 0
    _guard: BodyGuard | None = None
    _ready: list[bytes] = field(default_factory=list)

    async def relay(self) -> None:
        """To the answer's end.

        Raises ClientLost, UpstreamLost, NotHttp, ReflectionFound, BodyNotInspectable.
        """
        await self._receive()
        while True:
            part = self.upstream.http.answer()
            match part:
                case None:
                    await self._flush()
                    await self._receive()
                case AnswerHead() if part.status < 200:
                    self._ready.append(self.side.interim(self._masked(part)))
                case AnswerHead():
                    self._start(part)
                case bytes():
                    self._pass_on(part)
                case AnswerEnd():
                    self._finish(part)
                    await self._flush()
                    return

    async def _receive(self) -> None:
        limit_s: float | None = self.idle_s
        if not self.upstream.http.has_answered:
            # While the body is going up no answer is owed; the steps of that are bounded by themselves.
            limit_s = self.first_byte_s if self.upload_is_done() else None
        if self.watch.has_left:
            limit_s = min(limit_s or CLIENT_LEFT_S, CLIENT_LEFT_S)
        try:
            data = await self.upstream.stream.receive(limit_s)
        except TimeoutError:
            if self.watch.has_left:
                raise ClientLost from None
            raise UpstreamLost(Reason.UPSTREAM_TIMEOUT, "the upstream was silent for too long") from None
        except StreamReset:
            raise UpstreamLost(Reason.UPSTREAM_PROTOCOL, "the upstream reset the connection") from None
        except StreamTruncated:
            raise UpstreamLost(Reason.UPSTREAM_PROTOCOL, "the upstream broke off the connection") from None
        self.upstream.http.feed(data)

    def upload_is_done_now(self) -> None:
        """From here on the upstream owes an answer, and its time runs."""
        if not self.upstream.http.has_answered:
            self.upstream.stream.limit_wait(self.first_byte_s)

    def _start(self, head: AnswerHead) -> None:
        has_no_body = self.is_head or head.status in (204, 304)
        codings = None if has_no_body else head.value(b"content-encoding")
        self._guard = body_guard(codings, self.forms, self.opaque_bodies)
        if self._guard is None:
            shown = ascii(self.forms.mask(codings).decode("latin-1"))[:100] if codings else ""
            raise UpstreamLost(Reason.BODY_NOT_INSPECTABLE, f"its Content-Encoding is {shown}")
        self.status = head.status
        self._ready.append(self.side.start(self._masked(head)))

    def _pass_on(self, data: bytes) -> None:
        if self._guard is not None:
            self._send_body(self._guard.feed(data))

    def _finish(self, end: AnswerEnd) -> None:
        if self._guard is not None:
            self._send_body(self._guard.finish())
        self._ready.append(self.side.end(self._masked_headers(end.trailers)))

    def _send_body(self, data: bytes) -> None:
        if data:
            self.body_bytes += len(data)
            self._ready.append(self.side.part(data))

    async def _flush(self) -> None:
        data, self._ready = b"".join(self._ready), []
        if data:
            try:
                self.has_sent = True
                await self.client.send(data, self.idle_s)
            except (StreamReset, TimeoutError) as error:
                raise ClientLost from error

    def _masked(self, head: AnswerHead) -> AnswerHead:
        return AnswerHead(head.status, self.forms.mask(head.reason), self._masked_headers(head.headers))

    def _masked_headers(self, headers: tuple[Header, ...]) -> tuple[Header, ...]:
        if not headers or not self.forms.found_in(b"\n".join(chain.from_iterable(headers))):
            return headers  # most of the time: one search instead of two for each header
        # A star may stand in a name as well (RFC 9110 5.6.2), but in no length.
        framing, mask = b"content-length", self.forms.mask
        return tuple((n, v) if n.lower() == framing else (mask(n), mask(v)) for n, v in headers)


@dataclass(slots=True)
class Exchange:
    up: Uploading
    down: Answering

    async def run(self) -> ExchangeEnd:
        try:
            await self._run()
        except ClientLost:
            return self._cut(EndCause.CLIENT_RESET)
        except ReflectionFound:
            return self._cut(EndCause.REFLECTION)
        except BodyNotInspectable:
            if not self.down.has_sent:
                return ExchangeEnd(EndCause.FAULT, deny=self._deny(_UNREADABLE_BODY))
            return self._cut(EndCause.TRUNCATED)
        except UpstreamLost as lost:
            if not self.down.has_sent or self.down.status is None:
                return ExchangeEnd(EndCause.FAULT, deny=self._deny(lost))
            return self._cut(EndCause.TRUNCATED)
        except BaseException:
            self.down.client.abort()  # the service ends, or a fault of ours: it must not look complete
            raise
        return ExchangeEnd(EndCause.DONE, is_answered=True, is_whole=self.up.is_done)

    async def _run(self) -> None:
        try:
            await self.up.send_ready()
            if not self.up.is_done:
                await self._both()
                return
            self.down.watch.start()
            await self.down.relay()
        except NotHttp as error:
            raise UpstreamLost(Reason.UPSTREAM_PROTOCOL, str(error)) from None
        finally:
            self.down.watch.stop()

    async def _both(self) -> None:
        """Body up and answer down; the answer's end is the end, the client's loss is at once."""
        loop = asyncio.get_running_loop()
        upload, answer = loop.create_task(self.up.send_rest()), loop.create_task(self.down.relay())
        try:
            await asyncio.wait((upload, answer), return_when=asyncio.FIRST_COMPLETED)
            if upload.done():
                upload.result()
                self.down.watch.start()
                self.down.upload_is_done_now()
            await answer
        finally:
            for task in (upload, answer):
                task.cancel()
            await asyncio.gather(upload, answer, return_exceptions=True)

    def _cut(self, cause: EndCause) -> ExchangeEnd:
        """The client has a part of the answer, or is gone: a reset, never an end that looks complete."""
        self.down.client.abort()
        return ExchangeEnd(cause)

    def _deny(self, lost: UpstreamLost) -> Deny:
        return Deny(lost.reason, self.down.allow.target, self.down.allow.rule, lost.detail)
