"""What a profile does not hold is said, for exactly the policy that was asked for."""

from typing import Any

import pytest

from egress_proxy.sandbox.seatbelt import seatbelt_policy
from egress_proxy.sandbox.seatbelt_gaps import seatbelt_gaps
from egress_proxy.sandbox.spec import Dimension, Enforcement, Gap, overall

FULL, PARTIAL = Enforcement.FULL, Enforcement.PARTIAL


def gaps(**policy: Any) -> tuple[Gap, ...]:
    return seatbelt_gaps(seatbelt_policy(**policy))


def reasons(dimension: Dimension, **policy: Any) -> list[str]:
    return [gap.reason for gap in gaps(**policy) if gap.dimension is dimension]


@pytest.mark.parametrize(
    ("policy", "word", "egress"),
    [
        ({"network": False}, FULL, []),
        ({"network": False, "allowed_hosts": ["a.example"], "allow_resolver": True}, FULL, []),
        ({"allowed_hosts": []}, FULL, []),
        ({"proxy_port": 8899}, FULL, []),
        ({"allowed_hosts": ["localhost:8899", "[::1]:11434"]}, FULL, []),
        ({"proxy_port": 8899, "allow_resolver": True}, PARTIAL, ["resolver"]),
        ({"proxy_port": 8899, "allow_trust": True}, PARTIAL, ["certificate-fetches"]),
        ({"allowed_hosts": [], "allow_resolver": True}, PARTIAL, ["resolver"]),
        ({"allowed_hosts": ["a.example"]}, PARTIAL, ["port-only", "resolver", "certificate-fetches"]),
        ({"allowed_hosts": ["localhost:1", "127.0.0.2:1", "[::ffff:127.0.0.3]:1"]}, FULL, []),
        ({"allowed_hosts": ["localhost:1", "0.0.0.0:1"]}, PARTIAL,
         ["port-only", "resolver", "certificate-fetches"]),
        ({}, PARTIAL, ["open-egress", "resolver", "certificate-fetches"]),
    ],
)  # fmt: skip
def test_egress_is_full_only_where_nothing_else_gets_out(
    policy: dict[str, Any], word: Enforcement, egress: list[str]
) -> None:
    assert reasons(Dimension.EGRESS, **policy) == [f"seatbelt:{reason}" for reason in egress]
    assert overall(gaps(**policy)) is word


def test_the_control_port_is_out_of_reach_unless_every_port_is_open() -> None:
    for hosts in (None, ["localhost:*"], ["a.example:*"]):
        assert reasons(Dimension.CONTROL, allowed_hosts=hosts) == ["seatbelt:every-loopback-port"]
    for closed in ([], ["localhost:1"], ["a.example"]):
        assert reasons(Dimension.CONTROL, allowed_hosts=closed) == []
    assert reasons(Dimension.CONTROL, network=False) == []


def test_the_proxy_cannot_tell_sandboxes_apart() -> None:
    assert reasons(Dimension.IDENTITY, proxy_port=1) == ["seatbelt:shared-port"]
    assert reasons(Dimension.IDENTITY, network=False) == []


def test_what_no_policy_changes_is_always_said() -> None:
    dimensions = {gap.dimension for gap in gaps(network=False, home="/Users/u")}
    assert dimensions == {Dimension.IPC, Dimension.VISIBILITY, Dimension.LIFETIME}


@pytest.mark.parametrize(
    ("folder", "shared"),
    [
        ("/tmp", True),
        ("/private/tmp", True),
        ("/private", True),
        ("/var/folders/zz/x/T", True),
        ("/var/folders/zz/x", True),
        ("/var/folders/zz/x/T/egress-1", False),
        ("/private/tmp/egress-1", False),
        ("/Users/u/p", False),
    ],
)
@pytest.mark.parametrize("name", ["scratch", "writable_roots"])
def test_a_shared_folder_for_temporary_files_is_a_gap(name: str, folder: str, shared: bool) -> None:
    assert bool(reasons(Dimension.TMP, **{name: [folder]})) is shared


def test_a_terminal_that_is_handed_in_is_a_gap() -> None:
    assert reasons(Dimension.TERMINAL, interactive=True) == ["seatbelt.interactive:ioctl"]


def test_masks_and_protection_that_were_turned_off_are_gaps() -> None:
    assert Gap(Dimension.SECRETS, Enforcement.NONE, "seatbelt:unmasked") in gaps()
    assert Gap(Dimension.SECRETS, PARTIAL, "seatbelt:unmasked") in gaps(masks=["/Users/u/.ssh"])
    assert reasons(Dimension.SECRETS, home="/Users/u") == []
    assert reasons(Dimension.PROTECTED, writable_roots=["/a"], protect=False) == ["seatbelt:unprotected"]
    assert reasons(Dimension.PROTECTED, writable_roots=["/a"]) == []
    assert reasons(Dimension.PROTECTED, protect=False) == []
