"""Grades a shell command: critical, warning or safe, with the rules and the texts that said so.

A hint and not a boundary: what a program does cannot be read off its command line. Confine what
runs with the sandbox and the proxy. Next: shell.py, windows.py (read), registry.py (rules).
"""

import enum
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from egress_proxy.safety.builtin_rules import LIMIT_RULES
from egress_proxy.safety.pattern import Rule, View
from egress_proxy.safety.reading import Limit, Reading
from egress_proxy.safety.registry import Registry, registry
from egress_proxy.safety.shape import shape_of
from egress_proxy.safety.shell import read_line
from egress_proxy.safety.syntax import PARSED_BYTES
from egress_proxy.safety.values import UNKNOWN, Command
from egress_proxy.safety.windows import read_windows_line

_IF_EMPTY = ", where what is not known before it runs is empty"
# `chown -R root "$pkg/usr"`, `mv "$dir/$x" y`: everyday work on copies, and no accident that is known.
_NOT_SUPPOSED = frozenset({"mv_root", "chmod_777_root", "rsync_delete_root"})
_SHOWN = 120  # characters of a text in an explanation


class Severity(enum.StrEnum):
    SAFE = "safe"
    WARNING = "warning"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True)
class Match:
    """A rule, and the text that it matched: what would run, or a phrase of what it does."""

    rule: Rule
    text: str
    is_supposed: bool = False  # only where what is not known in the line is empty

    @property
    def severity(self) -> Severity:
        return Severity.WARNING if self.is_supposed else Severity(self.rule.pattern.severity)


@dataclass(frozen=True, slots=True)
class Classification(Mapping[str, object]):
    """Also a mapping with the keys ``severity`` and ``matchedRules``, as the documents have it."""

    severity: Severity
    matches: tuple[Match, ...] = field(default=())

    @property
    def matched_rules(self) -> list[str]:
        return [match.rule.id for match in self.matches]

    def explain(self) -> str:
        """One line for each rule; a word when none matched."""
        lines = [
            f"{m.severity}: {m.rule.id}: {m.rule.pattern.description}{_IF_EMPTY * m.is_supposed} [{m.text}]"
            for m in self.matches
        ]
        return "\n".join(lines) or "safe: no rule matched"

    def __getitem__(self, key: str) -> object:
        if key == "severity":
            return str(self.severity)
        if key == "matchedRules":
            return self.matched_rules
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(("severity", "matchedRules"))

    def __len__(self) -> int:
        return 2


def classify_shell_command(cmd: str, platform: str | None = None) -> Classification:
    """``platform``: "unix", "windows" or None for this machine. Raises ValueError for another one."""
    if platform not in (None, "unix", "windows"):
        raise ValueError(f'platform is "unix", "windows" or None, not {platform!r}')
    here = "windows" if os.name == "nt" else "unix"
    return _Judgement(registry(), platform or here).of(cmd)


class _Judgement:
    def __init__(self, rules: Registry, platform: str) -> None:
        self._rules = rules
        self._platform = platform
        self._found: dict[str, Match] = {}

    def of(self, line: str) -> Classification:
        self._look(line, View.LINE)
        if len(line.encode("utf-8", "replace")) > PARSED_BYTES:
            self._limited("too_long", line)
        else:
            self._judge(read_windows_line(line) if self._platform == "windows" else read_line(line), line)
        return self._graded()

    def _judge(self, reading: Reading, line: str) -> None:
        self._commands(reading.commands)
        self._commands(reading.supposed, is_supposed=True)
        for limit in sorted(reading.limits):
            if limit is not Limit.BROKEN or any(command.words for command in reading.commands):
                self._limited(limit, line)

    def _commands(self, commands: Iterable[Command], is_supposed: bool = False) -> None:
        for command in commands:
            text = command.text
            self._look(text, View.COMMAND, is_supposed=is_supposed)
            self._look(shape_of(command), View.SHAPE, text, is_supposed)
            for effect in command.effects:
                self._look(effect, View.EFFECT, f"{text[:_SHOWN]} ({effect})", is_supposed)

    def _limited(self, rule_id: str, line: str) -> None:
        """The text is judged as it stands, mentions included: better a question too many."""
        rule = LIMIT_RULES[rule_id]
        if rule_id not in self._rules.disabled:
            self._found.setdefault(rule_id, Match(rule, _shown(line)))
        if rule_id != Limit.BROKEN:
            self._look(line, View.ROUGH)

    def _look(self, text: str, view: View, shown: str | None = None, is_supposed: bool = False) -> None:
        for rule in self._rules.matching(text, view, self._platform):
            counts = not is_supposed or (rule.pattern.severity == "critical" and rule.id not in _NOT_SUPPOSED)
            if counts and rule.id not in self._found:
                self._found[rule.id] = Match(rule, _shown(shown or text), is_supposed)

    def _graded(self) -> Classification:
        matches = sorted(self._found.values(), key=lambda match: match.severity)
        if not matches:
            return Classification(Severity.SAFE)
        return Classification(matches[0].severity, tuple(matches))


def _shown(text: str) -> str:
    text = " ".join(text.replace(UNKNOWN, "…").split())
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
