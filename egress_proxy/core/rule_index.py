"""Many entries, asked at once: RuleIndex finds those that match a target by a few dictionary look-ups.

No grammar and no decision here. Next: rules.py (one entry), policy.py and grants.py (who ask).
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from egress_proxy.core.address import Address
from egress_proxy.core.host import Host, Name, Target
from egress_proxy.core.rules import WEB_PORTS, Ports, Rule, Scope

_Item = TypeVar("_Item")
_Key = tuple[Scope, str | Address]


@dataclass(frozen=True, slots=True)
class _AtHost(Generic[_Item]):
    """The pairs of one pattern by their ports: a host may have thousands, and a target looks at three."""

    by_port: dict[int, tuple[tuple[Rule, _Item], ...]]
    web: tuple[tuple[Rule, _Item], ...]
    any: tuple[tuple[Rule, _Item], ...]

    @classmethod
    def of(cls, pairs: Iterable[tuple[Rule, _Item]]) -> "_AtHost[_Item]":
        by_ports: dict[Ports | int, list[tuple[Rule, _Item]]] = {}
        for pair in pairs:
            by_ports.setdefault(pair[0].ports, []).append(pair)
        web, every = (tuple(by_ports.pop(ports, ())) for ports in (Ports.WEB, Ports.ANY))
        return cls({port: tuple(of) for port, of in by_ports.items() if isinstance(port, int)}, web, every)

    def for_port(self, port: int) -> Iterator[tuple[Rule, _Item]]:
        """A port of its own first, then 80 and 443, then all: the closest entry names itself."""
        yield from self.by_port.get(port, ())
        if port in WEB_PORTS:
            yield from self.web
        yield from self.any

    def with_ports(self, ports: Ports | int) -> tuple[tuple[Rule, _Item], ...]:
        if isinstance(ports, int):
            return self.by_port.get(ports, ())
        return self.web if ports is Ports.WEB else self.any

    def plus(self, rule: Rule, item: _Item) -> "_AtHost[_Item]":
        pair = (rule, item)
        match rule.ports:
            case Ports.WEB:
                return replace(self, web=(*self.web, pair))
            case Ports.ANY:
                return replace(self, any=(*self.any, pair))
            case int() as port:
                return replace(self, by_port={**self.by_port, port: (*self.by_port.get(port, ()), pair)})

    def __iter__(self) -> Iterator[tuple[Rule, _Item]]:
        for pairs in (*self.by_port.values(), self.web, self.any):
            yield from pairs


@dataclass(frozen=True, slots=True)
class RuleIndex(Generic[_Item]):
    """Items under their rules, found by a few dictionary look-ups however long the list is."""

    _items: dict[_Key, _AtHost[_Item]] = field(default_factory=dict)

    @classmethod
    def of(cls, pairs: Iterable[tuple[Rule, _Item]]) -> "RuleIndex[_Item]":
        items: dict[_Key, list[tuple[Rule, _Item]]] = {}
        for rule, item in pairs:
            items.setdefault(_key(rule), []).append((rule, item))
        return cls({key: _AtHost.of(of) for key, of in items.items()})

    def plus(self, rule: Rule, item: _Item) -> "RuleIndex[_Item]":
        """One pair more; the rest is shared, so that adding to a long list costs a copy of its keys alone."""
        key = _key(rule)
        found = self._items.get(key)
        return RuleIndex(
            {**self._items, key: found.plus(rule, item) if found else _AtHost.of([(rule, item)])}
        )

    def without(self, gone: Collection[tuple[Rule, _Item]]) -> "RuleIndex[_Item]":
        """Fewer pairs: what has no part in the change is shared, however many go at once."""
        items, by_key = dict(self._items), dict[_Key, set[_Item]]()
        for rule, item in gone:
            by_key.setdefault(_key(rule), set()).add(item)
        for key, out in by_key.items():
            left = [pair for pair in items.pop(key, ()) if pair[1] not in out]
            if left:
                items[key] = _AtHost.of(left)
        return RuleIndex(items)

    @property
    def is_empty(self) -> bool:
        return not self._items

    def matching(self, target: Target) -> Iterable[tuple[Rule, _Item]]:
        """Pairs whose rule matches, the closest pattern first."""
        return self._found(target) if self._items else ()

    def beside(self, rule: Rule) -> Iterable[tuple[Rule, _Item]]:
        """Pairs whose rule has the same pattern and the same ports."""
        found = self._items.get(_key(rule))
        return () if found is None else found.with_ports(rule.ports)

    def _found(self, target: Target) -> Iterator[tuple[Rule, _Item]]:
        for key in _keys(target.host):
            at_host = self._items.get(key)
            if at_host is None:
                continue
            for rule, item in at_host.for_port(target.port):
                if rule.matches(target):
                    yield rule, item

    def __iter__(self) -> Iterator[tuple[Rule, _Item]]:
        for at_host in self._items.values():
            yield from at_host


def _key(rule: Rule) -> _Key:
    # A name counts by its text: no object has to be made for each parent of one that is asked for.
    return (rule.scope, rule.host.text if isinstance(rule.host, Name) else rule.host)


def _keys(host: Host) -> list[_Key]:
    if not isinstance(host, Name):
        return [(Scope.EXACT, host)]
    parent = host.text
    keys: list[_Key] = [(Scope.EXACT, parent), (Scope.APEX_AND_BELOW, parent)]
    while "." in parent:
        parent = parent.partition(".")[2]
        keys += ((Scope.BELOW, parent), (Scope.APEX_AND_BELOW, parent))
    return keys
