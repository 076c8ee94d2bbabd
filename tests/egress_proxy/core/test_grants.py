"""Rules of core/grants.py: how a grant ends, and that a snapshot never changes.

Random sequences are in ../../properties/test_grants.py; what a grant can lift is in test_policy.py.
"""

import dataclasses

import pytest

from egress_proxy.core.grants import Grant, Grants, Limits, make_grant
from egress_proxy.core.host import parse_authority
from tests.egress_proxy.core.entries import NOW, allow_entry, grant


def store(*grants: Grant) -> Grants:
    return Grants.of({one.id: one for one in grants})


def found(grants: Grants, authority: str) -> list[str]:
    return [one.id for one in grants.matching(parse_authority(authority))]


def test_a_grant_without_limits_never_ends() -> None:
    one = grant("g", "a.example")
    assert one.is_unlimited
    assert one.can_admit(NOW + 1e9)
    assert store(one).expired(NOW + 1e9) == ()


def test_a_grant_ends_at_its_time_and_not_before() -> None:
    one = grant("g", "a.example", ttl_s=60)
    assert one.expires_at == NOW + 60
    assert one.can_admit(NOW + 59.9)
    for now in (NOW + 60, NOW + 61):
        assert not one.can_admit(now)
        assert not one.is_live(now)
    assert [ended.id for ended in store(one).expired(NOW + 60)] == ["g"]


@pytest.mark.parametrize("ttl_s", [0, -1, float("nan")])
def test_a_time_that_is_no_time_gives_no_access(ttl_s: float) -> None:
    assert not grant("g", "a.example", ttl_s=ttl_s).can_admit(NOW)


def test_a_grant_admits_as_many_connections_as_it_has_uses() -> None:
    grants: Grants | None = store(grant("g", "a.example", max_uses=2))
    for left in (1, 0):
        assert grants is not None
        grants = grants.spend_use("g")
        assert grants is not None
        assert grants.by_id["g"].uses_left == left
    assert grants is not None
    assert not grants.by_id["g"].can_admit(NOW)
    assert grants.spend_use("g") is None


def test_the_connection_of_the_last_use_may_go_on() -> None:
    spent = store(grant("g", "a.example", max_uses=1)).spend_use("g")
    assert spent is not None
    assert spent.by_id["g"].is_live(NOW)
    assert spent.expired(NOW) == ()


@pytest.mark.parametrize("uses", [0, -1])
def test_no_use_can_be_taken_where_none_is_left(uses: int) -> None:
    grants = store(grant("g", "a.example", max_uses=uses))
    assert not grants.by_id["g"].can_admit(NOW)
    assert grants.spend_use("g") is None


def test_a_use_that_got_no_200_is_given_back() -> None:
    grants = store(grant("g", "a.example", max_uses=1))
    spent = grants.spend_use("g")
    assert spent is not None
    assert spent.give_back_use("g").by_id == grants.by_id


def test_uses_of_a_grant_without_that_limit_are_not_counted() -> None:
    grants = store(grant("g", "a.example"))
    assert grants.spend_use("g") is grants
    assert grants.give_back_use("g") is grants
    assert grants.spend_bytes("g", 10**9) is grants


def test_a_grant_ends_with_its_bytes() -> None:
    grants = store(grant("g", "a.example", max_bytes_out=100))
    almost = grants.spend_bytes("g", 99)
    assert almost.by_id["g"].is_live(NOW)
    for over in (1, 2, 10**9):
        ended = almost.spend_bytes("g", over)
        assert ended.by_id["g"].bytes_left == 0
        assert not ended.by_id["g"].is_live(NOW)
        assert not ended.by_id["g"].can_admit(NOW)
        assert [one.id for one in ended.expired(NOW)] == ["g"]


def test_spending_what_is_not_there_changes_nothing() -> None:
    grants = store(grant("g", "a.example", max_uses=1))
    assert grants.spend_use("other") is None
    assert grants.give_back_use("other") is grants
    assert grants.spend_bytes("other", 1) is grants
    assert grants.remove(["other"]).by_id == grants.by_id


def test_a_removed_grant_is_found_no_more() -> None:
    grants = store(grant("g0", "a.example"), grant("g1", "*.example.org"))
    assert found(grants, "a.example:443") == ["g0"]
    assert found(grants.remove(["g0"]), "a.example:443") == []
    assert found(grants.remove(["g0"]), "b.example.org:443") == ["g1"]


def test_ended_grants_are_still_found_so_that_a_refusal_can_name_them() -> None:
    assert found(store(grant("g", "a.example", max_uses=0)), "a.example:443") == ["g"]
    assert found(store(grant("g", "a.example", ttl_s=-1)), "a.example:443") == ["g"]


def test_what_was_spent_is_found_under_the_same_entry() -> None:
    spent = store(grant("g", "*.a.example", max_uses=5, max_bytes_out=9)).spend_use("g")
    assert spent is not None
    assert found(spent.spend_bytes("g", 1), "x.a.example:443") == ["g"]
    assert [one.uses_left for one in spent.matching(parse_authority("x.a.example:443"))] == [4]


def test_a_snapshot_never_changes() -> None:
    before = store(grant("g", "a.example", max_uses=1, max_bytes_out=9))
    before.add(grant("h", "b.example"))
    before.spend_use("g")
    before.spend_bytes("g", 5)
    before.remove(["g"])
    assert before.by_id == {"g": grant("g", "a.example", max_uses=1, max_bytes_out=9)}
    assert found(before, "b.example:443") == []
    with pytest.raises(TypeError):
        before.by_id["h"] = grant("h", "b.example")  # type: ignore[index]
    with pytest.raises(dataclasses.FrozenInstanceError):
        before.by_id["g"].uses_left = 7  # type: ignore[misc]


def test_the_callers_mapping_is_copied() -> None:
    mapping = {"g": grant("g", "a.example")}
    grants = Grants.of(mapping)
    mapping["h"] = grant("h", "b.example")
    assert grants.by_id.keys() == {"g"}


def test_there_are_no_grants_at_first() -> None:
    assert Grants().by_id == {}
    assert found(Grants(), "a.example:443") == []


def test_grants_of_the_same_entry_are_found_whatever_reason_was_given() -> None:
    scoped = allow_entry("a.example", client="build", reason="tests")
    grants = store(grant("g", scoped), grant("h", "a.example:443"), grant("i", "a.example"))
    asked = allow_entry("A.example", client="build", reason="another")
    assert [one.id for one in grants.under(asked)] == ["g"]
    assert [one.id for one in grants.under(allow_entry("a.example"))] == ["i"]


def test_making_a_grant_counts_time_from_now() -> None:
    rule = allow_entry("a.example")
    made = make_grant("g", rule, Limits(ttl_s=1.5, max_uses=3, max_bytes_out=4), 7.0, NOW)
    assert made == Grant("g", rule, NOW, NOW + 1.5, 3, 4, ends_at=8.5)
    assert not made.is_unlimited
    assert not any(
        grant("g", rule, **{limit: 1}).is_unlimited for limit in ("ttl_s", "max_uses", "max_bytes_out")
    )
