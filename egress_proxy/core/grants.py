"""Grants: allow entries with an end. Pure; the time comes in as an argument.

No storage and no locks here: proxy/grant_store.py keeps one `Grants` value and swaps it.
Next: policy.py (reads grants), rules.py (what a grant allows), seams.py (GrantStore).
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from egress_proxy.core.host import Target
from egress_proxy.core.rule_index import RuleIndex
from egress_proxy.core.rules import Rule


@dataclass(frozen=True, slots=True)
class Limits:
    """How a grant ends. None: not by this. ``ttl_s`` counts from the grant; bytes are those sent out."""

    ttl_s: float | None = None
    max_uses: int | None = None
    max_bytes_out: int | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """``ends_at`` decides, by a clock that nobody sets. ``created_at`` and ``expires_at`` are for showing,
    seconds since the epoch, UTC. The client it is scoped to stands in the rule."""

    id: str
    rule: Rule
    created_at: float
    expires_at: float | None = None
    uses_left: int | None = None
    bytes_left: int | None = None
    ends_at: float | None = None

    def is_live(self, now: float) -> bool:
        """Whether an open tunnel may rest on it: neither time nor bytes have run out."""
        in_time = self.ends_at is None or now < self.ends_at
        return in_time and (self.bytes_left is None or self.bytes_left > 0)

    def can_admit(self, now: float) -> bool:
        """Whether it may admit one more connection."""
        return self.is_live(now) and (self.uses_left is None or self.uses_left > 0)

    @property
    def is_unlimited(self) -> bool:
        return self.ends_at is None and self.uses_left is None and self.bytes_left is None


def make_grant(grant_id: str, rule: Rule, limits: Limits, now: float, time_of_day: float) -> Grant:
    """``now`` by the clock that decides; ``time_of_day``: seconds since the epoch, for people."""
    expires_at, ends_at = (
        None if limits.ttl_s is None else begin + limits.ttl_s for begin in (time_of_day, now)
    )
    return Grant(
        grant_id, rule, time_of_day, expires_at, limits.max_uses, limits.max_bytes_out, ends_at=ends_at
    )


@dataclass(frozen=True, slots=True)
class Grants:
    """A snapshot. Every change returns a new one; decide() reads the one it was given."""

    by_id: Mapping[str, Grant] = field(default_factory=lambda: MappingProxyType({}))
    _index: RuleIndex[str] = field(default_factory=RuleIndex)

    @classmethod
    def of(cls, by_id: Mapping[str, Grant]) -> "Grants":
        index = RuleIndex.of((grant.rule, grant.id) for grant in by_id.values())
        return cls(MappingProxyType(dict(by_id)), index)

    def matching(self, target: Target) -> Iterator[Grant]:
        """Grants whose rule covers the target, spent and expired ones included."""
        for _, grant_id in self._index.matching(target):
            yield self.by_id[grant_id]

    def under(self, rule: Rule) -> Iterator[Grant]:
        """Grants made with just this rule, but for the reason given."""
        for other, grant_id in self._index.beside(rule):
            if (other.client, other.private) == (rule.client, rule.private):
                yield self.by_id[grant_id]

    def add(self, grant: Grant) -> "Grants":
        """A new one, with an id that no other has."""
        index = self._index.plus(grant.rule, grant.id)
        return Grants(MappingProxyType({**self.by_id, grant.id: grant}), index)

    def remove(self, grant_ids: Collection[str]) -> "Grants":
        """All at once: thousands may end in one moment, and the loop waits for this."""
        gone = [self.by_id[one] for one in grant_ids if one in self.by_id]
        if not gone:
            return self
        left = dict(self.by_id)
        for grant in gone:
            left.pop(grant.id, None)
        if len(gone) > len(left):
            return Grants.of(left)  # the shorter way
        return Grants(MappingProxyType(left), self._index.without([(one.rule, one.id) for one in gone]))

    def spend_use(self, grant_id: str) -> "Grants | None":
        """One use less; None when there is none left or no such grant."""
        grant = self.by_id.get(grant_id)
        if grant is None:
            return None
        if grant.uses_left is None:
            return self
        if grant.uses_left <= 0:
            return None
        return self._with(replace(grant, uses_left=grant.uses_left - 1))

    def give_back_use(self, grant_id: str) -> "Grants":
        """Undo `spend_use`, for a connection that never got its 200."""
        grant = self.by_id.get(grant_id)
        if grant is None or grant.uses_left is None:
            return self
        return self._with(replace(grant, uses_left=grant.uses_left + 1))

    def spend_bytes(self, grant_id: str, count: int) -> "Grants":
        grant = self.by_id.get(grant_id)
        if grant is None or grant.bytes_left is None:
            return self
        return self._with(replace(grant, bytes_left=max(0, grant.bytes_left - count)))

    def expired(self, now: float) -> tuple[Grant, ...]:
        return tuple(grant for grant in self.by_id.values() if not grant.is_live(now))

    def _with(self, grant: Grant) -> "Grants":
        # The rule is the same, so the index is.
        return Grants(MappingProxyType({**self.by_id, grant.id: grant}), self._index)
