"""Text of a program in Python, Perl, Ruby, JavaScript, PHP, Lua or awk, to tokens: strings, names, marks.

No language's grammar: what they have in common. Linear in the text. Next: foreign.py (reads calls).
"""

import enum
import re
from collections.abc import Iterator
from dataclasses import dataclass

MAX_TOKENS = 6_000  # a program given on a line has far fewer
_OPENING = {"(": ")", "[": "]", "{": "}", "<": ">"}
# An open string goes on to the end: a pattern that failed there would be tried again at each quote.
_TOKEN = re.compile(
    r"""
    (?P<long>\"{3}.*?(?:\"{3}|\Z)|'{3}.*?(?:'{3}|\Z))
    |(?P<string>[rbfuRBFU]{0,2}(?:"(?:[^"\\]|\\.)*(?:["\\]|\Z)|'(?:[^'\\]|\\.)*(?:['\\]|\Z)))
    |(?P<shell>`(?:[^`\\]|\\.)*(?:[`\\]|\Z))
    |(?P<form>(?:\b(?:qq|qw|qx|q)\s*(?=[(\[{/|!])|%[qQwWx]?(?=[(\[{|!])))
    |(?P<pattern><[/~][^<>\s]*>)
    |(?P<name>[$@%]?[A-Za-z_]\w*(?:(?:\.|::|->)[A-Za-z_]\w*)*)
    |(?P<mark>\n|=>|==|=~|!=|\|\||&&|[-+.,;:=()\[\]{}|>/$])
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)


class Kind(enum.Enum):
    STRING = enum.auto()
    LIST = enum.auto()  # of words, one blank between
    SHELL = enum.auto()  # between backquotes
    NAME = enum.auto()
    MARK = enum.auto()


@dataclass(frozen=True, slots=True)
class Token:
    kind: Kind
    text: str

    @property
    def last(self) -> str:
        """`os.system` → system."""
        if self.text.isidentifier():  # most are: this is asked often
            return self.text
        return self.text.rpartition(".")[2].rpartition("::")[2].rpartition("->")[2].lstrip("$@%")


def tokens_of(code: str, language: str) -> list[Token]:
    """At most ``MAX_TOKENS``."""
    found: list[Token] = []
    for token in _tokens(code, language):
        found.append(token)
        if len(found) >= MAX_TOKENS:
            break
    return found


def _tokens(code: str, language: str) -> Iterator[Token]:
    at = 0
    while found := _TOKEN.search(code, at):
        at, text = found.end(), found[0]
        match found.lastgroup:
            case "long":
                yield Token(Kind.STRING, text[3:].removesuffix(text[:3]))
            case "string":
                yield Token(Kind.STRING, _unescaped(text.lstrip("rbfuRBFU")))
            case "shell":
                is_string = language in ("node", "bun", "deno")
                yield Token(Kind.STRING if is_string else Kind.SHELL, _unescaped(text))
            case "form" if language not in ("perl", "ruby"):
                yield Token(Kind.MARK, "%")
            case "form":
                closing = _OPENING.get(code[at], code[at])
                end = code.find(closing, at + 1)
                inside = code[at + 1 : end if end >= 0 else len(code)]
                at = end + 1 if end >= 0 else len(code)
                yield Token(_form(text.strip()), inside)
            case "pattern" if language == "perl":
                yield Token(Kind.STRING, text[1:-1])
            case "name":
                yield Token(Kind.NAME, text)
            case _:
                yield Token(Kind.MARK, text)


def _form(text: str) -> Kind:
    if text in ("qx", "%x"):
        return Kind.SHELL
    return Kind.LIST if text in ("qw", "%w", "%W") else Kind.STRING


def _unescaped(text: str) -> str:
    inside = text[1:-1] if len(text) > 1 and text[-1] == text[0] else text[1:]
    return _ESCAPE.sub(_character, inside)


def _character(found: re.Match[str]) -> str:
    letter = found[1]
    if len(letter) == 3:
        return chr(int(letter[1:], 16))
    return {"n": "\n", "t": "\t"}.get(letter, letter if letter in "'\"`\\/$" else "\\" + letter)
