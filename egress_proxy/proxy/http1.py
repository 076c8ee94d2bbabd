"""HTTP/1.1 with upstreams, in bytes: requests are put together, answers are read by llhttp.

No I/O. The only importer of httptools. An answer's head is judged by its lines first, as a request's is in
core/request.py: llhttp forgives blank lines before it, and does not tell where it ends. Next: client_side.py.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from egress_proxy.core.request import HEAD_END

Header = tuple[bytes, bytes]
# Upstreams send larger heads than clients: content security policies, cookies. nginx allows 32 KiB in all.
ANSWER_HEAD_LIMIT_BYTES = 65_536
# Each line begins with something visible and ends in CR LF: no folding, no bare line end, no NUL.
_VISIBLE = rb"[\t\x20-\x7e\x80-\xff]*+\r\n"
_HEAD = re.compile(
    rb"HTTP/1\.[01] [1-9][0-9]{2}(?: " + _VISIBLE + rb"|\r\n)(?:[!-~]" + _VISIBLE + rb")*+\r\n"
)
_HEAD_BEGINNING = b"HTTP/1."
_HOP_BY_HOP = frozenset(
    {b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"proxy-connection"}
    | {b"proxy-authenticate", b"proxy-authentication-info"}
)
# The code that marks our own refusals may not come from anybody else.
_NEVER_PASS = _HOP_BY_HOP | {b"x-proxy-error"}
# What says how to read the body is end to end, whatever an upstream lists in Connection: a coding that the
# reflection guard does not see would hide the secret from it, too.
_END_TO_END = frozenset({b"content-encoding", b"content-length", b"content-type"})
LENGTH = b"content-length"
_LINE_END = b"\r\n"
BODILESS = frozenset({204, 304})  # RFC 9112 6.3


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


def head_bytes(first: bytes, headers: Iterable[Header]) -> bytes:
    return b"".join((first, *[b"%b: %b\r\n" % header for header in headers], b"\r\n"))


class _Found:
    """What llhttp finds in the bytes that it is fed; the names are httptools'."""

    __slots__ = ("body", "headers", "is_complete", "is_overrun", "reason", "trailers")

    def __init__(self) -> None:
        self.reason = b""
        self.headers: list[Header] = []
        self.trailers: list[Header] | None = None  # none before the head's end
        self.body: list[bytes] = []
        self.is_complete = self.is_overrun = False

    def on_message_begin(self) -> None:
        if self.is_complete:
            # An answer to a request that we never sent. Raising is how a callback stops llhttp.
            raise NotHttp("there are bytes behind the answer")

    def on_status(self, reason: bytes) -> None:
        self.reason = reason

    def on_header(self, name: bytes, value: bytes) -> None:
        (self.headers if self.trailers is None else self.trailers).append((name, value.strip(b" \t")))

    def on_headers_complete(self) -> None:
        self.trailers = []

    def on_body(self, data: bytes) -> None:
        self.body.append(data)

    def on_message_complete(self) -> None:
        self.is_complete = True


