"""One word for many dimensions: the worst of what is promised, and never better than a gap says."""

import itertools

import pytest

from egress_proxy.sandbox.spec import PROMISED, Dimension, Enforcement, Gap, overall, worst

FULL, PARTIAL, NONE = Enforcement.FULL, Enforcement.PARTIAL, Enforcement.NONE


@pytest.mark.parametrize("values", list(itertools.product((FULL, PARTIAL, NONE), repeat=2)))
def test_the_worst_of_two(values: tuple[Enforcement, ...]) -> None:
    wanted = NONE if NONE in values else PARTIAL if PARTIAL in values else FULL
    assert worst(values) is wanted


@pytest.mark.parametrize("dimension", Dimension)
def test_only_promised_dimensions_count(dimension: Dimension) -> None:
    wanted = PARTIAL if dimension in PROMISED else FULL
    assert overall([Gap(dimension, PARTIAL, "test:reason")]) is wanted


def test_writes_and_egress_are_what_every_policy_promises() -> None:
    assert {Dimension.WRITES, Dimension.EGRESS} == PROMISED


def test_a_gap_prints_as_the_contract_says() -> None:
    gap = Gap(Dimension.WRITES, PARTIAL, "landlock.abi<3:truncate")
    assert gap.as_json() == {
        "dimension": "writes",
        "value": "partial",
        "reason": "landlock.abi<3:truncate",
    }
