"""Assembling classic BPF: a wrong jump is an error and never another program."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress_proxy.sandbox.bpf import (
    MAX_INSTRUCTIONS,
    And,
    AssemblyError,
    Branch,
    Comparison,
    Label,
    Line,
    Load,
    Return,
    assemble,
)
from tests.support.bpf_machine import run

WORDS = st.integers(0, 2**32 - 1)
MEANING: dict[Comparison, Callable[[int, int], bool]] = {
    Comparison.EQUALS: lambda word, value: word == value,
    Comparison.AT_LEAST: lambda word, value: word >= value,
    Comparison.HAS_ANY_BIT: lambda word, value: bool(word & value),
}


@given(st.sampled_from(Comparison), WORDS, WORDS)
def test_a_branch_goes_where_its_comparison_says(comparison: Comparison, word: int, value: int) -> None:
    lines: list[Line] = [
        Load(4),
        Branch(comparison, value, "yes", "no"),
        Label("no"),
        Return(0),
        Label("yes"),
        Return(1),
    ]
    program = assemble(lines)
    assert run(program, bytes(4) + word.to_bytes(4, "little")) == MEANING[comparison](word, value)


@given(WORDS, WORDS)
def test_a_mask_keeps_its_bits_alone(word: int, bits: int) -> None:
    lines: list[Line] = [Load(0), And(bits), Branch(Comparison.EQUALS, word & bits, no="other"), Return(1)]
    assert run(assemble([*lines, Label("other"), Return(0)]), word.to_bytes(4, "little")) == 1


def test_no_label_means_the_next_line() -> None:
    assert run(assemble([Load(0), Branch(Comparison.EQUALS, 0), Return(7)]), bytes(4)) == 7


def test_the_farthest_jump_still_arrives() -> None:
    far: list[Line] = [Branch(Comparison.EQUALS, 0, "end"), *[Return(0)] * 255, Label("end"), Return(1)]
    assert run(assemble(far), b"") == 1


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ([Branch(Comparison.EQUALS, 0, "end"), *[Return(0)] * 256, Label("end"), Return(1)], "256 instr"),
        ([Label("back"), Branch(Comparison.EQUALS, 0, "back"), Return(0)], "-1 instructions"),
        ([Branch(Comparison.EQUALS, 0, no="nowhere"), Return(0)], "is nowhere"),
        ([Label("twice"), Return(0), Label("twice"), Return(0)], "stands twice"),
        ([Return(0)] * (MAX_INSTRUCTIONS + 1), "kernel's limit"),
    ],
)
def test_lines_that_make_no_program_are_refused(lines: list[Line], complaint: str) -> None:
    with pytest.raises(AssemblyError, match=complaint):
        assemble(lines)
