"""Forms: the spellings of a secret, compiled, and the questions that a stream puts to them.

Bytes and patterns only; nothing of vault/ (the spellings are passed in), nothing of HTTP.
Next: reflection.py (who asks), vault/injection.py (`secret_forms`: which spellings there are).
"""

import re
from collections.abc import Sequence

# So many bytes of a form have to stand at the end of the data before all of it is compared.
_OPENING_BYTES = 3
_NOWHERE = rb"(?!)"  # without forms an empty pattern would stand everywhere


class Forms:
    """What may not be sent on. Make it once per secret: compiling costs a millisecond.

    Masked data holds no form, but for one that has a `*` in it, which stars can spell.
    """

    __slots__ = ("_any", "_longest", "_opening", "_shortest", "_texts")

    def __init__(self, texts: Sequence[bytes]) -> None:
        self._texts = tuple(sorted({*texts} - {b""}, key=len, reverse=True))
        # Where one of the others stands, one of these does: the value holds the secret.
        self._shortest = tuple(
            text for text in self._texts if not any(one in text for one in self._texts if one != text)
        )
        self._longest = max(map(len, self._texts), default=0)
        # Longest first: an alternation takes the first that fits.
        self._any = re.compile(b"|".join(map(re.escape, self._texts)) or _NOWHERE)
        self._opening = re.compile(b"|".join(map(_opening, self._texts)) or _NOWHERE)

    def found_in(self, data: bytes) -> bool:
        # Not by the pattern: looking for substrings is ten times as fast, and mostly finds nothing.
        for text in self._shortest:  # noqa: SIM110  any() costs more than what it asks for
            if text in data:
                return True
        return False

    def first_in(self, data: bytes, start: int) -> re.Match[bytes] | None:
        """The leftmost occurrence from ``start`` on, and there the longest."""
        return self._any.search(data, start)

    def mask(self, data: bytes) -> bytes:
        """``data`` with a star for each byte of a form: for status reasons, headers, trailers."""
        return self._any.sub(lambda hit: b"*" * len(hit[0]), data) if self.found_in(data) else data

    def unfinished(self, data: bytes, start: int) -> int:
        """Where the longest tail of ``data[start:]`` begins that is a proper prefix of a form, so
        that more bytes could complete it; len(data) without one.

        Looks at no more bytes than the longest form has, however long ``data`` is.
        """
        at = max(start, len(data) - self._longest + 1)
        while opening := self._opening.search(data, at):
            at = opening.start()
            tail = data[at:]
            if any(len(text) > len(tail) and text.startswith(tail) for text in self._texts):
                return at
            at += 1
        return len(data)


def _opening(text: bytes) -> bytes:
    """A pattern for the first bytes of ``text``, or as many of them as there are before the end."""
    *first, pattern = (re.escape(text[at : at + 1]) for at in range(min(len(text), _OPENING_BYTES)))
    for byte in reversed(first):
        pattern = byte + rb"(?:\Z|" + pattern + rb")"
    return pattern
