"""What one command makes run: another command, a text, a file, or what flows in.

Names of programs and languages too. Next: wrappers.py (finds these), execution.py (follows them).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from egress_proxy.safety.values import Content, Word, names, origin_of
from egress_proxy.safety.wrapper_table import INTERPRETERS, SHELLS

_VERSION = "0123456789."  # at the end: no pattern, which would try each of many digits again
# As package managers of macOS and BSD name GNU's programs, beside the system's own.
_GNU = names(
    "grm gmv gcp gdd gln gfind gxargs gchmod gchown gchgrp gshred gnice gtimeout genv gtee gstdbuf gnohup "
    "gtruncate gsplit gsort gecho gcat gmkfifo gmknod gawk gsed gtar gmake"
)
STDIN_NAMES = frozenset({"-", "/dev/stdin", "/proc/self/fd/0", "/dev/fd/0"})


@dataclass(frozen=True, slots=True)
class Words:
    """Another command. ``adds_stdin``: with words read from its standard input."""

    words: tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class Code:
    """A text that a shell, or another ``language``, runs. The first argument is its `$0`."""

    content: Content
    language: str = "sh"
    arguments: tuple[Word, ...] = ()


@dataclass(frozen=True, slots=True)
class Script:
    """A file that is run as a program text."""

    path: str
    language: str = "sh"
    arguments: tuple[Word, ...] = ()


@dataclass(frozen=True, slots=True)
class StandardInput:
    """The program text is what flows in."""

    language: str = "sh"


Inner = Words | Code | Script | StandardInput


def program_of(word: str) -> str:
    """Base name in lower case, which some disks do not tell apart; without `.exe` and GNU's `g`."""
    name = word.rstrip("/").rpartition("/")[2].lower()
    name = name.removesuffix(".exe")
    return name[1:] if name in _GNU else name


def language_of(program: str) -> str | None:
    """`python3.12` → python. None where the program is no interpreter."""
    if program in SHELLS:
        return "sh"
    name = program.rstrip(_VERSION)
    if name in ("pypy", "py", "pythonw"):
        return "python"
    if name == "nodejs":
        return "node"
    return name if name in INTERPRETERS else None


def joined(words: Sequence[Word]) -> Content:
    """As `eval` and `ssh` read their words: one text."""
    return Content(" ".join(word.text for word in words), origin_of(words))
