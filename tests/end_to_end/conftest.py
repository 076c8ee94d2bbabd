"""Roads that the tests of one file share; what a test starts by itself comes from ../conftest.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.end_to_end.road import Road, open_inject_road, open_road
from tests.support.certificates import CertificateAuthority


@pytest.fixture(scope="module")
def road(ca: CertificateAuthority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Road]:
    with open_road(ca, tmp_path_factory.mktemp("client")) as opened:
        yield opened


@pytest.fixture(scope="module")
def shared_inject_road(ca: CertificateAuthority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Road]:
    with open_inject_road(ca, tmp_path_factory.mktemp("client")) as opened:
        yield opened


@pytest.fixture
def inject_road(shared_inject_road: Road) -> Iterator[Road]:
    """The service keeps connections to the origin, and no test may leave one behind."""
    yield shared_inject_road
    shared_inject_road.origin.close_idle()
