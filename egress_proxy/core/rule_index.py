"""Many entries, asked at once: RuleIndex finds those that match a target by a few dictionary look-ups.

No grammar and no decision here. Next: rules.py (one entry), policy.py and grants.py (who ask).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from egress_proxy.core.address import Address
from egress_proxy.core.host import Host, Name, Target
from egress_proxy.core.rules import Rule, Scope

_Item = TypeVar("_Item")
_Key = tuple[Scope, str | Address]


@dataclass(frozen=True, slots=True)
class RuleIndex(Generic[_Item]):
    """Items under their rules, found by a few dictionary look-ups however long the list is."""

    _items: dict[_Key, tuple[tuple[Rule, _Item], ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, pairs: Iterable[tuple[Rule, _Item]]) -> "RuleIndex[_Item]":
        items: dict[_Key, tuple[tuple[Rule, _Item], ...]] = {}
        for rule, item in pairs:
            # A name counts by its text: no object has to be made for each parent of one that is asked for.
            key = (rule.scope, rule.host.text if isinstance(rule.host, Name) else rule.host)
            items[key] = (*items.get(key, ()), (rule, item))
        return cls(items)

    @property
    def is_empty(self) -> bool:
        return not self._items

    def matching(self, target: Target) -> Iterable[tuple[Rule, _Item]]:
        """Pairs whose rule matches, the closest pattern first."""
        return self._found(target) if self._items else ()

    def _found(self, target: Target) -> Iterator[tuple[Rule, _Item]]:
        for key in _keys(target.host):
            for rule, item in self._items.get(key, ()):
                if rule.matches(target):
                    yield rule, item

    def __iter__(self) -> Iterator[tuple[Rule, _Item]]:
        for pairs in self._items.values():
            yield from pairs


def _keys(host: Host) -> list[_Key]:
    if not isinstance(host, Name):
        return [(Scope.EXACT, host)]
    parent = host.text
    keys: list[_Key] = [(Scope.EXACT, parent), (Scope.APEX_AND_BELOW, parent)]
    while "." in parent:
        parent = parent.partition(".")[2]
        keys += ((Scope.BELOW, parent), (Scope.APEX_AND_BELOW, parent))
    return keys
