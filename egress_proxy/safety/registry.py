"""Which rules hold: the built-in ones, those that a host adds, minus those that it switches off.

No text is read here. Next: classify.py (asks), builtin_rules.py.
"""

import functools
import threading
from collections.abc import Iterable

from egress_proxy.safety.builtin_rules import BUILTIN_RULES
from egress_proxy.safety.pattern import CommandSafetyPattern, Rule, RuleError, RuleSet, View


class Registry:
    """May be used from several threads; what is compiled is compiled again after a change."""

    def __init__(self, rules: Iterable[Rule] = BUILTIN_RULES) -> None:
        self._rules = {rule.id: rule for rule in rules}
        self._builtin = frozenset(self._rules)
        self._disabled: frozenset[str] = frozenset()
        self._lock = threading.Lock()
        self._compiled: dict[tuple[str, View], RuleSet] = {}

    def register(self, pattern: CommandSafetyPattern) -> None:
        """Raises RuleError for an id that is taken; the pattern itself was checked when it was made."""
        if not isinstance(pattern, CommandSafetyPattern):
            raise RuleError(f"a rule is a CommandSafetyPattern, not {type(pattern).__name__}")
        with self._lock:
            if pattern.id in self._rules:
                raise RuleError(f"there is a rule {pattern.id!r} already")
            self._rules[pattern.id] = Rule(pattern)
            self._compiled = {}

    def unregister(self, rule_id: str) -> None:
        """Raises RuleError for an id that was not registered; built-in rules can be disabled."""
        with self._lock:
            if rule_id in self._builtin:
                raise RuleError(f"{rule_id!r} is built in: disable it")
            if self._rules.pop(rule_id, None) is None:
                raise RuleError(f"there is no rule {rule_id!r}")
            self._compiled = {}

    def disable(self, rule_ids: Iterable[str]) -> None:
        """These and no others are switched off from now on. Raises RuleError for an unknown id."""
        wanted = frozenset(rule_ids)
        with self._lock:
            if unknown := sorted(wanted - self._rules.keys()):
                raise RuleError(f"there is no rule {unknown[0]!r}")
            self._disabled = wanted
            self._compiled = {}

    @property
    def disabled(self) -> frozenset[str]:
        return self._disabled

    def rules(self) -> tuple[Rule, ...]:
        """Those that hold, in the order in which they are reported."""
        return tuple(rule for rule in self._rules.values() if rule.id not in self._disabled)

    def matching(self, text: str, view: View, platform: str) -> list[Rule]:
        compiled = self._compiled.get((platform, view))
        return (compiled or self._compile(platform, view)).matching(text)

    def _compile(self, platform: str, view: View) -> RuleSet:
        with self._lock:
            rules = [rule for rule in self.rules() if rule.applies_to(platform)]
            patterns = [(pattern, rule) for rule in rules for pattern in _patterns(rule, view)]
            self._compiled[platform, view] = compiled = RuleSet(patterns)
        return compiled


def _patterns(rule: Rule, view: View) -> list[str]:
    patterns = [rule.pattern.pattern] if view in rule.looks_at else []
    if view is View.ROUGH:
        patterns += [rule.rough] if rule.rough is not None else []
        patterns += [rule.pattern.pattern] if View.LINE in rule.looks_at else []
    return patterns


@functools.cache
def registry() -> Registry:
    """The one of this process."""
    return Registry()


def register_rule(pattern: CommandSafetyPattern) -> None:
    registry().register(pattern)


def unregister_rule(rule_id: str) -> None:
    registry().unregister(rule_id)


def disable_rules(rule_ids: Iterable[str]) -> None:
    registry().disable(rule_ids)
