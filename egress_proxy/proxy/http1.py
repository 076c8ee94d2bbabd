"""One HTTP/1.1 exchange, framed by h11 at both ends: the only importer of h11.

Bytes and typed parts, no I/O. Request heads are judged before by core/request.py, whose grammar is stricter
than h11's; here h11 frames bodies and reads upstream answers. Next: forward.py.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import h11

from egress_proxy.core.request import RequestHead

Header = tuple[bytes, bytes]
# Upstreams send larger heads than clients: content security policies, cookies. nginx allows 32 KiB in all.
ANSWER_HEAD_LIMIT_BYTES = 65_536
_HOP_BY_HOP = frozenset(
    {b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"proxy-connection"}
    | {b"proxy-authenticate", b"proxy-authentication-info"}
)
# What says how to read the body is end to end, whatever an upstream lists in Connection: a coding that the
# reflection guard does not see would hide the secret from it, too.
_END_TO_END = frozenset({b"content-encoding", b"content-length", b"content-type"})
# Where h11 begins to quote: an upstream may have put the credential there.
_QUOTED = re.compile(r":? ?(?:bytearray\(|b['\"])")


class NotHttp(Exception):
    """The peer's bytes are no HTTP/1.1, or end too early. The message quotes none of them."""


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """An upstream's answer, hop-by-hop headers taken out. Interim answers have a status below 200."""

    status: int
    reason: bytes
    headers: tuple[Header, ...] = field(repr=False)

    def value(self, name: bytes) -> bytes | None:
        """All values of a header joined; ``name`` in lower case."""
        found = [value for key, value in self.headers if key.lower() == name]
        return b", ".join(found) if found else None


@dataclass(frozen=True, slots=True)
class AnswerEnd:
    """The answer is complete."""

    trailers: tuple[Header, ...] = field(repr=False)


AnswerPart = AnswerHead | bytes | AnswerEnd


class ClientSide:
    """The exchange as seen by our client: its body comes in, the answer goes out."""

    def __init__(self, head: RequestHead, body_bytes: int) -> None:
        self._http = h11.Connection(h11.SERVER)
        # h11 needs to know what frames the exchange and nothing else of the head.
        lines = [f"{head.method} / HTTP/1.{head.version[1]}", "Host: x", f"Content-Length: {body_bytes}"]
        lines += [f"{name}: {token}" for name, token in _framing_tokens(head)]
        self._http.receive_data("\r\n".join((*lines, "", "")).encode())
        self._http.next_event()
        self._knows_interim = head.version >= (1, 1)

    def feed(self, data: bytes) -> None:
        """Bytes of the body and of what follows it. Never the end: h11 takes empty bytes for that."""
        if data:
            self._http.receive_data(data)

    def body(self) -> bytes | None:
        """The next bytes of the request's body; empty at its end, None when more must be fed."""
        event = self._http.next_event()
        match event:
            case h11.Data():
                return bytes(event.data)
            case h11.NEED_DATA:
                return None
            case _:
                return b""

    def is_body_read(self) -> bool:
        # MUST_CLOSE: the body is read, and the client has said that this is its last request.
        return self._http.their_state in (h11.DONE, h11.MUST_CLOSE)

    def leftover(self) -> bytes:
        """What was fed beyond the body: the beginning of the next request."""
        return bytes(self._http.trailing_data[0])

    def interim(self, answer: AnswerHead) -> bytes:
        """A 1xx answer; nothing for a client of HTTP/1.0, which knows none."""
        if not self._knows_interim:
            return b""
        event = h11.InformationalResponse(
            status_code=answer.status, headers=list(answer.headers), reason=answer.reason
        )
        return self._http.send(event) or b""

    def start(self, answer: AnswerHead) -> bytes:
        headers = list(answer.headers)
        if not self.is_body_read():
            # The client is still sending: what comes on this connection next is no request.
            headers.append((b"Connection", b"close"))
        event = h11.Response(status_code=answer.status, headers=headers, reason=answer.reason)
        return self._http.send(event) or b""

    def part(self, data: bytes) -> bytes:
        return self._http.send(h11.Data(data=data)) or b""

    def end(self, trailers: Iterable[Header]) -> bytes:
        # HTTP/1.0 has neither chunks nor what may stand behind them.
        kept = list(trailers) if self._knows_interim else []
        return self._http.send(h11.EndOfMessage(headers=kept)) or b""

    def is_reusable(self) -> bool:
        """Whether the client's connection may carry another request."""
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE


def _framing_tokens(head: RequestHead) -> list[tuple[str, str]]:
    tokens = []
    if b"close" in head.tokens(b"connection"):
        tokens.append(("Connection", "close"))
    if head.values(b"expect"):
        tokens.append(("Expect", "100-continue"))
    return tokens


class UpstreamSide:
    """The exchanges of one upstream connection, one after another."""

    def __init__(self) -> None:
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=ANSWER_HEAD_LIMIT_BYTES)
        self.has_answered = False

    def start(self, method: str, target: bytes, headers: Iterable[Header]) -> bytes:
        self.has_answered = False
        return self._http.send(h11.Request(method=method, target=target, headers=list(headers))) or b""

    def part(self, data: bytes) -> bytes:
        return self._http.send(h11.Data(data=data)) or b""

    def end(self) -> bytes:
        return self._http.send(h11.EndOfMessage()) or b""

    def feed(self, data: bytes) -> None:
        """Bytes of the upstream; empty when it closed."""
        self.has_answered = self.has_answered or bool(data)
        self._http.receive_data(data)

    def answer(self) -> AnswerPart | None:
        """The next part of the answer; None when more must be fed. Raises NotHttp."""
        try:
            event = self._http.next_event()
        except h11.RemoteProtocolError as error:
            raise NotHttp(_QUOTED.split(str(error), maxsplit=1)[0]) from None
        match event:
            case h11.InformationalResponse() | h11.Response():
                return _answer_head(event)
            case h11.Data():
                return bytes(event.data)
            case h11.EndOfMessage():
                return AnswerEnd(_passing(event.headers.raw_items(), _HOP_BY_HOP))
            case h11.ConnectionClosed():
                raise NotHttp("the upstream closed before it answered")
            case _:
                return None

    def is_reusable(self) -> bool:
        """Make ready for the next exchange, if the connection can carry one."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        if self._http.trailing_data != (b"", False):
            # Closed; or bytes behind the answer: somebody's answer to a request that we never sent.
            return False
        self._http.start_next_cycle()
        return True


def _answer_head(event: h11.InformationalResponse | h11.Response) -> AnswerHead:
    raw = event.headers.raw_items()
    named = {
        token.strip().lower()
        for name, value in raw
        if name.lower() == b"connection"
        for token in value.split(b",")
    }
    is_chunked = any(name.lower() == b"transfer-encoding" for name, _ in raw)
    dropped = _HOP_BY_HOP | (named - _END_TO_END) | ({b"content-length"} if is_chunked else set())
    return AnswerHead(event.status_code, bytes(event.reason), _passing(raw, dropped))


def _passing(raw: Iterable[Header], dropped: Collection[bytes]) -> tuple[Header, ...]:
    # The code that marks our own refusals may not come from anybody else.
    return tuple(h for h in raw if h[0].lower() not in dropped and h[0].lower() != b"x-proxy-error")
