"""argparse with our manners: one line for an error, no abbreviations, examples first in --help.

No flags here: arguments.py has them. Next: main.py (prints the line).
"""

import argparse
import difflib
import re
from collections.abc import Sequence
from typing import NoReturn

from egress_proxy.cli.exit_codes import ExitCode, VerbFailed

_UNITS_S = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
# float() also takes `nan`, `1e9`, `1_0`, signs and the digits of other scripts.
_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)([smhd]?)")


def split_command(words: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Flags, and the command line behind the first `--`, which is somebody else's."""
    at = words.index("--") if "--" in words else len(words)
    return words[:at], words[at + 1 :]


def duration(text: str) -> float:
    """Seconds: `90`, `90s`, `15m`, `1h`, `2d`. Raises ArgumentTypeError, which argparse makes a line of."""
    found = _DURATION.fullmatch(text)
    if found is None or not (seconds := float(found[1]) * _UNITS_S[found[2]]):
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is no time, such as 90 (seconds), 15m, 1h, 2d")
    return seconds


class FlagParser(argparse.ArgumentParser):
    """``examples`` stand on top of --help, the usual shape of the command line below them."""

    def __init__(self, prog: str, summary: str, examples: Sequence[str], usage: str) -> None:
        shown = "\n".join(f"  {example}" for example in examples)
        super().__init__(
            prog=prog,
            usage=f"{prog} {usage}".rstrip(),
            description=f"{summary}\n\nexamples:\n{shown}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,  # `--allow-` must never pass for another flag
        )
        self.may_be_empty: set[str] = set()  # by their dest: flags of which an empty value says something

    def error(self, message: str) -> NoReturn:
        raise VerbFailed(ExitCode.USAGE, f"{message}; see {self.prog} --help")

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """Raises VerbFailed; SystemExit for --help."""
        namespace, unknown = self.parse_known_args(argv)
        if unknown:
            self.error(self._unknown(unknown[0].partition("=")[0]))
        for action in self._actions:
            if action.option_strings and action.dest not in self.may_be_empty:
                self._refuse_empty(action.option_strings[-1], getattr(namespace, action.dest, None))
        return namespace

    def _refuse_empty(self, flag: str, value: object) -> None:
        """`--audit "$LOG"` where nobody has set LOG must not come to the same as no flag."""
        if value == "" or (isinstance(value, list) and "" in value):
            self.error(f"{flag} has an empty value: give it one, or leave the flag out")

    def _unknown(self, word: str) -> str:
        if not word.startswith("-"):
            return "one argument too many"
        near = difflib.get_close_matches(word, self._option_string_actions, 1)
        return f"unknown flag {word}" + (f", did you mean {near[0]}?" if near else "")

    def format_help(self) -> str:
        """As argparse does it, but the description before the usage line."""
        formatter = self._get_formatter()
        formatter.add_text(self.description)
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        for group in self._action_groups:
            formatter.start_section(group.title)
            formatter.add_arguments(group._group_actions)
            formatter.end_section()
        return formatter.format_help()
