"""A safety rule: the shape that hosts and documents know, and the linear-time pattern behind it.

The only importer of google-re2. Next: registry.py (which rules hold), builtin_rules.py (ours).
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import re2
from pydantic import BaseModel, ConfigDict, Field, field_validator

MAX_PATTERN = 4_096  # a table of names fits; RE2's program grows with it
# RE2's automaton is built as it goes and thrown away when it is larger: two hundred patterns need room.
_SET_BYTES = 64 << 20

Severity = Literal["critical", "warning"]
Platform = Literal["all", "unix", "windows"]


class RuleError(ValueError):
    """A rule cannot be taken. The message names the rule and says why."""


def _options() -> "re2.Options":
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _SET_BYTES
    return options


def _refusal(pattern: str) -> str | None:
    """Why RE2 does not take the pattern; None when it does."""
    try:
        re2.compile(pattern, _options())
    except re2.error as error:
        reason = error.args[0] if error.args else "it cannot be compiled"
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        return f"{text} (patterns are RE2: linear time, hence no look-around and no back-references)"
    return None


class CommandSafetyPattern(BaseModel):
    """One rule. ``pattern`` is searched in the full command line and in each simple command of it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    id: str = Field(min_length=1, max_length=100)
    label: str = Field(min_length=1)
    description: str
    pattern: str = Field(min_length=1, max_length=MAX_PATTERN)
    category: str
    severity: Severity
    platform: Platform

    @field_validator("pattern")
    @classmethod
    def _linear(cls, pattern: str) -> str:
        refusal = _refusal(pattern)
        if refusal is not None:
            raise ValueError(refusal)
        return pattern


class View(enum.Flag):
    """What a pattern is searched in.

    LINE: the text as it came. COMMAND: the words of one simple command, quotes removed, one blank
    between. SHAPE: `name OPTIONS -- OPERANDS`, see shape.py. EFFECT: one phrase of effects.py.
    ROUGH: the text of a line that is not taken apart.
    """

    LINE = enum.auto()
    COMMAND = enum.auto()
    SHAPE = enum.auto()
    EFFECT = enum.auto()
    ROUGH = enum.auto()


@dataclass(frozen=True, slots=True)
class Rule:
    """``hits`` and ``misses`` are lines that show what is meant; they are the rule's tests."""

    pattern: CommandSafetyPattern
    looks_at: View = View.LINE | View.COMMAND
    rough: str | None = None
    hits: tuple[str, ...] = ()
    misses: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return self.pattern.id

    def applies_to(self, platform: str) -> bool:
        return self.pattern.platform in ("all", platform)


class RuleSet:
    """Many patterns searched at once, in time that grows with the text alone."""

    def __init__(self, patterns: Sequence[tuple[str, Rule]]) -> None:
        self._rules = [rule for _, rule in patterns]
        self._set = re2.Set.SearchSet(_options())
        for pattern, _ in patterns:
            self._set.Add(pattern)
        self._set.Compile()

    def matching(self, text: str) -> list[Rule]:
        if not self._rules:
            return []
        found = self._set.Match(text.encode("utf-8", "replace"))
        return [self._rules[index] for index in sorted(found or ())]
