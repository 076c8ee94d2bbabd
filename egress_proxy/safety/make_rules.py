"""A makefile, and a table of cron: which lines of it a shell is given.

Next: special_wrappers.py (make, crontab), execution.py (follows the lines).
"""

import re
from collections.abc import Iterator

MAX_LINES = 2_000
_SHELL_CALL = re.compile(r"\$[({]shell\s+([^)}\n]*)")
_ASSIGNED = re.compile(r"[\w.]+\s*!=\s*(.*)")
_ON_ONE_LINE = re.compile(r"[^\t#;=:\n][^;=:\n]*:[^;=\n]*;(.*)")
_WHEN = re.compile(r"[\s\ue000]*(?:@\w+|(?:[\d*,/A-Za-z-]+\s+){4}[\d*,/A-Za-z-]+)\s+(.*)")


def recipes(text: str) -> Iterator[str]:
    """Commands of a makefile's rules, whichever target is asked for."""
    for line in text.replace("\\\n", " ").split("\n")[:MAX_LINES]:
        if line.startswith("\t"):
            yield _command(line)
        elif found := _ON_ONE_LINE.match(line) or _ASSIGNED.match(line):
            yield _command(found[1])
        for called in _SHELL_CALL.finditer(line):
            yield called[1]


def _command(line: str) -> str:
    return line.strip().lstrip("@+- ").replace("$$", "$").replace("$(RM)", "rm -f")


def scheduled(text: str) -> Iterator[str]:
    """Commands of a crontab."""
    for line in text.split("\n")[:MAX_LINES]:
        found = _WHEN.match(line)
        if found and not line.lstrip().startswith("#"):
            yield found[1]
