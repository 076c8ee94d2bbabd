"""Nothing gets out of the bwrap rung but what is accepted, as root and as an ordinary user."""

from __future__ import annotations

import pytest

from tests.end_to_end.escape.accepted import BROKEN_EVERYWHERE, EVERYWHERE, FROM_OURS, Reasons
from tests.end_to_end.escape.attempts import Kind
from tests.end_to_end.escape.battery import BATTERY
from tests.end_to_end.escape.bench import Order
from tests.end_to_end.escape.judging import assert_exactly
from tests.end_to_end.escape.places import Place, User, ordinary_user, this_user
from tests.end_to_end.escape.sandboxes import Form

pytestmark = [pytest.mark.usefixtures("bwrap"), pytest.mark.timeout(180)]


def order(form: Form, accepted: Reasons, *, through_proxy: bool, abi: int | None = None) -> Order:
    return Order("", "bwrap", form, through_proxy, abi, alone=tuple(accepted))


def test_through_the_proxy_by_a_command_line(place: Place, user: User) -> None:
    verdicts = place.run(order(Form.PORTABLE, EVERYWHERE, through_proxy=True), user)
    assert_exactly(verdicts, EVERYWHERE, BROKEN_EVERYWHERE)


def test_without_network_by_a_command_line(place: Place) -> None:
    verdicts = place.run(order(Form.PORTABLE, EVERYWHERE, through_proxy=False), ordinary_user())
    assert_exactly(verdicts, EVERYWHERE, BROKEN_EVERYWHERE)


def test_through_the_proxy_from_a_process_of_ours(place: Place) -> None:
    accepted = {**EVERYWHERE, **FROM_OURS}
    verdicts = place.run(order(Form.INSIDE, accepted, through_proxy=True), this_user())
    assert_exactly(verdicts, accepted, BROKEN_EVERYWHERE)


def test_without_network_from_a_process_of_ours(place: Place, user: User) -> None:
    accepted = {**EVERYWHERE, **FROM_OURS}
    verdicts = place.run(order(Form.INSIDE, accepted, through_proxy=False), user)
    assert_exactly(verdicts, accepted, BROKEN_EVERYWHERE)


def test_on_a_kernel_that_has_no_landlock(place: Place, user: User) -> None:
    verdicts = place.run(order(Form.PORTABLE, EVERYWHERE, through_proxy=True, abi=0), user)
    assert_exactly(verdicts, EVERYWHERE, BROKEN_EVERYWHERE)


def test_with_a_terminal_of_its_own_nothing_is_typed_into_it(place: Place, user: User) -> None:
    names = [name for name, attempt in BATTERY.items() if attempt.kind is Kind.TTY]
    wanted = Order("", "bwrap", Form.PORTABLE, through_proxy=True, interactive=True, only=names)
    assert place.run(wanted, user)["blocked"].keys() == set(names)
