"""Moments as logs write them: as the standard library does it, to the millisecond and never rounded up."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress_proxy.core.timestamp import timestamp


@pytest.mark.parametrize(
    ("now", "text"),
    [
        (0.0, "1970-01-01T00:00:00.000+00:00"),
        (1_800_000_000.9999, "2027-01-15T08:00:00.999+00:00"),
        (1_800_000_000.9999999, "2027-01-15T08:00:01.000+00:00"),
        (951_782_400.0405, "2000-02-29T00:00:00.040+00:00"),
    ],
)
def test_a_moment_is_utc_to_the_millisecond(now: float, text: str) -> None:
    assert timestamp(now) == text


@given(st.lists(st.floats(0, 4e9), min_size=1, max_size=5))
def test_it_is_what_the_standard_library_writes_in_any_order(moments: list[float]) -> None:
    for now in moments:
        assert timestamp(now) == datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")
