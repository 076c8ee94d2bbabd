"""Rules of the session's grants in memory: the store does what core says, and decide() sees it at once.

How a grant ends by itself is core's (test_grants.py); here is the state that changes.
See egress_proxy/proxy/grant_store.py.
"""

import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress_proxy.core.decision import Allow, Deny, Reason
from egress_proxy.core.grants import Grant, Grants, Limits
from egress_proxy.core.policy import decide
from egress_proxy.core.seams import GrantStore
from egress_proxy.proxy.grant_store import MemoryGrantStore
from tests.egress_proxy.core.entries import NOW, allow_entry, connect, policy

NOTHING_LISTED = policy()


class Clock:
    now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> MemoryGrantStore:
    return MemoryGrantStore(clock, clock)


def add(store: MemoryGrantStore, entry: str = "a.example", **limits: Any) -> Grant:
    return store.add(allow_entry(entry), Limits(**limits))


def decided(store: MemoryGrantStore, authority: str = "a.example:443", now: float = NOW) -> Allow | Reason:
    decision = decide(connect(authority), NOTHING_LISTED, store.snapshot(), now)
    assert isinstance(decision, Allow | Deny)
    return decision.reason if isinstance(decision, Deny) else decision


def test_it_is_a_grant_store(store: MemoryGrantStore) -> None:
    seam: GrantStore = store
    assert seam.snapshot() == Grants()


def test_a_grant_counts_from_the_next_decision_on(store: MemoryGrantStore) -> None:
    assert decided(store) is Reason.NOT_LISTED
    grant = add(store)
    allow = decided(store)
    assert isinstance(allow, Allow)
    assert allow.grant_id == grant.id
    assert decided(store, "b.example:443") is Reason.NOT_LISTED


def test_a_revoked_grant_counts_no_more(store: MemoryGrantStore) -> None:
    grant = add(store)
    assert store.revoke(grant.id) == grant
    assert decided(store) is Reason.NOT_LISTED
    assert store.revoke(grant.id) is None
    assert store.revoke("g-unknown") is None


def test_time_is_counted_from_the_grant_by_the_stores_clock(store: MemoryGrantStore, clock: Clock) -> None:
    clock.now += 1000
    grant = add(store, ttl_s=60)
    assert (grant.created_at, grant.expires_at) == (NOW + 1000, NOW + 1060)
    assert isinstance(decided(store, now=NOW + 1059), Allow)
    assert not isinstance(decided(store, now=NOW + 1060), Allow)


def test_a_time_of_day_that_is_set_back_lengthens_no_grant() -> None:
    clock, time_of_day = Clock(), Clock()
    clock.now = 100.0
    store = MemoryGrantStore(clock, time_of_day)
    grant = add(store, ttl_s=3)
    assert (grant.created_at, grant.expires_at) == (NOW, NOW + 3)
    time_of_day.now -= 3600
    assert isinstance(decided(store, now=102.9), Allow)
    assert decided(store, now=103.0) is Reason.NOT_LISTED
    clock.now = 103.0  # a machine that slept counts, too: see steady_clock.py
    assert store.drop_ended() == (grant,)


def test_a_time_of_day_that_is_set_forward_ends_no_grant() -> None:
    clock, time_of_day = Clock(), Clock()
    store = MemoryGrantStore(clock, time_of_day)
    add(store, ttl_s=3)
    time_of_day.now += 3600
    assert store.drop_ended() == ()
    assert isinstance(decided(store, now=clock.now), Allow)


def test_saying_the_same_twice_is_one_grant(store: MemoryGrantStore) -> None:
    first = add(store)
    assert add(store) == first
    assert store.add(allow_entry("A.example", reason="again"), Limits()) == first
    assert list(store.snapshot().by_id) == [first.id]


def test_what_has_a_limit_or_another_client_is_a_grant_of_its_own(store: MemoryGrantStore) -> None:
    made = [
        add(store),
        add(store, max_uses=1),
        add(store, max_uses=1),
        add(store, ttl_s=60),
        add(store, max_bytes_out=9),
        add(store, "a.example:443"),
        add(store, "*.a.example"),
        store.add(allow_entry("a.example", client="build"), Limits()),
    ]
    assert len({grant.id for grant in made}) == len(made)
    assert set(store.snapshot().by_id.values()) == set(made)


