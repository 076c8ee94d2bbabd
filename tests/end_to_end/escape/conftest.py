"""Fixtures of the batteries: one place for all of a file's, and the users that they are run as."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.end_to_end.escape.places import Place, User, opened_place, ordinary_user, this_user
from tests.support.bwrap_shell import unavailable


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with opened_place() as place:
        yield place


@pytest.fixture(params=["root", "ordinary"])
def user(request: pytest.FixtureRequest) -> User:
    if request.param == "ordinary":
        return ordinary_user()
    if this_user().name != "root":
        pytest.skip("the half as root needs root")
    return this_user()


@pytest.fixture
def bwrap() -> None:
    if reason := unavailable():
        pytest.skip(reason)
