"""What a plan says is what the launcher reads, and a plan that lacks a part is none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress_proxy.sandbox import told
from egress_proxy.sandbox.plan import LandlockRules, LaunchPlan, PathRule, PortRule

PATHS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)
NUMBERS = st.integers(0, 2**64 - 1)
PORTS = st.integers(0, 65535)


def rules() -> st.SearchStrategy[LandlockRules]:
    paths = st.builds(PathRule, NUMBERS, PATHS, st.booleans())
    ports = st.builds(PortRule, NUMBERS, PORTS)
    return st.builds(
        LandlockRules,
        st.sampled_from([8, 16, 24]),
        *[NUMBERS] * 3,
        st.lists(paths).map(tuple),
        st.lists(ports).map(tuple),
    )


PLANS = st.builds(
    LaunchPlan,
    port=st.none() | PORTS,
    landlock=st.none() | rules(),
    program=st.binary(),
    cwd=st.none() | PATHS,
    new_session=st.booleans(),
    answer_ms=st.integers(0, 10**6),
    private_tmp=st.none() | PATHS,
)


@given(PLANS)
def test_the_launcher_reads_what_was_planned(plan: LaunchPlan) -> None:
    read = told.Plan(plan.encode())
    assert (read.port, read.program, read.new_session) == (plan.port, plan.program, plan.new_session)
    assert read.answer_ms == (0 if plan.port is None else plan.answer_ms)
    assert read.cwd == (None if plan.cwd is None else plan.cwd.encode())
    assert read.private_tmp == (None if plan.private_tmp is None else plan.private_tmp.encode())
    if plan.landlock is None:
        assert (read.ruleset, read.paths, read.ports) == ([], [], [])
        return
    asked = plan.landlock
    assert read.ruleset == [asked.attribute_bytes, asked.handled_fs, asked.handled_net, asked.scoped]
    assert read.paths == [(rule.access, rule.path.encode(), rule.required) for rule in asked.paths]
    assert read.ports == [(rule.access, rule.port) for rule in asked.ports]


@given(PLANS, st.data())
def test_a_plan_that_is_cut_short_is_never_read(plan: LaunchPlan, data: st.DataObject) -> None:
    """A lost tail may be the filter."""
    encoded = plan.encode()
    cut = encoded[: data.draw(st.integers(0, len(encoded) - 1))]
    with pytest.raises(ValueError, match="cut short"):
        told.Plan(cut)


def test_names_that_are_no_text_are_passed_on_as_they_are() -> None:
    assert told.Plan(LaunchPlan(cwd="/\udcff").encode()).cwd == b"/\xff"
