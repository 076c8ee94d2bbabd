"""Grades of the labelled lines and of the case bank; what never changes a grade; time."""

import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress_proxy.safety.classify import Severity, classify_shell_command
from egress_proxy.safety.syntax import PARSED_BYTES
from tests.benchmarks.classifier.corpus import Line, corpus
from tests.benchmarks.classifier.timing import SHAPES, WINDOWS_SHAPES

# About 50 ms on a slow machine.
MOST_CALLS = 250_000
RANK = [Severity.SAFE, Severity.WARNING, Severity.CRITICAL]
CRITICAL = [
    line.command
    for line in corpus()
    if line.must_be_critical
    and line.platform == "unix"
    and len(line.command) < 60
    and "<<" not in line.command
]
WRAPPINGS = ["sudo {}", "env A=1 {}", "timeout 5 {}", "nohup {}", "nice -n 5 {}", "setsid {}", "command {}"]
SIMPLE = ["rm -rf /", "git push --force", "dd if=x of=/dev/sda", "su -", "chmod -R 777 /", "git clean -fdx"]
AROUND = [
    "{} # rm",
    "true; {}",
    "{} ; true",
    "true && {}",
    "( {} )",
    "if true; then {} ; fi",
    "x=1 ; {}",
    "{}\n",
]


def grade(line: str, platform: str = "unix") -> Severity:
    return classify_shell_command(line, platform).severity


def graded(line: Line) -> str:
    return str(grade(line.command, line.platform))


def share(lines: list[Line], good: list[Line]) -> float:
    return 100 * len(good) / len(lines)


def test_critical_lines_are_found() -> None:
    lines = [line for line in corpus() if line.must_be_critical]
    assert share(lines, [line for line in lines if graded(line) == "critical"]) >= 98


def test_dangerous_lines_are_noticed() -> None:
    lines = [line for line in corpus() if line.must_be_noticed]
    assert share(lines, [line for line in lines if graded(line) != "safe"]) >= 98


def test_everyday_lines_are_left_alone() -> None:
    lines = [line for line in corpus() if line.is_everyday]
    assert [line.command for line in lines if graded(line) == "critical"] == []
    false = [line for line in lines if graded(line) == "warning" and "warning" not in line.right]
    assert share(lines, false) <= 3


@pytest.mark.parametrize("group", sorted({line.group for line in corpus()}))
def test_no_group_is_forgotten(group: str) -> None:
    lines = [line for line in corpus() if line.group == group]
    assert share(lines, [line for line in lines if graded(line) in line.right]) >= 90


@pytest.mark.parametrize("command", SIMPLE)
@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_a_wrapper_hides_nothing(command: str, wrapping: str) -> None:
    assert grade(wrapping.format(command)) is Severity.CRITICAL


@pytest.mark.parametrize("command", SIMPLE)
def test_a_shell_in_a_shell_hides_nothing(command: str) -> None:
    for _ in range(4):
        command = f"bash -c {_quoted(command)}"
        assert grade(command) is Severity.CRITICAL


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


@given(st.sampled_from(CRITICAL), st.lists(st.sampled_from(AROUND), min_size=1, max_size=3))
def test_what_stands_around_a_command_lowers_no_grade(command: str, around: list[str]) -> None:
    line = command
    for form in around:
        line = form.format(line)
        if "#" in form:
            line += "\n"
    assert grade(line) is Severity.CRITICAL


@given(st.sampled_from([c for c in SIMPLE if c != "su -"]), st.data())
def test_quotes_around_a_word_lower_no_grade(command: str, data: st.DataObject) -> None:
    marks = ["{}", "'{}'", '"{}"', "$'{}'"]
    words = [data.draw(st.sampled_from(marks)).format(word) for word in command.split()]
    assert grade(" ".join(words)) is Severity.CRITICAL


@given(st.text(max_size=200))
def test_any_text_gets_a_grade(text: str) -> None:
    assert grade(text) in RANK
    assert grade(text, "windows") in RANK


def test_the_result_is_also_the_mapping_of_the_documents() -> None:
    result = classify_shell_command("sudo ls", "unix")
    assert dict(result) == {"severity": "critical", "matchedRules": ["sudo"]}
    assert result.severity == "critical"
    assert "sudo" in result.explain()
    with pytest.raises(KeyError):
        result["other"]


