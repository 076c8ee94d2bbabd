"""What a call is given, in any language: texts with a comma between them, parts that are known joined.

Next: foreign.py (which calls), foreign_calls.py (names).
"""

import re

from egress_proxy.safety.foreign_calls import COMPOSERS, ENVIRONMENTS, HOMES
from egress_proxy.safety.foreign_tokens import Kind, Token
from egress_proxy.safety.values import UNKNOWN

_MAX_TEXTS = 32
_INTERPOLATION = re.compile(r"[$#]?\{(\w+)\}|\$(\w+)")


class Gathering:
    """Texts of a call's arguments. Parts that are not known become ``UNKNOWN``."""

    def __init__(self, values: dict[str, str], parts_words: bool) -> None:
        self._values = values
        self._parts_words = parts_words  # blanks are Lisp's commas
        self._texts: list[str] = []
        self._current = ""
        self._depth = 0
        self._joining: list[int] = []  # depths inside of path.join(…)
        self._after = ""
        self.skips = False

    def is_ended_by(self, mark: str, is_open: bool) -> bool:
        if mark in (")", "}", "]"):
            return self._depth == 0
        return mark == ";" or (mark == "\n" and not is_open and self._depth == 0)

    def marked(self, mark: str) -> None:
        if mark in ("(", "[", "{"):
            self._depth += 1
            if self._after in COMPOSERS:
                self._joining.append(self._depth)
        elif mark in (")", "]", "}"):
            if self._joining and self._joining[-1] == self._depth:
                self._joining.pop()
            self._depth -= 1
        if mark == "," and self._joining:
            self._current += "/"
        elif mark == ",":
            self._done()
        elif mark == "/" and self._current:
            self._current += "/"
        elif mark == "$" and self._current:  # awk's `"rm " $1`
            self._current += UNKNOWN
        self._after = mark

    def named(self, token: Token) -> None:
        is_method = self._after == "."  # of the text before: "…".split()
        self._after = token.last
        if self._parts_words:
            self._done()
        if self.skips:
            return
        if token.last in HOMES:
            self._current = "~"
        elif token.last in self._values:
            self._current += self._values[token.last]
        elif self._current and token.last not in COMPOSERS and not is_method:
            self._current += UNKNOWN

    def text(self, token: Token) -> None:
        if self._parts_words:
            self._done()
        if self.skips:
            return
        if self._after in ENVIRONMENTS or (self._depth and token.text == "HOME"):
            self._current += "~" if token.text == "HOME" else UNKNOWN
        elif token.kind is Kind.LIST:
            self._texts += token.text.split()
        else:
            self._current += self._interpolated(token.text)

    def _interpolated(self, text: str) -> str:
        """`{x}` of Python, `${x}` of JavaScript, `#{x}` of Ruby, `$x` of Perl."""
        if not self._values or ("{" not in text and "$" not in text):
            return text
        return _INTERPOLATION.sub(lambda found: self._values.get(found[1] or found[2], found[0]), text)

    def _done(self) -> None:
        if self._current.strip(UNKNOWN):
            self._texts.append(_at_home(self._current))
        self._current, self.skips = "", False

    def finished(self) -> list[str]:
        self._done()
        return self._texts[:_MAX_TEXTS]


def _at_home(text: str) -> str:
    """What other languages write for the home folder inside a text."""
    if "{" not in text:
        return text
    return re.sub(r"[$#]?\{[^{}]{0,60}(?:homedir|HOME|Dir\.home)[^{}]{0,20}\}|\$ENV\{HOME\}", "$HOME", text)
