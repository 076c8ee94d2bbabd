"""Text of one token as the shell reads it: escapes, ANSI-C quotes, braces, blanks, tildes.

No tree here. Next: words.py (which token is which), values.py (the marks of quoted text).
"""

import posixpath
import re
from collections.abc import Iterator

from egress_proxy.safety.values import UNKNOWN, quoted, unquoted

# `{a,b}{a,b}…` doubles with every pair; more words than this are of no use to a person either.
MAX_WORDS = 64

_ESCAPE = re.compile(r"\\(\n|.)", re.DOTALL)
_IN_QUOTES = re.compile(r"\\([$`\"\\\n])")
_ANSI = re.compile(
    r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|c(.)|(.))", re.DOTALL
)
_ANSI_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f"}
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\w+)\.\.(\w+)(?:\.\.-?\d+)?")
_BLANKS = re.compile(r"[ \t\n]+")
_WHOLE_GLOB = re.compile(r"\[([^\]!^-])\]")


def bare(text: str) -> str:
    """Outside quotes: a backslash quotes the next character, and removes a line end."""
    return _ESCAPE.sub(lambda found: "" if found[1] == "\n" else quoted(found[1]), text)


def in_double_quotes(text: str) -> str:
    return quoted(_IN_QUOTES.sub(lambda found: "" if found[1] == "\n" else found[1], text))


def ansi(text: str) -> str:
    """Inside of ``$'…'``, also what `echo -e` and `printf` make of their text."""
    return _ANSI.sub(_ansi_character, text)


def _ansi_character(found: re.Match[str]) -> str:
    octal, two, four, eight, control, letter = found.groups()
    if control:
        return chr(ord(control) & 0x1F)
    if letter:
        return _ANSI_LETTERS.get(letter, letter if letter in "\\'\"?" else "\\" + letter)
    code = int(octal, 8) & 0xFF if octal else int(two or four or eight, 16)
    return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else UNKNOWN


def split_words(text: str) -> list[str]:
    """Braces, then blanks, then quotes removed: at most ``MAX_WORDS`` words."""
    words = [part for piece in _expand_braces(text) for part in _BLANKS.split(piece) if part]
    return [_finished(word) for word in words[:MAX_WORDS]]


def joined_word(text: str) -> str:
    """The same where nothing is split: an assignment, a redirection's target."""
    return _finished(text)


def _finished(word: str) -> str:
    if word.startswith(quoted("~")):
        return "./" + unquoted(word)  # a quoted tilde is a file of that name
    return unquoted(_WHOLE_GLOB.sub(r"\1", word) if "[" in word else word)


def _expand_braces(text: str) -> Iterator[str]:
    """Innermost pair first. What is no list stays as it is."""
    pending, made = [text], 0
    while pending:
        current = pending.pop()
        found = _BRACES.search(current) if made < MAX_WORDS else None
        if found is None:
            yield current
            continue
        choices = _choices(found[1])
        made += len(choices)
        head, tail = current[: found.start()], current[found.end() :]
        pending += [head + choice + tail for choice in reversed(choices)]


def _choices(inside: str) -> list[str]:
    if "," in inside:
        return inside.split(",")[:MAX_WORDS]
    if _RANGE.fullmatch(inside):
        return [UNKNOWN]
    return [quoted("{") + inside + quoted("}")]


def path_of(text: str, folder: str = ".") -> str:
    """A path without detours, from ``folder`` where it is relative. A trailing `/*` stays."""
    if not text or text.startswith("-"):
        return text
    if text[0] not in "/~" and folder != ".":
        text = f"{folder}/{text}"
    path = posixpath.normpath(text)
    if text.startswith("~/") and not path.startswith("~"):
        return "/home"  # above the home folder
    if path.startswith("~") and not text.startswith("~"):
        return f"./{path}"  # a file of that name
    if path == "//":
        return "/"
    if path.startswith("../") or path == "..":
        return path
    return path[1:] if path.startswith("//") else path