def test_a_safe_line_says_so() -> None:
    assert classify_shell_command("ls", "unix").explain() == "safe: no rule matched"


def test_platforms_are_told_apart() -> None:
    assert grade("format c:", "windows") is Severity.CRITICAL
    assert grade("format c:", "unix") is Severity.SAFE
    with pytest.raises(ValueError, match="platform"):
        classify_shell_command("ls", "macos")


def test_a_long_line_is_judged_by_its_text_and_never_safe() -> None:
    long = "echo " + "a" * PARSED_BYTES
    assert classify_shell_command(long, "unix").matched_rules == ["too_long"]
    assert grade(f"{long}; rm -rf /") is Severity.CRITICAL


@pytest.mark.parametrize("line", ["(" * 5000 + "rm -rf /" + ")" * 5000, "$(a " * 3000, "eval " * 500 + "x"])
def test_deep_nesting_is_no_way_out(line: str) -> None:
    assert grade(line) is not Severity.SAFE


def test_a_line_that_does_not_parse_is_not_safe_when_something_runs() -> None:
    assert grade("ls ) foo") is not Severity.SAFE


def calls(line: str, platform: str) -> int:
    """How many functions are called: what time is made of, but the same each time."""
    counted = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        grade(line, platform)
    finally:
        sys.setprofile(before)
    return counted


@pytest.mark.parametrize(
    ("platform", "shape"),
    [("unix", name) for name in SHAPES] + [("windows", name) for name in WINDOWS_SHAPES],
)
def test_work_grows_no_faster_than_the_text_and_stops_growing(platform: str, shape: str) -> None:
    make = (SHAPES if platform == "unix" else WINDOWS_SHAPES)[shape]
    grade("ls", platform)
    small, large, huge = (calls(make(size), platform) for size in (4_000, 32_000, 100_000))
    assert large < 9 * small + 10_000
    assert large < MOST_CALLS
    assert huge < 1_000


@pytest.mark.parametrize(
    "shape", ["a variable that doubles", "negations", "commands that differ", "wrappers"]
)
def test_a_line_that_is_given_up_is_a_warning_at_least(shape: str) -> None:
    assert grade(SHAPES[shape](32_000)) is not Severity.SAFE


@pytest.mark.parametrize(
    "unit", ["a;", "a|", "\0", "a)", "<>&|;", "${", "<<a ", "rm a ", '"', "é)", "{a,b}", "x=$x$x;"]
)
def test_time_grows_with_the_text_alone(unit: str) -> None:
    def cpu_s(size: int) -> float:
        line = (unit * size)[:size]
        start = time.process_time()
        classify_shell_command(line, "unix")
        return time.process_time() - start

    cpu_s(100)
    assert cpu_s(30_000) < 1
    assert cpu_s(100_000) < 0.5


@pytest.mark.parametrize(
    "line",
    [
        "for f in 1 2 3 4 5 6 7 /; do rm -rf $f; done",
        "find . " + "-exec a {} \\; " * 20 + "-exec rm -rf / \\;",
        "sed '" + "p;" * 600 + "e rm -rf /'",
        "python3 -c '" + 'run("a");' * 400 + 'os.system("rm -rf /")\'',
        "psql " + "-c x " * 200 + "-c 'drop database x'",
        "make -f - <<'E'\na:\n" + "\tb\n" * 100 + "\trm -rf /\nE",
        "".join(f"trap 'a{number}' EXIT;" for number in range(40)) + "trap 'rm -rf /' INT",
        "printf '%s\\n' " + "a " * 20 + "/ | xargs -I{} rm -rf {}",
    ],
)
def test_what_is_harmless_before_a_command_does_not_hide_it(line: str) -> None:
    assert grade(line) is not Severity.SAFE


def test_many_targets_of_a_long_command_are_told_in_linear_time() -> None:
    """Five hundred effects: to join a thousand words for each is too much."""
    assert calls(SHAPES["words and targets"](8_000), "unix") < MOST_CALLS


def test_each_value_of_a_loop_is_followed() -> None:
    assert grade("for f in 1 2 3 4 5 6 7 /; do rm -rf $f; done") is Severity.CRITICAL
