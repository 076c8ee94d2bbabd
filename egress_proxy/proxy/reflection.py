"""The reflection guard: an answer must not hand the injected secret back to the client.

Bytes in, bytes out: no I/O, no HTTP, and what it looks for is passed in.
Next: secret_search.py (how forms are found), proxy/forward.py (the caller).
"""

import zlib
from typing import NoReturn, Protocol

from egress_proxy.proxy.secret_search import Forms

# Compressed bytes inspected in one step; 4 MiB of text at deflate's highest ratio, 1:1032.
_STEP_BYTES = 4_096
# Text decompressed at once: bounds the memory that a bomb can take.
_TEXT_STEP_BYTES = 65_536
# What may wait while step after step ends like a form begins: no chance, a hostile upstream's work.
_HELD_LIMIT_BYTES = 1_048_576

_GZIP_WBITS = 31  # zlib's sign for: a gzip wrapper, and nothing else
_GZIP_FIRST_BYTE = b"\x1f"


class ReflectionFound(Exception):
    """The secret stands in a body that cannot be masked: abort, never end the answer clean."""


class BodyNotInspectable(Exception):
    """The body is not what its Content-Encoding says, or made to be held back: abort."""


class BodyGuard(Protocol):
    """Takes a body in pieces, gives what may be sent on. ``hits``: how often the secret was met."""

    hits: int

    def feed(self, chunk: bytes) -> bytes:
        """What may go out now. Raises ReflectionFound, BodyNotInspectable."""

    def finish(self) -> bytes:
        """The rest of a body that ended well; one that was cut off is aborted, not finished."""


class Masker:
    """For plain bodies: a star for each byte of a form, so that lengths and framing stay true."""

    __slots__ = ("_forms", "_held", "hits")

    def __init__(self, forms: Forms) -> None:
        self.hits = 0
        self._forms = forms
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        data = self._held + chunk
        return self._masked(data, self._forms.unfinished(data, 0))

    def finish(self) -> bytes:
        # What was held can be a form where a longer one might have come.
        return self._masked(self._held, len(self._held)) if self._held else b""

    def _masked(self, data: bytes, end: int) -> bytes:
        """``data`` up to ``end``, masked. The rest, nothing or a form's proper prefix, is held."""
        parts, done = [], 0
        if self._forms.found_in(data):
            # A form that begins before ``end`` is settled: none can begin earlier or grow longer.
            while (hit := self._forms.first_in(data, done)) and hit.start() < end:
                parts += [data[done : hit.start()], b"*" * len(hit[0])]
                self.hits += 1
                done = hit.end()
                if done > end:
                    end = self._forms.unfinished(data, done)
        self._held = data[end:]
        return b"".join((*parts, data[done:end]))


class GzipInspector:
    """For gzip: the bytes pass as they are, inspected in parallel; a hit ends the answer.

    What a client can decode from the bytes released so far never ends in the beginning of a form.
    Names and comments in gzip's own headers are not looked at.
    """

    __slots__ = ("_forms", "_held", "_is_trailing", "_member", "_refusal", "_tail", "hits")

    def __init__(self, forms: Forms) -> None:
        self.hits = 0
        self._forms = forms
        self._member = zlib.decompressobj(_GZIP_WBITS)
        self._is_trailing = False  # behind the last member
        self._tail = b""  # the end of the text, as far as it is the beginning of a form
        self._held = bytearray()
        self._refusal: Exception | None = None

    def feed(self, chunk: bytes) -> bytes:
        self._raise_refusal()
        released = bytearray()
        for at in range(0, len(chunk), _STEP_BYTES):
            step = chunk[at : at + _STEP_BYTES]
            self._held += step
            self._inspect(step)
            if not self._tail:
                released += self._held
                self._held.clear()
        if len(self._held) > _HELD_LIMIT_BYTES:
            self._refuse(BodyNotInspectable("the body gives no moment to release it"))
        return bytes(released)

    def finish(self) -> bytes:
        self._raise_refusal()
        rest = bytes(self._held)
        self._held.clear()
        return rest

    def _inspect(self, compressed: bytes) -> None:
        while compressed and not self._is_trailing:
            step = self._next_member if self._member.eof else self._inflate
            compressed = step(compressed)
        # Behind the last member: clients that show these bytes at all show them as they are.
        self._scan(compressed)

    def _next_member(self, compressed: bytes) -> bytes:
        # Python's gzip skips zeros and reads on, so another member may hide behind them.
        rest = compressed.lstrip(b"\0")
        if rest.startswith(_GZIP_FIRST_BYTE):
            self._member = zlib.decompressobj(_GZIP_WBITS)
        else:
            self._is_trailing = bool(rest)
        return rest

    def _inflate(self, compressed: bytes) -> bytes:
        """Inspect what ``compressed`` adds to the member; returns what stands behind the member."""
        is_full = True
        # A full step can leave text in zlib with no input left; the client would see that text.
        while is_full and not self._member.eof:
            try:
                text = self._member.decompress(compressed, _TEXT_STEP_BYTES)
            except zlib.error:
                self._refuse(BodyNotInspectable("the body is not gzip"))
            self._scan(text)
            compressed = self._member.unconsumed_tail
            is_full = len(text) == _TEXT_STEP_BYTES
        return self._member.unused_data

    def _scan(self, text: bytes) -> None:
        data = self._tail + text
        if self._forms.found_in(data):
            self.hits += 1
            self._refuse(ReflectionFound("the answer holds the credential"))
        self._tail = data[self._forms.unfinished(data, 0) :]

    def _refuse(self, refusal: Exception) -> NoReturn:
        self._refusal = refusal
        raise refusal

    def _raise_refusal(self) -> None:
        """What was refused once gives nothing any more, whatever a caller's clean-up asks for."""
        if self._refusal is not None:
            raise self._refusal


class PassThrough:
    """For codings that a rule lets pass unread (`opaque_bodies`)."""

    __slots__ = ("hits",)

    def __init__(self) -> None:
        self.hits = 0

    def feed(self, chunk: bytes) -> bytes:
        return chunk

    def finish(self) -> bytes:
        return b""


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
