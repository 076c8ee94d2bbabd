"""The grants of this session, in memory: they die with the process. Implements the GrantStore seam.

All changes happen on the event loop, between awaits, so there is no lock. The rules of spending are in
core/grants.py. Next: core/seams.py (the seam), fleet stores implement the same.
"""

import secrets
from collections.abc import Collection, Sequence

from egress_proxy.core.grants import Grant, Grants, Limits, make_grant
from egress_proxy.core.rules import Rule
from egress_proxy.core.seams import Clock, Now

_UNLIMITED = Limits()


class MemoryGrantStore:
    def __init__(self, clock: Clock, time_of_day: Now) -> None:
        self._clock = clock
        self._time_of_day = time_of_day
        self._grants = Grants()

    def snapshot(self) -> Grants:
        return self._grants

    def add(self, rule: Rule, limits: Limits) -> Grant:
        if limits == _UNLIMITED:
            for grant in self._grants.under(rule):
                if grant.is_unlimited:
                    return grant  # saying it twice is no second grant
        grant = make_grant(f"g-{secrets.token_hex(6)}", rule, limits, self._clock(), self._time_of_day())
        self._grants = self._grants.add(grant)
        return grant

    def revoke(self, grant_id: str) -> Grant | None:
        grant = self._grants.by_id.get(grant_id)
        if grant is not None:
            self._grants = self._grants.remove((grant_id,))
        return grant

    def drop(self, grant_ids: Collection[str]) -> None:
        self._grants = self._grants.remove(grant_ids)

    def spend_use(self, grant_id: str) -> bool:
        spent = self._grants.spend_use(grant_id)
        if spent is None:
            return False
        self._grants = spent
        return True

    def give_back_use(self, grant_id: str) -> None:
        self._grants = self._grants.give_back_use(grant_id)

    def spend_bytes(self, grant_id: str, count: int) -> bool:
        grant = self._grants.by_id.get(grant_id)
        if grant is None or (grant.bytes_left is not None and grant.bytes_left < count):
            self._grants = self._grants.spend_bytes(grant_id, count)
            return False
        self._grants = self._grants.spend_bytes(grant_id, count)
        return True

    def drop_ended(self) -> Sequence[Grant]:
        ended = self._grants.expired(self._clock())
        self._grants = self._grants.remove([grant.id for grant in ended])
        return ended
