"""One exchange: the request goes up while the answer comes down, driven by its two sockets, without a task.

An upstream may answer before the body is through, so both directions are open at once. No credential is
known here beyond the forms to look for. Next: delivery.py (the way down), forward.py (who starts it).
"""

from collections.abc import Callable

from egress_proxy.core.decision import Deny, Reason
from egress_proxy.core.events import EndCause
from egress_proxy.proxy.answering import Answering, UpstreamLost
from egress_proxy.proxy.client_side import ClientSide
from egress_proxy.proxy.delivery import ClientLost, Delivery
from egress_proxy.proxy.http1 import NotHttp
from egress_proxy.proxy.order import ExchangeEnd, ForwardLimits, Order
from egress_proxy.proxy.recorder import Recording
from egress_proxy.proxy.reflection import BodyNotInspectable, ReflectionFound
from egress_proxy.proxy.secret_search import Forms
from egress_proxy.proxy.stream import SocketStream, StreamReset, unheard
from egress_proxy.proxy.upstream_pool import Upstream
from egress_proxy.vault.injection import HeldCredential, UpstreamHead

# A client that ended its direction has left, as a rule, but may be waiting (`nc`): it gets an answer that
# comes at once. nginx and Envoy do not wait at all; a generated answer costs money until it is cut.
CLIENT_LEFT_S = 2.0
# What is read of its next requests meanwhile, so that its end behind them is seen.
AHEAD_LIMIT_BYTES = 65_536
BODY_STALLED = "nothing more came of the request's body in the time that limits.body_timeout_s sets"


_UNREADABLE_BODY = UpstreamLost(Reason.BODY_NOT_INSPECTABLE, "its body is not what its Content-Encoding says")


