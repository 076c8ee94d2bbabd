"""The classifier against lines that nobody wrote, and against what bash really does. Without atheris.

Searching for more is python -m tests.fuzz.fuzz_classifier. The lines come from the labelled corpus and from
dangerous_lines.py; bash runs them in shell_sandbox.py, which needs bubblewrap.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from egress_proxy.safety.classify import classify_shell_command
from tests.benchmarks.classifier.corpus import Line, corpus
from tests.benchmarks.classifier.timing import SHAPES
from tests.fuzz.apart import Apart
from tests.fuzz.dangerous_lines import anything, executed, mentioned
from tests.fuzz.destruction import destruction
from tests.fuzz.fuzz_classifier import (
    BOUND_S,
    agrees_with_bash,
    cpu_seconds,
    done_by_bash,
    judged,
    keeps_time,
)
from tests.fuzz.shell_sandbox import HOME, Call, Observed, ShellSandbox, parse_calls, unavailable

UNIX = [line for line in corpus() if line.platform == "unix"]
EVERYDAY = [line for line in UNIX if line.is_everyday]
DANGEROUS = [line for line in UNIX if not line.is_everyday]
PARTS = 4  # of the corpus, so that no test runs for long
SAMPLED = 1 if os.environ.get("HYPOTHESIS_PROFILE") == "deep" else 10  # a run of bash takes 0.1 s
JOINTS = ("; ", "\n", " && ", " || ", " | ", " & ", "\n\n# then\n")
shares_fixtures = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
in_the_sandbox = settings(shares_fixtures, max_examples=40)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[ShellSandbox]:
    if reason := unavailable():
        pytest.skip(reason)
    with ShellSandbox() as opened:
        yield opened


@pytest.fixture(scope="module")
def apart() -> Iterator[Apart]:
    with Apart() as opened:
        yield opened


# Crashes and time


@shares_fixtures
@given(anything)
@example("")
@example("\0")
@example("\ud800")
@example("rm -rf /\0")
def test_any_text_is_graded(apart: Apart, line: str) -> None:
    apart(judged, line)


def test_every_labelled_line_is_graded_cut_anywhere(apart: Apart) -> None:
    for line in UNIX[::7]:
        for end in range(0, len(line.command), 5):
            apart(judged, line.command[:end])


@settings(shares_fixtures, max_examples=40)
@given(anything)
@example("\U000e1afa<<<<<<")  # ended the interpreter: a parser that was told of an end before the end
def test_text_said_again_and_again_takes_linear_time(apart: Apart, line: str) -> None:
    apart(keeps_time, line)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_long_line_takes_linear_time(shape: str) -> None:
    classify_shell_command("ls", "unix")
    for size in (31_000, 100_000):
        assert cpu_seconds(SHAPES[shape](size)) < BOUND_S


# Lines by construction


@given(executed())
def test_a_line_that_runs_a_dangerous_command_is_not_safe(line: str) -> None:
    assert judged(line) != "safe", line


@given(mentioned())
def test_a_line_that_mentions_a_dangerous_command_is_not_critical(line: str) -> None:
    assert judged(line) != "critical", line


# What bash does


@in_the_sandbox
@given(executed())
def test_bash_does_run_what_is_built_to_run(sandbox: ShellSandbox, line: str) -> None:
    assert destruction(sandbox.run(line)) is not None, line


@in_the_sandbox
@given(mentioned())
def test_bash_runs_nothing_of_what_is_only_mentioned(sandbox: ShellSandbox, line: str) -> None:
    assert destruction(sandbox.run(line)) is None, line


def test_nothing_that_bash_destroys_by_is_called_safe(sandbox: ShellSandbox) -> None:
    safe = [line.command for line in DANGEROUS if judged(line.command) == "safe"]
    assert [(line, what) for line in safe if (what := done_by_bash(line, sandbox))] == []


@in_the_sandbox
@given(st.sampled_from(DANGEROUS), st.sampled_from(EVERYDAY), st.sampled_from(JOINTS), st.booleans())
def test_two_lines_in_one_hide_nothing(
    sandbox: ShellSandbox, bad: Line, good: Line, joint: str, swapped: bool
) -> None:
    both = (bad.command, good.command) if swapped else (good.command, bad.command)
    agrees_with_bash(joint.join(both), sandbox)


def test_the_sandbox_sees_what_dangerous_lines_do(sandbox: ShellSandbox) -> None:
    seen = [done_by_bash(line.command, sandbox) for line in DANGEROUS[:: 2 * SAMPLED]]
    assert len(list(filter(None, seen))) > len(seen) / 3


@pytest.mark.parametrize("part", range(PARTS))
def test_no_everyday_line_destroys(sandbox: ShellSandbox, part: int) -> None:
    """A check of the labels: bash agrees that what is called everyday does no harm. With many lines left out,
    unless HYPOTHESIS_PROFILE=deep asks for all."""
    sample = EVERYDAY[part :: PARTS * SAMPLED]
    wrong = [(line.command, what) for line in sample if (what := done_by_bash(line.command, sandbox))]
    assert wrong == []


# The oracle


@pytest.mark.parametrize(
    "call",
    [
        Call("rm", ("-r", "--force", "/")),
        Call("rm", ("x", "/usr", "-rf")),
        Call("rm", ("-Rf", "--", HOME)),
        Call("rm", ("-rf", "../../..")),
        Call("rm", ("-rf", "."), folder=HOME),
        Call("chmod", ("-R", "777", "/")),
        Call("find", ("/", "-type", "f", "-delete")),
        Call("rm", ("-r", "Documents"), folder=HOME),
        Call("mv", (HOME, "/dev/null")),
        Call("mv", ("a", "/etc/passwd")),
        Call("mv", ("-t", "/tmp", "/usr")),
        Call("dd", ("if=x", "of=/dev/sda")),
        Call("mkfs.xfs", ("-f", "/dev/sdb1")),
        Call("sudo", ("id",)),
        Call("git", ("-C", "push", "reset", "--hard")),
        Call("git", ("push", "-fu", "origin", "x")),
        Call("git", ("push", "origin", "+main")),
        Call("git", ("clean", "-xdf")),
        Call("ran-fetched-text", ()),
    ],
    ids=str,
)
def test_the_oracle_sees(call: Call) -> None:
    assert destruction(Observed((call,), ()))


@pytest.mark.parametrize(
    "call",
    [
        Call("rm", ("-rf", "build")),
        Call("rm", ("-f", "/")),
        Call("rm", ("--", "-rf", "x")),
        Call("rm", ("--help",)),
        Call("chmod", ("+x", "run.sh")),
        Call("find", (".", "-delete")),
        Call("mv", ("-f", "a", "/usr/lib")),
        Call("dd", ("if=x", "of=/dev/null")),
        Call("sudo", ("--version",)),
        Call("doas", ("-C", "/etc/doas.conf")),
        Call("git", ("push", "origin", "main:main")),
        Call("git", ("clean", "-nfd")),
        Call("git", ("log", "--grep=push --force")),
        Call("curl", ("-f", "https://x.test")),
    ],
    ids=str,
)
def test_the_oracle_lets_pass(call: Call) -> None:
    assert destruction(Observed((call,), ())) is None


def test_a_changed_device_is_seen() -> None:
    assert destruction(Observed((), ("/dev/sda",))) == "/dev/sda is changed"


def test_a_record_cut_off_is_left_out() -> None:
    whole = b"2\0/tmp\0rm\0-rf\0x\0"
    assert list(parse_calls(whole + b"1\0/tmp\0rm\0")) == [Call("rm", ("-rf", "x"), "/tmp")]
    assert list(parse_calls(b"x" + whole)) == []
