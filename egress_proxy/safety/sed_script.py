"""A sed script: which of its commands run a text in a shell or write a file.

GNU's `e` and `w`; the rest is only stepped over. Linear. Next: special_wrappers.py, effects.py.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from egress_proxy.safety.values import UNKNOWN

_MAX_COMMANDS = 500
_ADDRESS = re.compile(
    r"(?:\d+(?:~\d+)?|\$|/(?:[^/\\\n]|\\.)*(?:/|\Z)[IM]*|\\(.)(?:(?!\1).)*(?:\1|\Z))", re.DOTALL
)
_BETWEEN = re.compile(r"[\s;{}]*")
_REST = re.compile(r"[^\n]*")
_FLAGS = re.compile(r"([gpiImMe0-9]*)(?:w[ \t]*([^\n]*))?")


@dataclass(frozen=True, slots=True)
class Run:
    """``text`` is empty where what flows in is run."""

    text: str


@dataclass(frozen=True, slots=True)
class Write:
    path: str


def sed_scripts(texts: Sequence[str]) -> list[str]:
    """Of a sed's words: the values of -e, else the first word that is no option."""
    scripts: list[str] = []
    operands: list[str] = []
    is_value = False
    for text in texts:
        if is_value:
            scripts.append(text)
            is_value = False
        elif text.startswith("--expression="):
            scripts.append(text.partition("=")[2])
        elif text == "--expression" or (text.startswith("-") and text[1:2] != "-" and text.endswith("e")):
            is_value = True
        elif not text.startswith("-"):
            operands.append(text)
    return ["\n".join(scripts)] if scripts else operands[:1]


def parts_of(script: str) -> Iterator[Run | Write]:
    at = 0
    for _ in range(_MAX_COMMANDS):
        at = _after_address(script, at)
        if at >= len(script):
            return
        letter = script[at]
        at += 1
        if letter in "sy":
            at, found = _substitution(script, at)
            yield from found
        elif letter in "ewWraic:btT#":
            rest = _REST.match(script, at)
            text = rest[0] if rest else ""
            at += len(text)
            if letter == "e":
                yield Run(text.strip())
            elif letter in "wW" and text.strip():
                yield Write(text.strip())
    yield Run(UNKNOWN)  # too long to be read


def _after_address(script: str, at: int) -> int:
    between = _BETWEEN.match(script, at)
    at = between.end() if between else at
    for _ in range(2):
        found = _ADDRESS.match(script, at)
        if found:
            at = found.end()
        while at < len(script) and script[at] in " ,!+~":
            at += 1
    return at


def _substitution(script: str, at: int) -> tuple[int, list[Run | Write]]:
    delimiter = script[at : at + 1]
    ends: list[int] = []
    start = at = at + 1
    while at < len(script) and len(ends) < 2:
        if script[at] == "\\":
            at += 1
        elif script[at] == delimiter:
            ends.append(at)
        at += 1
    if len(ends) < 2:
        return len(script), []
    pattern, replacement = script[start : ends[0]], script[ends[0] + 1 : ends[1]]
    flags = _FLAGS.match(script, at)
    if flags is None:
        return at, []
    found: list[Run | Write] = []
    if "e" in flags[1]:
        text = replacement.replace("\\" + delimiter, delimiter)
        found = [Run(re.sub(r"\\(.)", r"\1", text))]
        if "&" in replacement or not replacement or not pattern:
            found.append(Run(""))
    if flags[2]:
        found.append(Write(flags[2].strip()))
    return flags.end(), found