def test_an_unlimited_grant_is_not_found_in_a_limited_one(store: MemoryGrantStore) -> None:
    limited = add(store, max_uses=1)
    assert add(store).id != limited.id
    assert add(store).is_unlimited


def test_ids_tell_nothing_and_are_safe_in_a_path(store: MemoryGrantStore) -> None:
    ids = {add(store, f"h{number}.example", max_uses=1).id for number in range(100)}
    assert len(ids) == 100
    assert all(text.startswith("g-") and text[2:].isalnum() and text.isascii() for text in ids)


def test_uses_are_taken_one_by_one_and_given_back(store: MemoryGrantStore) -> None:
    grant = add(store, max_uses=2)
    assert [store.spend_use(grant.id) for _ in range(3)] == [True, True, False]
    assert decided(store) is Reason.GRANT_EXHAUSTED
    store.give_back_use(grant.id)
    assert isinstance(decided(store), Allow)
    assert store.spend_use(grant.id)
    assert not store.spend_use(grant.id)


def test_a_grant_without_that_limit_has_uses_and_bytes_without_end(store: MemoryGrantStore) -> None:
    grant = add(store)
    assert all(store.spend_use(grant.id) and store.spend_bytes(grant.id, 10**9) for _ in range(5))
    assert store.snapshot().by_id == {grant.id: grant}


def test_bytes_are_taken_until_more_is_asked_for_than_there_is(store: MemoryGrantStore) -> None:
    grant = add(store, max_bytes_out=100)
    assert store.spend_bytes(grant.id, 60)
    assert store.spend_bytes(grant.id, 40)
    assert not store.spend_bytes(grant.id, 1)
    assert decided(store) is Reason.NOT_LISTED


def test_asking_for_too_many_bytes_ends_the_grant(store: MemoryGrantStore) -> None:
    """Else a client could find out by trying how much is left, and use it to the last byte."""
    grant = add(store, max_bytes_out=100)
    assert not store.spend_bytes(grant.id, 101)
    assert not store.spend_bytes(grant.id, 1)
    assert store.snapshot().by_id[grant.id].bytes_left == 0


@pytest.mark.parametrize(
    "spend",
    [lambda store: store.spend_use("g-unknown"), lambda store: store.spend_bytes("g-unknown", 1)],
)
def test_nothing_can_be_taken_from_a_grant_that_is_gone(
    spend: Callable[[MemoryGrantStore], bool], store: MemoryGrantStore
) -> None:
    assert spend(store) is False
    store.give_back_use("g-unknown")
    assert store.snapshot() == Grants()


def test_giving_a_use_back_to_a_revoked_grant_does_not_bring_it_back(store: MemoryGrantStore) -> None:
    grant = add(store, max_uses=1)
    store.spend_use(grant.id)
    store.revoke(grant.id)
    store.give_back_use(grant.id)
    assert decided(store) is Reason.NOT_LISTED


def test_what_has_ended_is_dropped_once_and_named(store: MemoryGrantStore, clock: Clock) -> None:
    timed, sized, lasting = add(store, ttl_s=60), add(store, max_bytes_out=1), add(store)
    used_up = add(store, max_uses=1)
    store.spend_use(used_up.id)  # its tunnel may go on, so it stays
    assert store.drop_ended() == ()
    store.spend_bytes(sized.id, 1)
    clock.now += 60
    assert {grant.id for grant in store.drop_ended()} == {timed.id, sized.id}
    assert store.drop_ended() == ()
    assert set(store.snapshot().by_id) == {lasting.id, used_up.id}


def test_a_snapshot_is_not_changed_by_what_comes_later(store: MemoryGrantStore) -> None:
    grant = add(store, max_uses=1)
    before = store.snapshot()
    store.spend_use(grant.id)
    add(store, "b.example")
    store.revoke(grant.id)
    assert before.by_id == {grant.id: grant}


