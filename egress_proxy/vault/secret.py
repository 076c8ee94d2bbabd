"""Secret: a credential of which printing, logging, copying, pickling and comparing show nothing.

The type and the rule for what a secret may be, no more. Nothing here quotes a value, not even one
that it refuses. Next: sources.py (where a value comes from), injection.py (who calls reveal()).
"""

import hmac
import re
from typing import NoReturn, final

# As long as a whole request head may be; nginx and Apache take 8 KiB in a header line.
LIMIT_CHARACTERS = 16_384

_PRINTABLE = re.compile(r"[\x20-\x7e]*")


def flaw(value: str) -> str | None:
    """Why ``value`` is unfit for a header, in words that follow a name (`... is empty`), or None.

    Asked before a Secret is made, so that no exception with a value in its frames is on its way.
    """
    if not value:
        return "is empty"
    if len(value) > LIMIT_CHARACTERS:
        return f"is longer than {LIMIT_CHARACTERS} characters"
    if not value.isascii():
        return "holds a character that is not ASCII"
    if "\r" in value or "\n" in value:
        return "holds a line end"
    if not _PRINTABLE.fullmatch(value):
        return "holds a control character"
    # Servers trim header values, so they would echo a text that the reflection guard does not know.
    if value != value.strip(" "):
        return "begins or ends with a blank"
    return None


@final
class Secret:
    """One credential: printable ASCII, no blanks at its ends. Equal to itself alone.

    No dataclass: `asdict`, `fields` and a generated `__eq__` would hand the value out.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        problem = flaw(value)
        if problem is not None:
            raise ValueError(f"the secret {problem}")
        self._value = value

    def reveal(self) -> str:
        """The value. Called in injection.py only; a test looks for other callers."""
        return self._value

    def holds(self, value: bytes) -> bool:
        """Whether ``value`` is this secret, in a time that tells nothing about how near it is."""
        return hmac.compare_digest(self._value.encode("ascii"), value)

    def __repr__(self) -> str:
        return "Secret(***)"

    def __getstate__(self) -> NoReturn:
        # Asked by pickle in every protocol, by copy, and by deepcopy, hence by asdict of an owner.
        raise TypeError("a secret is neither copied nor pickled")