class Exchange:
    """After `start` it ends by itself and tells ``on_end`` once, or by `cut`."""

    __slots__ = (
        *("_client", "_down", "_expects_continue", "_delivery", "_has_left", "_head", "_is_over"),
        *("_is_sent_whole", "_is_upload_over", "_limits", "_on_end"),
        *("held", "order", "recording", "sent_bytes", "side", "upstream"),
    )

    def __init__(
        self,
        client: SocketStream,
        upstream: Upstream,
        order: Order,
        head: UpstreamHead,
        forms: Forms,
        limits: ForwardLimits,
        recording: Recording | None,
        on_end: "OnEnd",
    ) -> None:
        self._client = client
        self.upstream = upstream
        self.order = order
        self.held: HeldCredential | None = None  # what it is sent with
        self._head = head
        self._limits = limits
        self.recording = recording
        self._on_end = on_end
        self.side = side = ClientSide(order.head, order.body_bytes)
        self._down = Answering(
            upstream.http,
            side,
            forms,
            is_head=order.head.method == "HEAD",
            opaque_bodies=order.route.opaque_bodies,
        )
        self._delivery = Delivery(
            client,
            upstream.stream,
            self._down,
            drive=self._drive,
            on_step=self._on_step,
            on_over=self._finish,
        )
        self._expects_continue = bool(order.head.values(b"expect"))
        self.sent_bytes = 0
        self._is_upload_over = self._is_sent_whole = False
        self._has_left = self._is_over = False

    @property
    def status(self) -> int | None:
        """The answer's, once its head has come."""
        return self._down.status

    @property
    def received_bytes(self) -> int:
        return self._down.body_bytes

    def start(self) -> None:
        self._client.on_room = self._on_client_room
        self.upstream.stream.on_room = self._on_upstream_room
        self._drive(self._begin)

    def cut(self, cause: EndCause) -> None:
        """End it from outside, if it has not ended yet: the client sees a reset."""
        if not self._is_over:
            self._break_off(cause)

    # What the sockets and the clock tell.

    def _on_client(self) -> None:
        self._drive(self._look_after_client if self._is_upload_over else self._upload)

    def _on_upstream_room(self) -> None:
        self._drive(self._go_on_uploading)

    def _on_time(self) -> None:
        self._drive(self._give_up)

    def _drive(self, step: Callable[[], None]) -> None:
        try:
            step()
        except ClientLost:
            self._break_off(EndCause.CLIENT_RESET)
        except ReflectionFound:
            self._break_off(EndCause.REFLECTION)
        except BodyNotInspectable:
            self._refuse(_UNREADABLE_BODY)
        except NotHttp as error:
            self._refuse(UpstreamLost(Reason.UPSTREAM_PROTOCOL, str(error)))
        except UpstreamLost as lost:
            self._refuse(lost)
        except Exception as error:
            if self._is_over:
                raise  # whoever was told of the end has not borne it
            # An outermost loop, like the listener's: a fault of ours ends this exchange and no other.
            self._client.abort()
            self._end(ExchangeEnd(EndCause.FAULT, fault=error))

    # The request.

    def _begin(self) -> None:
        """Send the head and as much of the body as has come already, in one write."""
        headers = self._head.headers
        if self._expects_continue:
            headers = (*headers, (b"Expect", b"100-continue"))
        first = self.upstream.http.start(self._head.method, self._head.target, headers)
        self.side.feed(self._client.take_unread())
        self._send_up(first + self._next_of_body())
        self._delivery.start()
        self._limit()

    def _next_of_body(self) -> bytes:
        ready = self.side.body() or b""
        self.sent_bytes += len(ready)
        if self.recording is not None:
            self.recording.feed(ready)
        return ready

    def _send_up(self, data: bytes) -> None:
        stream = self.upstream.stream
        try:
            stream.give(data)
        except StreamReset:
            # It may have answered before it closed (413): whoever reads the answer finds out.
            self._is_upload_over = True
        else:
            if self.side.is_body_read():
                self.upstream.http.end()
                self._is_upload_over = self._is_sent_whole = True
        # Not read from while the upstream takes nothing in: this is all there is to back-pressure.
        self._client.look_on(None if stream.is_clogged() and not self._is_upload_over else self._on_client)

    def _upload(self) -> None:
        try:
            data = self._client.take()
        except StreamReset as error:
            raise ClientLost from error
        if data is None:
            return
        if not data:
            raise ClientLost
        self.side.feed(data)
        self._send_up(self._next_of_body())
        self._limit()

    def _go_on_uploading(self) -> None:
        self._client.look_on(self._on_client)
        self._limit()

    def _look_after_client(self) -> None:
        """Nothing more is owed by it: it waits for its answer, is ahead with its next request, or leaves."""
        try:
            data = self._client.take()
        except StreamReset as error:
            raise ClientLost from error
        if data:
            self.side.feed(data)
        elif data is not None:
            self._has_left = True
            self._limit()
        if self._has_left or len(self.side.leftover()) > AHEAD_LIMIT_BYTES:
            self._client.look_on(None)

    # The answer.

    def _on_client_room(self) -> None:
        self._drive(self._delivery.go_on)

    def _on_step(self, has_sent: bool) -> None:
        if has_sent or not self._has_left:  # one that has left is not waited for on and on
            self._limit()

    # Time.

    def _limit(self) -> None:
        """Every step gives the next one its time. While the body goes up no answer is owed."""
        limits = self._limits
        is_awaited = self._is_upload_over and not self.upstream.http.has_answered
        limit_s = limits.first_byte_s if is_awaited else limits.idle_s
        if not self._is_upload_over and not self.upstream.stream.is_clogged():
            limit_s = min(limit_s, limits.body_s)
        if self._has_left and not self._client.is_clogged():  # it may be slow to read what is its own
            limit_s = min(limit_s, CLIENT_LEFT_S)
        self._client.deadline.set(limit_s, self._on_time)

    def _give_up(self) -> None:
        if self._has_left or self._client.is_clogged():
            raise ClientLost
        if self.upstream.stream.is_clogged():
            raise UpstreamLost(Reason.UPSTREAM_TIMEOUT, "the upstream does not take the request in")
        if not self._is_upload_over:
            raise UpstreamLost(Reason.HEAD_TIMEOUT, BODY_STALLED)
        raise UpstreamLost(Reason.UPSTREAM_TIMEOUT, "the upstream was silent for too long")

    # The end.

    def _finish(self) -> None:
        is_whole = self._is_sent_whole and not self.upstream.stream.is_clogged()
        self._end(ExchangeEnd(EndCause.DONE, is_answered=True, is_whole=is_whole))

    def _refuse(self, lost: UpstreamLost) -> None:
        if self._delivery.has_sent and self._down.status is not None:
            self._break_off(EndCause.TRUNCATED)
            return
        deny = Deny(lost.reason, self.order.allow.target, self.order.allow.rule, lost.detail)
        self._end(ExchangeEnd(EndCause.FAULT, deny=deny))

    def _break_off(self, cause: EndCause) -> None:
        """The client has a part of the answer, or is gone: a reset, never an end that looks complete."""
        self._client.abort()
        self._end(ExchangeEnd(cause))

    def _end(self, end: ExchangeEnd) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._delivery.stop()
        for stream in (self._client, self.upstream.stream):
            stream.look_on(None)
            stream.on_room = unheard
        self._client.deadline.clear()
        self._client.unread(self.side.leftover())
        self._on_end(self, end)


OnEnd = Callable[[Exchange, ExchangeEnd], None]