class UpstreamSide:
    """The exchanges of one upstream connection, one after another."""

    __slots__ = (
        *("_fed", "_found", "_is_closed", "_is_head", "_is_kept", "_is_over", "_is_request_sent"),
        *("_left_bytes", "_overhead_bytes", "_parser", "_tail", "_until_close", "has_answered"),
    )

    def __init__(self) -> None:
        self._begin(is_head=False)

    def _begin(self, *, is_head: bool) -> None:
        self.has_answered = False
        self._is_request_sent = False
        self._is_head = is_head
        self._fed = b""
        self._is_closed = self._is_over = self._is_kept = False
        self._parser: HttpResponseParser | None = None  # of the final answer, once its head is read
        self._found = _Found()

    def start(self, method: str, target: bytes, headers: Sequence[Header]) -> bytes:
        self._begin(is_head=method == "HEAD")
        return head_bytes(b"%b %b HTTP/1.1\r\n" % (method.encode("ascii"), target), _with_one_length(headers))

    def end(self) -> None:
        """The request is through."""
        self._is_request_sent = True

    def feed(self, data: bytes) -> None:
        """Bytes of the upstream; empty when it closed."""
        self.has_answered = self.has_answered or bool(data)
        self._is_closed = not data
        self._fed = self._fed + data if self._fed else data

    def answer(self) -> AnswerPart | None:
        """The next part of the answer; None when more must be fed. Raises NotHttp."""
        if self._parser is None:
            head = self._read_head()
            if head is None and self._is_closed:
                raise NotHttp("the upstream closed before it answered")
            return head
        if self._fed and not self._found.is_complete:
            self._read_body()
        if self._found.body:
            body, self._found.body = b"".join(self._found.body), []
            return body
        if self._found.is_complete or (self._is_closed and self._until_close):
            self._is_over = True
            return AnswerEnd(_passing(self._found.trailers or (), _NEVER_PASS))
        if self._is_closed:
            raise NotHttp("the upstream closed in the middle of its answer")
        return None

    def is_reusable(self) -> bool:
        """Whether the connection can carry another exchange."""
        # Closed; or bytes behind the answer: somebody's answer to a request that we never sent.
        has_surplus = self._is_closed or self._fed or self._found.is_overrun
        return self._is_request_sent and self._is_over and self._is_kept and not has_surplus

    def _read_head(self) -> AnswerHead | None:
        end = self._fed.find(HEAD_END) + len(HEAD_END)
        is_whole = end >= len(HEAD_END)
        if (end if is_whole else len(self._fed)) > ANSWER_HEAD_LIMIT_BYTES:
            raise NotHttp("the head of the answer is too long")
        if not is_whole:
            _check_beginning(self._fed)
            return None
        head, self._fed = self._fed[:end], self._fed[end:]
        if _HEAD.fullmatch(head) is None:
            raise NotHttp("the head of the answer does not follow RFC 9112")
        self._found = _Found()
        parser = HttpResponseParser(self._found)
        _parse(parser, self._found, head)
        answer, framing = _judged(parser.get_status_code(), head, self._found)
        if answer.status >= 200:
            self._parser = parser
            self._is_kept = framing.is_kept
            self._left_bytes, self._until_close = framing.length, framing.until_close
            if framing.length is None and not framing.until_close:
                # Old servers and balancers pad chunk sizes (`2a  CR LF`), RFC 9112 7.1.1 allows blanks before
                # an extension. Inside and before a size they stay refused.
                parser.set_dangerous_leniencies(lenient_spaces_after_chunk_size=True)
            self._found.is_complete = self._found.is_complete or self._is_head
            self._overhead_bytes, self._tail = 0, b""
        return answer

    def _read_body(self) -> None:
        assert self._parser is not None  # noqa: S101  narrows the type
        data, self._fed = self._fed, b""
        if self._left_bytes is not None:
            data, self._fed = data[: self._left_bytes], data[self._left_bytes :]
            self._left_bytes -= len(data)
        _parse(self._parser, self._found, data)
        if self._left_bytes is None and not self._until_close:
            self._check_chunks(data)

    def _check_chunks(self, data: bytes) -> None:
        """llhttp bounds neither trailers nor chunk extensions, and forgives blank lines behind the end."""
        self._overhead_bytes = 0 if self._found.body else self._overhead_bytes + len(data)
        if self._overhead_bytes > ANSWER_HEAD_LIMIT_BYTES:
            raise NotHttp("the trailers of the answer are too long")
        self._tail = (self._tail + data)[-3 * len(_LINE_END) :]
        if self._found.is_complete and (not self._tail.endswith(HEAD_END) or self._tail == 3 * _LINE_END):
            self._found.is_overrun = True


@dataclass(frozen=True, slots=True)
class _Framing:
    """How a final answer ends: after ``length`` bytes, with the connection, or by chunks when neither."""

    length: int | None
    until_close: bool
    is_kept: bool


def _check_beginning(fed: bytes) -> None:
    """Whether it may become a head: there is no point in waiting for the rest of anything else."""
    if not fed.startswith(_HEAD_BEGINNING[: len(fed)]) or fed.count(b"\n") != fed.count(_LINE_END):
        raise NotHttp("the answer does not begin as HTTP/1")


def _parse(parser: HttpResponseParser, found: _Found, data: bytes) -> None:
    try:
        parser.feed_data(data)
    except HttpParserUpgrade:
        raise NotHttp("the upstream changed the protocol") from None
    except HttpParserError as error:
        if not found.is_complete:
            # The messages are llhttp's own words, and quote nothing.
            raise NotHttp(f"the answer is not HTTP: {error}") from None
        found.is_overrun = True


def _judged(status: int, head: bytes, found: _Found) -> tuple[AnswerHead, _Framing]:
    """The answer without what is for this hop alone, and how its body ends. Raises NotHttp."""
    tokens: set[bytes] = set()
    codings, length = [], None
    for name, value in found.headers:
        match name.lower():
            case b"connection":
                tokens.update(token.strip(b" \t").lower() for token in value.split(b","))
            case b"transfer-encoding":
                codings.append(value.lower())
            case b"content-length":
                length = int(value)  # llhttp takes digits, once
    is_http_1_1 = head.startswith(b"HTTP/1.1")
    if codings and (codings != [b"chunked"] or not is_http_1_1):
        raise NotHttp("the answer's Transfer-Encoding is not chunked alone")
    if status == 101 or (status < 200 and (codings or length)):
        raise NotHttp("the answer is an interim one with a body, or changes the protocol")
    dropped = _NEVER_PASS | (tokens - _END_TO_END)
    answer = AnswerHead(status, found.reason, _passing(found.headers, dropped))
    until_close = not codings and length is None and status not in BODILESS
    return answer, _Framing(length, until_close, is_http_1_1 and b"close" not in tokens)


def _with_one_length(headers: Sequence[Header]) -> Sequence[Header]:
    """Equal lengths may repeat in what a client sends (core/request.py); once is enough."""
    is_length = [name.lower() == LENGTH for name, _ in headers]
    if is_length.count(True) < 2:
        return headers
    first = is_length.index(True)
    return [header for at, header in enumerate(headers) if at == first or not is_length[at]]


def _passing(raw: Iterable[Header], dropped: Collection[bytes]) -> tuple[Header, ...]:
    return tuple([header for header in raw if header[0].lower() not in dropped])
