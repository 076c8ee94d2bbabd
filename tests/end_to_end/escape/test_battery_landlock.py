"""Nothing gets out of the Landlock rung but what is accepted: as root, as an ordinary user, on older ABIs."""

from __future__ import annotations

import pytest

from egress_proxy.sandbox import landlock
from tests.end_to_end.escape.accepted import (
    BLOCKED_ON_ABI_1,
    BROKEN_EVERYWHERE,
    BROKEN_ON_ABI_1,
    BROKEN_ON_LANDLOCK,
    BROKEN_WITHOUT_SUPERVISOR,
    LANDLOCK,
    LANDLOCK_ORDINARY,
    Reasons,
    older,
)
from tests.end_to_end.escape.attempts import Kind
from tests.end_to_end.escape.battery import BATTERY
from tests.end_to_end.escape.bench import Order
from tests.end_to_end.escape.judging import assert_exactly
from tests.end_to_end.escape.places import Place, User, ordinary_user
from tests.end_to_end.escape.sandboxes import Form

HERE = landlock.abi()
pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(not HERE, reason="this kernel has no Landlock"),
]


def accepted(user: User, abi: int) -> Reasons:
    own: Reasons = LANDLOCK_ORDINARY if user.uid else {}
    known = {**LANDLOCK, **own, **older(abi)}
    return {name: reason for name, reason in known.items() if abi > 1 or name not in BLOCKED_ON_ABI_1}


def broken(abi: int, *, through_proxy: bool) -> Reasons:
    return {
        **BROKEN_EVERYWHERE,
        **BROKEN_ON_LANDLOCK,
        **({} if through_proxy else BROKEN_WITHOUT_SUPERVISOR),
        **(BROKEN_ON_ABI_1 if abi < 2 else {}),
    }


def judge(place: Place, user: User, abi: int, *, through_proxy: bool) -> None:
    known = accepted(user, abi)
    masked = None if abi == HERE else abi
    wanted = Order("", "landlock", Form.PORTABLE, through_proxy, masked, alone=tuple(known))
    assert_exactly(place.run(wanted, user), known, broken(abi, through_proxy=through_proxy))


@pytest.mark.parametrize("through_proxy", [True, False], ids=["supervised", "no network"])
def test_this_kernel(place: Place, user: User, through_proxy: bool) -> None:
    judge(place, user, HERE, through_proxy=through_proxy)


@pytest.mark.parametrize("abi", [1, 3, 5])
def test_an_older_abi_through_the_proxy(place: Place, abi: int) -> None:
    if abi > HERE:
        pytest.skip(f"this kernel's Landlock is older: {HERE}")
    judge(place, ordinary_user(), abi, through_proxy=True)


def test_the_oldest_abi_without_network(place: Place) -> None:
    judge(place, ordinary_user(), 1, through_proxy=False)


def test_with_a_terminal_of_its_own_nothing_is_typed_into_it(place: Place, user: User) -> None:
    names = [name for name, attempt in BATTERY.items() if attempt.kind is Kind.TTY]
    wanted = Order("", "landlock", Form.PORTABLE, True, interactive=True, only=names)
    assert place.run(wanted, user)["blocked"].keys() == set(names)
