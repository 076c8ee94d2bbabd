"""The battery sees what gets out: with no sandbox nearly all of it does."""

from __future__ import annotations

import pytest

from tests.end_to_end.escape.accepted import MAY_BE_MISSING, UNCONFINED
from tests.end_to_end.escape.battery import BATTERY
from tests.end_to_end.escape.bench import Order
from tests.end_to_end.escape.places import Place, ordinary_user

pytestmark = pytest.mark.timeout(180)


def test_an_attempt_succeeds_where_nothing_is_in_its_way(place: Place) -> None:
    """As an ordinary user, since root's attempts aim at the machine."""
    verdicts = place.run(Order(""), ordinary_user())
    assert verdicts["broken"] == {}
    assert verdicts["blocked"].keys() - UNCONFINED.keys() == set()
    assert verdicts["skipped"].keys() <= MAY_BE_MISSING


def test_the_tables_name_attempts_that_there_are() -> None:
    assert MAY_BE_MISSING | UNCONFINED.keys() <= BATTERY.keys()
