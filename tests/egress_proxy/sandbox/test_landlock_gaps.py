"""The Landlock columns of the enforcement table: which dimension is below full, and why."""

import pytest

from egress_proxy.sandbox.landlock_gaps import Rung, gaps
from egress_proxy.sandbox.spec import (
    Dimension,
    Egress,
    Enforcement,
    NoNetwork,
    OpenNetwork,
    PortsOnly,
    ThroughProxy,
    overall,
)

D = Dimension
NONE, PROXY, PORTS, OPEN = NoNetwork(), ThroughProxy("/a", 1), PortsOnly(frozenset({443})), OpenNetwork()
EVERY_ABI = range(1, 11)
ALWAYS = {D.METADATA, D.VISIBILITY, D.PROTECTED}
ALONE = {D.EGRESS, D.CONTROL, D.INBOUND, D.IPC, D.LIMITS, D.TERMINAL, D.LIFETIME}


def below_full(rung: Rung, egress: Egress) -> set[Dimension]:
    return {gap.dimension for gap in gaps(rung, egress)}


def reasons(rung: Rung, egress: Egress, dimension: Dimension) -> set[str]:
    return {gap.reason for gap in gaps(rung, egress) if gap.dimension is dimension}


@pytest.mark.parametrize("egress", [NONE, PROXY])
@pytest.mark.parametrize("abi", EVERY_ABI)
def test_with_filter_and_supervisor_egress_is_full_on_every_abi(abi: int, egress: Egress) -> None:
    expected = ALWAYS | ({D.WRITES} if abi < 3 else set()) | ({D.SIGNALS} if abi < 6 else set())
    assert below_full(Rung(abi), egress) == expected
    assert overall(gaps(Rung(abi), egress)) is (Enforcement.FULL if abi >= 3 else Enforcement.PARTIAL)


@pytest.mark.parametrize("abi", EVERY_ABI)
def test_without_the_filter_no_egress_is_full(abi: int) -> None:
    alone = Rung(abi, filtered=False, supervised=False)
    assert below_full(alone, NONE) >= ALWAYS | ALONE
    assert overall(gaps(alone, NONE)) is Enforcement.PARTIAL


@pytest.mark.parametrize("abi", EVERY_ABI)
def test_without_the_supervisor_the_proxy_is_not_the_only_way(abi: int) -> None:
    rung = Rung(abi, supervised=False)
    assert reasons(rung, PROXY, D.EGRESS) == {"landlock.unsupervised:hosts"}
    assert {D.IDENTITY, D.LIFETIME} <= below_full(rung, PROXY)
    assert not reasons(rung, NONE, D.EGRESS)


@pytest.mark.parametrize("abi", EVERY_ABI)
@pytest.mark.parametrize("egress", [PORTS, OPEN])
def test_ports_and_an_open_network_are_partial_by_what_they_are(abi: int, egress: Egress) -> None:
    assert overall(gaps(Rung(abi), egress)) is Enforcement.PARTIAL


def test_ports_are_not_held_below_abi_4() -> None:
    assert "landlock.abi<4:tcp" in reasons(Rung(3), PORTS, D.EGRESS)
    assert "landlock.abi<4:tcp" not in reasons(Rung(4), PORTS, D.EGRESS)


def test_the_reasons_say_which_abi_would_help() -> None:
    assert reasons(Rung(2), NONE, D.WRITES) == {"landlock.abi<3:truncate"}
    assert reasons(Rung(5), NONE, D.SIGNALS) == {"landlock.abi<6:signals"}
    assert reasons(Rung(3), NONE, D.METADATA) == {"landlock:metadata"}


@pytest.mark.parametrize(
    ("abi", "expected"),
    [
        (3, {"landlock.abi<4:tcp", "landlock.abi<10:udp", "seccomp.missing:sockets"}),
        (4, {"landlock.abi<10:udp", "seccomp.missing:sockets"}),
        (10, {"seccomp.missing:sockets"}),
    ],
)
def test_landlock_alone_leaves_open_what_its_abi_does_not_know(abi: int, expected: set[str]) -> None:
    assert reasons(Rung(abi, filtered=False), NONE, D.EGRESS) == expected


def test_a_mask_inside_a_root_is_a_gap() -> None:
    assert D.SECRETS not in below_full(Rung(7), NONE)
    assert D.SECRETS in {gap.dimension for gap in gaps(Rung(7), NONE, masks_in_roots=True)}


def test_names_in_roots_are_not_protected_at_all() -> None:
    (gap,) = [gap for gap in gaps(Rung(7), NONE) if gap.dimension is D.PROTECTED]
    assert gap.value is Enforcement.NONE
