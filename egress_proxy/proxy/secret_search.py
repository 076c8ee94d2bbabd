"""Forms: what a secret looks like in an answer, in every spelling that is looked for, and where it stands.

Bytes and patterns only; nothing of vault/ (the texts are passed in), nothing of HTTP. What is not found is
listed in SECURITY.md. Next: reflection.py (who asks), vault/injection.py (`secret_texts`: which texts).
"""

import base64
from collections.abc import Iterator, Sequence
from typing import Protocol

# Of a longer text its beginning is looked for in all spellings: the pattern grows with each byte.
_SPELLED_BYTES = 2_048
# The longest spelling of a character: `\u0041`.
_SPELLING_BYTES = 6
# How much of a stream is compared again with what follows is rounded up to this, so that it does not tell
# how long the secret is.
_WINDOW_STEP_BYTES = 256
# Shorter stretches of base64 stand in innocent text by chance.
_BASE64_LEAST_BYTES = 8
# Each of them begins a spelling other than the character itself.
_ESCAPES = (b"%", b"\\")
# JSON and JavaScript put a backslash before these.
_BACKSLASHED = b"/\"'\\"
# RFC 2045 breaks base64 into lines, and JSON or a URL may hold those.
_LINE_END = rb"(?:(?:\r|\\r|%0[dD])?(?:\n|\\n|%0[aA]))?"
_MEMORY_BYTES = 64 << 20


class _Match(Protocol):
    def span(self) -> tuple[int, int]: ...


class _Pattern(Protocol):
    def search(self, data: bytes) -> _Match | None: ...

    def finditer(self, data: bytes) -> Iterator[_Match]: ...


class Forms:
    """What may not be sent on. Make it once per secret: compiling costs some milliseconds.

    ``window_bytes``: how much of a stream has to be compared again with what follows.
    """

    __slots__ = ("_escapes", "_literals", "_pattern", "_wrapped", "window_bytes")

    def __init__(self, texts: Sequence[bytes]) -> None:
        known = {text for text in texts if text}
        spelled = {text[:_SPELLED_BYTES] for text in known}
        wrapped = {form for text in spelled for form in _base64_forms(text)}
        self._wrapped = _shortest(wrapped)
        self._literals = _shortest({*known, *(text.replace(b" ", b"+") for text in known), *wrapped})
        # Of a text with several blanks some may be written as plus signs.
        self._escapes = (*_ESCAPES, b"+") if any(text.count(b" ") > 1 for text in known) else _ESCAPES
        self._pattern = _compiled(known, spelled, wrapped) if known else None
        longest = max((_SPELLING_BYTES * len(text) for text in known), default=0)
        self.window_bytes = -(-longest // _WINDOW_STEP_BYTES) * _WINDOW_STEP_BYTES

    def found_in(self, data: bytes) -> bool:
        if self._pattern is None:
            return False
        if any(escape in data for escape in self._escapes):
            return self._pattern.search(data) is not None
        # Without them a form can only stand as it is, which is quicker to ask; but base64 may be broken up.
        if _holds_one(data, self._literals):
            return True
        return b"\n" in data and _holds_one(data.translate(None, b"\r\n"), self._wrapped)

    def mask(self, data: bytes) -> bytes:
        """``data`` with a star for each byte of a form, leftmost first and there the longest."""
        if self._pattern is None or not self.found_in(data):
            return data
        parts, done = [], 0
        for found in self._pattern.finditer(data):
            start, end = found.span()
            parts += [data[done:start], b"*" * (end - start)]
            done = end
        return b"".join((*parts, data[done:]))


def _holds_one(data: bytes, texts: Sequence[bytes]) -> bool:
    for text in texts:  # noqa: SIM110  any() costs more than what it asks for
        if text in data:
            return True
    return False


def _shortest(texts: set[bytes]) -> tuple[bytes, ...]:
    """Where one of the others stands, one of these does."""
    return tuple(text for text in texts if not any(one in text for one in texts if one != text))


def _base64_forms(text: bytes) -> set[bytes]:
    """Found in the base64 of longer texts too: ``text`` begins at one of three places of a group of
    three bytes, and what counts are the characters in which no neighbouring byte has a part."""
    forms = set()
    for before in range(3):
        first, end = -(-8 * before // 6), 8 * (before + len(text)) // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            forms.add(encode(bytes(before) + text)[first:end])
    return {form for form in forms if len(form) >= _BASE64_LEAST_BYTES}


def _compiled(known: set[bytes], spelled: set[bytes], wrapped: set[bytes]) -> _Pattern:
    # Here, because it takes 6 ms that only a proxy with a credential needs.
    import re2

    whole = (b"".join(map(_itself, text)) for text in known - spelled)
    plain = (b"".join(map(_spellings, text)) for text in spelled)
    broken = (_LINE_END.join(map(_spellings, form)) for form in wrapped)
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.longest_match = True
    options.log_errors = False
    options.max_mem = _MEMORY_BYTES
    pattern: _Pattern = re2.compile(b"|".join((*whole, *plain, *broken)), options)
    return pattern


def _itself(byte: int) -> bytes:
    return b"\\x%02x" % byte


def _spellings(byte: int) -> bytes:
    """A pattern for a character however it is written: itself, `%2F`, `\\u002f`, `\\/`, plus for blank."""
    digits = b"".join(
        b"[%c%c]" % (digit, digit - 32) if digit > ord("9") else b"%c" % digit for digit in b"%02x" % byte
    )
    ways = [_itself(byte), b"%" + digits, rb"\\u00" + digits]
    if byte in _BACKSLASHED:
        ways.append(rb"\\" + _itself(byte))
    if byte == ord(" "):
        ways.append(rb"\+")
    return b"(?:" + b"|".join(ways) + b")"
