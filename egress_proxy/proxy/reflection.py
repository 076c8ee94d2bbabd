"""The reflection guard: an answer must not hand the injected secret back to the client.

A client may make the upstream send its guesses, so when and in which pieces a body goes on must not tell
how much of the secret a text matches. What may go at once is told from line ends and lengths alone; the rest
waits for more, or for a short time (exchange.py keeps it). Only a whole form changes what the client gets.
Bytes in, bytes out: no I/O, no clock, no HTTP. Next: secret_search.py (forms), answering.py (the caller).
"""

import zlib
from collections import deque
from typing import NoReturn, Protocol

from egress_proxy.proxy.secret_search import Forms

# Compressed bytes that go on together, or not.
_STEP_BYTES = 4_096
# Text decompressed at once: bounds the memory that a bomb can take.
_TEXT_STEP_BYTES = 65_536
# Text inspected before everybody else has a turn: 1 MB of a bomb is 1 GB of text.
_TURN_TEXT_BYTES = 131_072

_GZIP_WBITS = 31  # zlib's sign for: a gzip wrapper, and nothing else
_GZIP_FIRST_BYTE = b"\x1f"
_LINE_END = b"\n"


class ReflectionFound(Exception):
    """The secret stands in a body that cannot be masked: abort, never end the answer clean."""


class BodyNotInspectable(Exception):
    """The body is not what its Content-Encoding says: abort."""


class BodyGuard(Protocol):
    """Takes a body in pieces. While one `is_behind`, `go_on` in the loop's next turn and give it nothing.

    All but the properties raise ReflectionFound, BodyNotInspectable.
    """

    @property
    def is_behind(self) -> bool: ...

    @property
    def holds(self) -> bool:
        """Whether something waits for more, or for its time."""

    def take(self, chunk: bytes) -> None: ...

    def go_on(self) -> None: ...

    def release(self) -> bytes:
        """What may go out now: all up to a line end, and what is longer ago than a form is long."""

    def flush(self) -> bytes:
        """All of it: its time is up, or the body has ended well. One that was cut off is aborted."""


class Masker:
    """For plain bodies: a star for each byte of a form, so that lengths and framing stay true.

    Of a form that completes after its beginning went out, the rest is masked.
    """

    __slots__ = ("_forms", "_recent", "_unsent_bytes")

    is_behind = False

    def __init__(self, forms: Forms) -> None:
        self._forms = forms
        self._recent = b""  # as it came: what went out last, then what did not yet
        self._unsent_bytes = 0

    @property
    def holds(self) -> bool:
        return self._unsent_bytes > 0

    def take(self, chunk: bytes) -> None:
        self._recent += chunk
        self._unsent_bytes += len(chunk)

    def go_on(self) -> None:
        """Never behind."""

    def release(self) -> bytes:
        since_line_end = len(self._recent) - (self._recent.rfind(_LINE_END) + 1)
        return self._all_but(min(self._unsent_bytes, since_line_end, self._forms.window_bytes))

    def flush(self) -> bytes:
        return self._all_but(0)

    def _all_but(self, kept_bytes: int) -> bytes:
        data, window = self._recent, self._forms.window_bytes
        start, end = len(data) - self._unsent_bytes, len(data) - kept_bytes
        if start == end:
            return b""
        self._unsent_bytes = kept_bytes
        self._recent = data[max(0, len(data) - window) :]
        return self._forms.mask(data)[start:end]


