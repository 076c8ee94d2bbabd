"""Bytes to RequestHead: one strict, anchored RFC 9112 grammar for every door. What does not match is refused.

No leniency: bare CR or LF, folded lines and blanks before a colon are how one request is read as two
(CVE-2025-43859, CVE-2026-54387). Bodies are framed in proxy/http1.py. Next: host.py (targets), policy.py.
"""

import enum
import re
from dataclasses import dataclass, field

HEAD_END = b"\r\n\r\n"
# The longest Content-Length that is no mistake: 10^18 bytes.
_LENGTH_DIGITS = 18

# Possessive throughout: no input makes the match go back, so reading a head is linear in its length.
_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]++"
_FIELD = _TOKEN + rb":[\t\x20-\x7e\x80-\xff]*+\r\n"
_NAME_AND_VALUE = re.compile(rb"([^:]++):([^\r]*+)\r\n")  # of a field that has matched _FIELD
_HEAD = re.compile(rb"(" + _TOKEN + rb") ([\x21-\x7e]++) HTTP/1\.([01])\r\n((?:" + _FIELD + rb")*+)\r\n")
# What may still become a request line, and a whole one. Anything else is not HTTP, however long we wait.
_BEGINNING = re.compile(_TOKEN + rb"(?: (?:[\x21-\x7e]++(?: (?:[A-Z0-9/.]{1,8}+\r?)?)?)?)?")
_REQUEST_LINE = re.compile(_TOKEN + rb" [\x21-\x7e]++ HTTP/1\.[01]\r")
_LOOKS_LIKE_TEXT = re.compile(rb"[\t\r\n\x20-\x7e]")
# Without zeros in front, which some servers read as octal.
_LENGTH = re.compile(rb"0|[1-9][0-9]{0,%d}" % (_LENGTH_DIGITS - 1))
# Visible ASCII alone: the authority ends at `/` or `?`, and there is no fragment (RFC 9112 3.2.2).
_ABSOLUTE = re.compile(rb"([A-Za-z][A-Za-z0-9+.-]*)://([!\"$-.0->@-~]*)([!\"$-~]*)")
# Separators and dots as servers decode them: %2e%2e and ..\ climb as well as ../ does.
_DECODED = ((b"%2e", b"."), (b"%2f", b"/"), (b"%5c", b"/"), (b"%3b", b";"), (b"\\", b"/"))


class RequestError(ValueError):
    """The bytes are no request we take. The message says why, without quoting them."""


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A parsed head. Names as received, values without surrounding blanks; ``version`` is 1.0 or 1.1."""

    method: str
    target: bytes
    version: tuple[int, int]
    headers: tuple[tuple[bytes, bytes], ...]
    _by_name: dict[bytes, list[bytes]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_name: dict[bytes, list[bytes]] = {}
        for name, value in self.headers:
            by_name.setdefault(name.lower(), []).append(value)
        object.__setattr__(self, "_by_name", by_name)

    def values(self, name: bytes) -> tuple[bytes, ...]:
        """All values of a header; ``name`` in lower case."""
        return tuple(self._by_name.get(name, ()))

    def tokens(self, name: bytes) -> frozenset[bytes]:
        """The list of lower-case elements of a comma-separated header such as Connection."""
        values = self.values(name)
        if not values:
            return frozenset()
        joined = b",".join(values)
        return frozenset(item.strip(b" \t").lower() for item in joined.split(b",")) - {b""}


def parse_head(head: bytes) -> RequestHead:
    """Read one whole head, its empty line included and nothing behind it. Raises RequestError."""
    match = _HEAD.fullmatch(head)
    if match is None:
        raise RequestError("the request head does not follow RFC 9112")
    method, target, minor, fields = match.groups()
    headers = tuple([(name, value.strip(b" \t")) for name, value in _NAME_AND_VALUE.findall(fields)])
    parsed = RequestHead(method.decode(), target, (1, int(minor)), headers)
    if len(parsed.values(b"host")) > 1:
        raise RequestError("the request names two hosts")
    return parsed


class Opening(enum.Enum):
    """What the first bytes of a connection look like."""

    REQUEST = enum.auto()  # a request line, or what may become one
    TEXT = enum.auto()  # something else that a person or a text protocol wrote: worth an answer
    BINARY = enum.auto()  # TLS, SOCKS and the like: an answer in text would only confuse


def judge_opening(data: bytes) -> Opening:
    """Tell early what will never be a request; ``data`` holds at least one byte."""
    line, end, _ = data.partition(b"\n")
    grammar = _REQUEST_LINE if end else _BEGINNING
    if grammar.fullmatch(line):
        return Opening.REQUEST
    return Opening.TEXT if _LOOKS_LIKE_TEXT.match(data) else Opening.BINARY


class Framing(enum.Enum):
    """How a request body ends when it is not by a length."""

    CHUNKED = enum.auto()


def body_framing(head: RequestHead) -> int | Framing:
    """The body's length in bytes (0: none), or CHUNKED. Raises RequestError on anything doubtful.

    RFC 9112 6.3, stricter: equal lengths may repeat; a list, a sign, zeros in front, or any Transfer-Encoding
    that is not exactly `chunked`, repeated, or beside a length is refused.
    """
    lengths, codings = set(head.values(b"content-length")), head.values(b"transfer-encoding")
    if codings:
        if codings != (b"chunked",) or lengths or head.version < (1, 1):
            raise RequestError("the request's Transfer-Encoding is ambiguous")
        return Framing.CHUNKED
    if not lengths:
        return 0
    only = lengths.pop()
    if lengths or not _LENGTH.fullmatch(only):
        raise RequestError("the request's Content-Length is not one number")
    return int(only)


@dataclass(frozen=True, slots=True)
class AbsoluteTarget:
    """`scheme://authority` and what follows, byte for byte; ``path`` always begins with a slash."""

    scheme: str
    authority: str
    path: bytes


def split_absolute(target: bytes) -> AbsoluteTarget:
    """Split an absolute-form target (RFC 9112 3.2.2). The authority is not judged here."""
    match = _ABSOLUTE.fullmatch(target)
    if match is None:
        raise RequestError("the request target is not in absolute form")
    scheme, authority, rest = match.groups()
    path = rest if rest.startswith(b"/") else b"/" + rest
    return AbsoluteTarget(scheme.decode().lower(), authority.decode(), path)


def path_has_dot_segments(path: bytes) -> bool:
    """Whether a server could climb out of a path prefix: `.` or `..`, also percent-encoded."""
    bare = path.partition(b"?")[0]
    if b"." not in bare and b"%" not in bare:
        return False
    decoded = bare.lower()
    for text, meaning in _DECODED:
        decoded = decoded.replace(text, meaning)
    # Servlet containers drop `;…` from a segment before they resolve it, so `..;x` climbs, too.
    return any(segment.partition(b";")[0] in (b".", b"..") for segment in decoded.split(b"/"))
