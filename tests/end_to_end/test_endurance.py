"""Every byte arrives, memory stays flat, and nothing is left behind, however peers end: counts, no times.

The long form is `python -m tests.benchmarks --check`; bounds and what is done: tests/benchmarks/endurance.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.benchmarks.endurance.chaos import check_chaos
from tests.benchmarks.endurance.check import (
    MIB,
    chaotic_service,
    check_killing,
    check_killing_injected,
    check_memory,
    check_transfer,
    endured_service,
    injecting_service,
)
from tests.support.service import Service

RELAYS = ("epoll", "loop") if sys.platform == "linux" else ("loop",)
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux only")


@pytest.fixture(params=RELAYS)
def service(request: pytest.FixtureRequest) -> Iterator[Service]:
    with endured_service("--relay", str(request.param)) as started:
        yield started


def test_bulk_through_sixteen_tunnels_arrives_byte_for_byte(service: Service) -> None:
    seen, faults = check_transfer(service, 256 * MIB)
    assert not faults, seen


@pytest.mark.parametrize("relay", RELAYS)
def test_bulk_that_is_counted_arrives_byte_for_byte(relay: str) -> None:
    """A grant with a limit of bytes: no splice may carry what must be counted, so all of it is copied."""
    with endured_service("--relay", relay, entries=("--allow-none",)) as service:
        seen, faults = check_transfer(service, 256 * MIB, grant_bytes=1024 * MIB)
        assert not faults, seen


@linux_only
def test_memory_stays_flat_over_thousands_of_connections(service: Service) -> None:
    seen, faults = check_memory(service, 5_000)
    assert not faults, seen


@linux_only
def test_peers_that_are_killed_at_any_moment_leave_nothing_behind(service: Service) -> None:
    seen, faults = check_killing(service, 5.0)
    assert not faults, seen


@linux_only
@pytest.mark.parametrize("relay", RELAYS)
def test_clients_of_a_rule_that_are_killed_get_their_own_answers_whole_or_cut_visibly(relay: str) -> None:
    """Both, for they take in a client's first request in different places."""
    with injecting_service("--relay", relay) as (service, upstream):
        seen, faults = check_killing_injected(service, upstream, 5.0)
        assert not faults, seen


@linux_only
@pytest.mark.parametrize("relay", RELAYS)
def test_everything_at_once_under_reloads_is_exact_and_every_allowed_request_has_one_end_line(
    relay: str,
) -> None:
    with chaotic_service("--relay", relay) as (service, upstream, settings):
        seen, faults = check_chaos(service, upstream, settings, 8.0)
        assert not faults, seen


@linux_only
def test_the_same_holds_where_the_upstream_speaks_tls() -> None:
    with injecting_service(tls=True) as (service, upstream):
        seen, faults = check_killing_injected(service, upstream, 5.0)
        assert not faults, seen
