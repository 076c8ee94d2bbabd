"""Refusals that come in a flood are counted: one client without a token must not fill a disk in a day.

The first ones are written each by itself; what comes faster than a person reads is told once a second, with
its number. No clock and no I/O. Next: record.py (the caller), core/events.py (Decided, Repeated).
"""

from dataclasses import dataclass
from typing import TypeVar

from egress_proxy.core.access import Client
from egress_proxy.core.decision import Reason
from egress_proxy.core.events import Decided, Repeated
from egress_proxy.core.host import Target

# Of one client for one target with one reason: as many as a program in a loop makes before somebody looks.
SAME_BURST, SAME_PER_S = 100, 1.0
# Of one client, whatever it asks for: 5 lines a second are 250 MB a day.
CLIENT_BURST, CLIENT_PER_S = 300, 5.0
# Beyond so many at a time there is one count for all that are new.
KEYS_LIMIT = 1_024

_Caller = tuple[str, str]
_Same = tuple[str, str, Target | None, Reason | None]
_Key = TypeVar("_Key", _Caller, _Same)


@dataclass(slots=True)
class _Bucket:
    left: float
    at_s: float

    def takes(self, now_s: float, burst: int, per_s: float) -> bool:
        self.left = min(burst, self.left + (now_s - self.at_s) * per_s)
        self.at_s = now_s
        if self.left < 1:
            return False
        self.left -= 1
        return True


@dataclass(slots=True)
class _Count:
    client: Client
    peer: str
    times: int = 0


class Repeats:
    """``now_s``: any clock that only goes forward."""

    def __init__(self) -> None:
        self._callers: dict[_Caller, _Bucket] = {}
        self._same: dict[_Same, _Bucket] = {}
        self._counts: dict[_Same, _Count] = {}

    def __bool__(self) -> bool:
        """Whether something was counted that is not told yet."""
        return bool(self._counts)

    def passes(self, refusal: Decided, now_s: float) -> bool:
        """Whether to write it by itself; otherwise it is counted."""
        caller = (refusal.client.id, refusal.peer.rpartition(":")[0])
        same = (*caller, refusal.target, refusal.reason)
        own = _bucket(self._same, same, SAME_BURST, now_s)
        if own is None or not own.takes(now_s, SAME_BURST, SAME_PER_S):
            self._count(same if own is not None else (*caller, None, None), refusal)
            return False
        whole = _bucket(self._callers, caller, CLIENT_BURST, now_s)
        if whole is None or not whole.takes(now_s, CLIENT_BURST, CLIENT_PER_S):
            self._count((*caller, None, None), refusal)
            return False
        return True

    def take(self, now_s: float) -> tuple[Repeated, ...]:
        """What was counted since the last call."""
        told = tuple(
            Repeated(count.client, count.peer, target, reason, count.times)
            for (*_, target, reason), count in self._counts.items()
        )
        self._counts.clear()
        self._same = _not_full(self._same, now_s, SAME_BURST, SAME_PER_S)
        self._callers = _not_full(self._callers, now_s, CLIENT_BURST, CLIENT_PER_S)
        return told

    def _count(self, key: _Same, refusal: Decided) -> None:
        if key not in self._counts and len(self._counts) >= KEYS_LIMIT:
            key = ("", "", None, None)
        count = self._counts.setdefault(key, _Count(refusal.client, key[1]))
        count.times += 1


def _bucket(buckets: dict[_Key, _Bucket], key: _Key, burst: int, now_s: float) -> _Bucket | None:
    bucket = buckets.get(key)
    if bucket is None and len(buckets) < KEYS_LIMIT:
        bucket = buckets[key] = _Bucket(burst, now_s)
    return bucket


def _not_full(buckets: dict[_Key, _Bucket], now_s: float, burst: int, per_s: float) -> dict[_Key, _Bucket]:
    return {
        key: bucket for key, bucket in buckets.items() if bucket.left + (now_s - bucket.at_s) * per_s < burst
    }
