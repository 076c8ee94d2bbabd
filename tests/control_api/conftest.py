"""The fixture of this folder: a running control API, fresh for every test: no back-off is left over."""

from collections.abc import AsyncIterator

import pytest

from tests.control_api.control_service import ControlService


@pytest.fixture
async def control() -> AsyncIterator[ControlService]:
    async with ControlService() as running:
        yield running