class GzipInspector:
    """For gzip: the bytes pass as they are, inspected in parallel; a hit ends the answer."""

    __slots__ = (
        *("_began_text", "_forms", "_has_more_inside", "_header", "_is_trailing", "_line_end_at"),
        *("_member", "_part", "_recent", "_refusal", "_settled", "_text_bytes", "_todo", "_waiting"),
    )

    def __init__(self, forms: Forms) -> None:
        self._forms = forms
        self._member = zlib.decompressobj(_GZIP_WBITS)
        self._began_text = False  # the member's header is over
        self._is_trailing = False  # after the last member
        self._has_more_inside = False  # zlib has text left of what it took in
        self._todo = b""
        self._part = b""  # inspected, but for the text left inside zlib
        self._settled = bytearray()
        self._waiting: deque[tuple[bytes, int]] = deque()  # what was inspected, and where its text ends
        self._recent = self._header = b""  # the text's last bytes, and those of what is no text
        self._text_bytes = self._line_end_at = 0
        self._refusal: Exception | None = None

    @property
    def is_behind(self) -> bool:
        return bool(self._todo) or self._has_more_inside

    @property
    def holds(self) -> bool:
        return bool(self._waiting)

    def take(self, chunk: bytes) -> None:
        self._raise_refusal()
        self._todo += chunk
        self.go_on()

    def go_on(self) -> None:
        self._raise_refusal()
        enough = self._text_bytes + _TURN_TEXT_BYTES
        while self.is_behind and self._text_bytes < enough:
            if self._is_trailing:
                self._pass_trailing()
            elif self._member.eof:
                self._next_member()
            else:
                self._inflate()

    def release(self) -> bytes:
        self._raise_refusal()
        settled_at = max(self._line_end_at, self._text_bytes - self._forms.window_bytes)
        while self._waiting and self._waiting[0][1] <= settled_at:
            self._settled += self._waiting.popleft()[0]
        released, self._settled = bytes(self._settled), bytearray()
        return released

    def flush(self) -> bytes:
        self._line_end_at = self._text_bytes
        return self.release()

    def _inflate(self) -> None:
        step = self._todo[:_STEP_BYTES]
        try:
            text = self._member.decompress(step, _TEXT_STEP_BYTES)
        except zlib.error:
            self._refuse(BodyNotInspectable("the body is not gzip"))
        used = len(step) - len(self._member.unconsumed_tail) - len(self._member.unused_data)
        self._use(used)
        self._scan_header(text)
        self._scan(text)
        # A full step can leave text in zlib with no input left; the client would see that text.
        self._has_more_inside = len(text) == _TEXT_STEP_BYTES and not self._member.eof
        if not self._has_more_inside:
            self._wait()

    def _next_member(self) -> None:
        # Python's gzip skips zeros and reads on, so another member may hide behind them.
        self._use(len(self._todo) - len(self._todo.lstrip(b"\0")))
        self._wait()
        if self._todo.startswith(_GZIP_FIRST_BYTE):
            self._member = zlib.decompressobj(_GZIP_WBITS)
            self._began_text, self._header = False, b""
        else:
            self._is_trailing = bool(self._todo)

    def _pass_trailing(self) -> None:
        # Clients that show these bytes at all show them as they are.
        self._scan(self._todo)
        self._use(len(self._todo))
        self._wait()

    def _use(self, size: int) -> None:
        self._part += self._todo[:size]
        self._todo = self._todo[size:]

    def _wait(self) -> None:
        self._waiting.append((self._part, self._text_bytes))
        self._part = b""

    def _scan_header(self, text: bytes) -> None:
        """A member's header has a file name and a comment, which some clients show."""
        if not self._began_text:
            self._header = self._sought_in(self._header + self._part)
            self._began_text = bool(text)

    def _scan(self, text: bytes) -> None:
        if text:
            line_end = text.rfind(_LINE_END) + 1
            if line_end:
                self._line_end_at = self._text_bytes + line_end
            self._text_bytes += len(text)
            self._recent = self._sought_in(self._recent + text)

    def _sought_in(self, data: bytes) -> bytes:
        """The end of the data, if no form stands in it."""
        if self._forms.found_in(data):
            self._refuse(ReflectionFound("the answer holds the credential"))
        return data[max(0, len(data) - self._forms.window_bytes) :]

    def _refuse(self, refusal: Exception) -> NoReturn:
        self._refusal = refusal
        raise refusal

    def _raise_refusal(self) -> None:
        """What was refused once gives nothing any more, whatever a caller's clean-up asks for."""
        if self._refusal is not None:
            raise self._refusal


class PassThrough:
    """For codings that a rule lets pass unread (`opaque_bodies`)."""

    __slots__ = ("_ready",)

    is_behind = False
    holds = False

    def __init__(self) -> None:
        self._ready = b""

    def take(self, chunk: bytes) -> None:
        self._ready += chunk

    def go_on(self) -> None:
        """Never behind."""

    def release(self) -> bytes:
        ready, self._ready = self._ready, b""
        return ready

    def flush(self) -> bytes:
        return self.release()


def body_guard(content_encodings: bytes | None, forms: Forms, opaque: bool) -> BodyGuard | None:
    """The guard for a body with these Content-Encoding values, joined by commas.

    None: no guard reads that coding and the rule does not let it pass unread. Refuse with 502.
    """
    items = (item.strip(b" \t") for item in (content_encodings or b"").lower().split(b","))
    match [item for item in items if item not in (b"", b"identity")]:
        case []:
            return Masker(forms)
        case [b"gzip" | b"x-gzip"]:
            return GzipInspector(forms)
        case _:
            return PassThrough() if opaque else None