@pytest.mark.parametrize("hosts", [10_000, 1])
def test_ten_thousand_grants_that_end_together_leave_at_once(
    hosts: int, store: MemoryGrantStore, clock: Clock
) -> None:
    """A laptop that slept past their end: one rebuild for each of them stood still for 50 s."""
    for number in range(10_000):
        add(store, f"h{number % hosts}.example", ttl_s=60 + number % 2)
    clock.now += 60
    began = time.process_time()
    assert len(store.drop_ended()) == 5_000
    clock.now += 1
    assert len(store.drop_ended()) == 5_000
    assert time.process_time() - began < 1.0  # it takes 0.05 on a machine that is at rest
    assert store.snapshot() == Grants()


def test_a_grant_beside_ten_thousand_others_is_made_and_found_in_a_moment(store: MemoryGrantStore) -> None:
    for number in range(9_990):
        add(store, f"h{number}.example", ttl_s=60)
    began = time.process_time()
    for number in range(10):
        assert add(store, "a.example", max_uses=1).id != add(store).id
        store.revoke(add(store, f"h{number}.example").id)
    assert time.process_time() - began < 1.0  # 0.01 for each change on a machine at rest


def test_many_are_dropped_at_once_whether_they_are_there_or_not(store: MemoryGrantStore) -> None:
    first, second, third = (add(store, f"{name}.example") for name in "abc")
    store.drop([first.id, third.id, "g-unknown"])
    assert store.snapshot().by_id == {second.id: second}
    assert decided(store) is Reason.NOT_LISTED


ENTRIES = st.sampled_from(["a.example", "b.example", "*.example.org"])
LIMITS = st.builds(
    Limits,
    ttl_s=st.none() | st.integers(0, 5).map(float),
    max_uses=st.none() | st.integers(0, 3),
    max_bytes_out=st.none() | st.integers(0, 20),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), ENTRIES, LIMITS),
        st.tuples(st.sampled_from(["revoke", "use", "back"]), st.integers(0, 5)),
        st.tuples(st.just("bytes"), st.integers(0, 5), st.integers(1, 15)),
        st.tuples(st.just("later"), st.integers(0, 3)),
        st.tuples(st.just("drop")),
    ),
    max_size=25,
)


@given(STEPS)
def test_any_sequence_of_changes_is_what_core_makes_of_it(steps: list[tuple[Any, ...]]) -> None:
    clock = Clock()
    store, model, ids = MemoryGrantStore(clock, clock), Grants(), []
    for step in steps:
        match step:
            case ("add", entry, limits):
                grant = store.add(allow_entry(entry), limits)
                if grant.id not in ids:
                    ids.append(grant.id)
                    model = model.add(grant)
            case ("later", seconds):
                clock.now += seconds
            case ("drop",):
                ended = model.expired(clock.now)
                assert set(store.drop_ended()) == set(ended)
                model = Grants.of({key: one for key, one in model.by_id.items() if one not in ended})
            case (change, number, *rest) if number < len(ids):
                model = changed(store, model, change, ids[number], *rest)
        assert store.snapshot().by_id == model.by_id
        for authority in ("a.example:443", "x.example.org:80"):
            assert decide(connect(authority), NOTHING_LISTED, store.snapshot(), clock.now) == decide(
                connect(authority), NOTHING_LISTED, model, clock.now
            )


def changed(store: MemoryGrantStore, model: Grants, change: str, grant_id: str, count: int = 0) -> Grants:
    """One change of one grant in both; the answers must agree."""
    known = model.by_id.get(grant_id)
    match change:
        case "revoke":
            assert store.revoke(grant_id) == known
            return model.remove([grant_id])
        case "use":
            spent = model.spend_use(grant_id)
            assert store.spend_use(grant_id) is (spent is not None)
            return model if spent is None else spent
        case "back":
            store.give_back_use(grant_id)
            return model.give_back_use(grant_id)
        case _:
            enough = known is not None and (known.bytes_left is None or known.bytes_left >= count)
            assert store.spend_bytes(grant_id, count) is enough
            return model.spend_bytes(grant_id, count)
