"""Grants: any sequence of making, spending, giving back, expiring and revoking, beside a naive book.

One rule at a time is in ../egress_proxy/core/test_grants.py.
"""

import dataclasses

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from egress_proxy.core.access import Access, Client, Door
from egress_proxy.core.decision import Allow, Deny, Reason
from egress_proxy.core.grants import Grants, Limits, make_grant
from egress_proxy.core.host import parse_authority
from egress_proxy.core.policy import Policy, decide
from egress_proxy.core.rules import Rule, Suffix, parse_rule
from tests.properties.oracle import entry_covers

ENTRIES = ["a.ok.example", "*.ok.example", "**.ok.example:*", "b.a.ok.example:22", "127.0.0.1:80"]
ASKED = ["a.ok.example:443", "b.a.ok.example:22", "ok.example:80", "127.0.0.1:80", "c.test:443"]
CLIENTS = ["anonymous", "build"]


def entry(text: str, client: str | None) -> Rule:
    return parse_rule(text, lambda _: Suffix.NONE, client=client)


@dataclasses.dataclass
class Line:
    """One grant in the book; None: without that limit."""

    rule: Rule
    end: float | None
    uses: int | None
    bytes: int | None

    def covers(self, target: str, client: str) -> bool:
        return entry_covers(str(self.rule), target) and self.rule.client in (None, client)

    def over(self, now: float) -> bool:
        return (self.end is not None and now >= self.end) or self.bytes == 0


class GrantsBesideABook(RuleBasedStateMachine):
    made = Bundle("made")

    @initialize()
    def open_the_book(self) -> None:
        self.grants = Grants()
        self.book: dict[str, Line] = {}
        self.now = 1000.0
        self.count = 0

    @rule(
        target=made,
        text=st.sampled_from(ENTRIES),
        client=st.none() | st.sampled_from(CLIENTS),
        ttl_s=st.none() | st.integers(1, 20),
        uses=st.none() | st.integers(1, 3),
        limit=st.none() | st.integers(1, 100),
    )
    def make(
        self, text: str, client: str | None, ttl_s: int | None, uses: int | None, limit: int | None
    ) -> str:
        self.count += 1
        grant_id = f"g{self.count}"
        made = make_grant(grant_id, entry(text, client), Limits(ttl_s, uses, limit), self.now, 0.0)
        self.grants = self.grants.add(made)
        end = None if ttl_s is None else self.now + ttl_s
        self.book[grant_id] = Line(entry(text, client), end, uses, limit)
        return grant_id

    @rule(grant_id=made)
    def spend_a_use(self, grant_id: str) -> None:
        after = self.grants.spend_use(grant_id)
        line = self.book.get(grant_id)
        if line is None or line.uses == 0:
            assert after is None
            return
        assert after is not None
        self.grants = after
        line.uses = None if line.uses is None else line.uses - 1

    @rule(grant_id=made)
    def give_a_use_back(self, grant_id: str) -> None:
        self.grants = self.grants.give_back_use(grant_id)
        line = self.book.get(grant_id)
        if line is not None and line.uses is not None:
            line.uses += 1

    @rule(grant_id=made, count=st.integers(0, 60))
    def spend_bytes(self, grant_id: str, count: int) -> None:
        self.grants = self.grants.spend_bytes(grant_id, count)
        line = self.book.get(grant_id)
        if line is not None and line.bytes is not None:
            line.bytes = max(line.bytes - count, 0)

    @rule(seconds=st.integers(0, 8))
    def wait(self, seconds: int) -> None:
        self.now += seconds

    @rule(grant_id=consumes(made))
    def revoke(self, grant_id: str) -> None:
        self.grants = self.grants.remove([grant_id])
        self.book.pop(grant_id, None)

    @rule()
    def drop_what_is_over(self) -> None:
        over = {one.id for one in self.grants.expired(self.now)}
        assert over == {grant_id for grant_id, line in self.book.items() if line.over(self.now)}
        for grant_id in over:
            self.grants = self.grants.remove([grant_id])
            del self.book[grant_id]

    @rule(text=st.sampled_from(ASKED), client=st.sampled_from(CLIENTS))
    def connect(self, text: str, client: str) -> None:
        """As the service does: decide, then take one use of the grant that admitted."""
        access = Access(Client(client), parse_authority(text), Door.TUNNEL)
        decision = decide(access, Policy(), self.grants, self.now)
        covering = [
            line for line in self.book.values() if line.covers(text, client) and not line.over(self.now)
        ]
        if not isinstance(decision, Allow):
            assert isinstance(decision, Deny)
            assert all(line.uses == 0 for line in covering)
            assert decision.reason is (Reason.GRANT_EXHAUSTED if covering else Reason.NOT_LISTED)
            return
        assert decision.grant_id is not None
        line = self.book[decision.grant_id]
        assert line in covering
        assert line.uses != 0
        self.spend_a_use(decision.grant_id)

    @invariant()
    def the_book_is_right(self) -> None:
        if not hasattr(self, "book"):
            return
        stored = {
            one.id: (one.rule, one.ends_at, one.uses_left, one.bytes_left)
            for one in self.grants.by_id.values()
        }
        assert stored == {
            key: (line.rule, line.end, line.uses, line.bytes) for key, line in self.book.items()
        }

    @invariant()
    def every_grant_is_found_under_its_entry(self) -> None:
        if not hasattr(self, "book"):
            return
        for text in ASKED:
            found = {one.id for one in self.grants.matching(parse_authority(text))}
            assert found == {key for key, line in self.book.items() if entry_covers(str(line.rule), text)}


TestGrants = GrantsBesideABook.TestCase
