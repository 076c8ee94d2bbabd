"""In which line of a TOML text a key stands: tomllib says what a text means, not where.

A search by table and key, not a parser: for a value inside an inline table or a list of several
lines it gives the line in which that begins. Next: toml_file.py (who asks).
"""

import re
from collections.abc import Iterator

from egress_proxy.settings.origins import Key

_PART = re.compile(r"""\s*(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<bare>[A-Za-z0-9_-]+))\s*""")
_HEADER = re.compile(r"\s*(?P<open>\[\[?)(?P<name>[^\]]+)\]")
_STRING = re.compile(r""""(?:[^"\\]|\\.)*"|'[^']*'""")
_LONG_QUOTES = ('"""', "'''")


def find_lines(text: str) -> dict[Key, int]:
    """The line, from 1, of every table and key. A table of a list has its index in its key."""
    found: dict[Key, int] = {}
    lists: dict[Key, int] = {}
    table: Key = ()
    for number, line in _statements(text):
        header = _HEADER.match(line)
        if header is not None:
            table = _place(_parts(header["name"]), lists, header["open"] == "[[")
            found.setdefault(table, number)
            continue
        names = _parts(line)
        if names:
            key = (*table, *names)
            for length in range(len(table) + 1, len(key) + 1):
                found.setdefault(key[:length], number)
    return found


def line_of(key: Key, lines: dict[Key, int]) -> int | None:
    """The line of the key, else that of the nearest table or list around it."""
    for length in range(len(key), 0, -1):
        if key[:length] in lines:
            return lines[key[:length]]
    return None


def _place(names: tuple[str, ...], lists: dict[Key, int], is_item: bool) -> Key:
    """The key of a table: `[a.b]` below `[[a]]` belongs to the last item of `a`."""
    key: Key = ()
    for depth, name in enumerate(names):
        key = (*key, name)
        if is_item and depth == len(names) - 1:
            lists[key] = lists.get(key, -1) + 1
        if key in lists:
            key = (*key, lists[key])
    return key


def _parts(text: str) -> tuple[str, ...]:
    """The dotted key at the beginning of the text; empty when there is none."""
    names: list[str] = []
    at = 0
    while match := _PART.match(text, at):
        names.append(match["double"] or match["single"] or match["bare"] or "")
        at = match.end()
        if text[at : at + 1] != ".":
            break
        at += 1
    return tuple(names)


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """The lines in which something begins: not those inside a long string or an open list."""
    quotes, depth = "", 0
    for number, line in enumerate(text.split("\n"), start=1):
        if quotes:
            quotes = "" if quotes in line else quotes
            continue
        bare = _STRING.sub('""', line) if not any(q in line for q in _LONG_QUOTES) else line
        bare = bare.partition("#")[0]
        if depth == 0 and bare.strip():
            yield number, line
        for mark in _LONG_QUOTES:
            if bare.count(mark) % 2:
                quotes = mark
        is_header = depth == 0 and _HEADER.match(bare)
        depth = 0 if is_header else max(0, depth + _opened(bare))


def _opened(bare: str) -> int:
    return bare.count("[") - bare.count("]")
