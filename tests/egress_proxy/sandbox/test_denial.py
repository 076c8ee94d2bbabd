"""What became of a confined command: typed sources before stderr, and never a denial that was none.

The runner here is bwrap itself; which paths error lines name is in test_stderr_paths.py.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from egress_proxy.core.attach import HostDenial, Report
from egress_proxy.sandbox.denial import (
    BWRAP,
    DENIAL_SIGNATURES,
    LANDLOCK,
    RUNNER_FAILURE_RULES,
    SEATBELT,
    STDERR_LIMIT,
    Ended,
    Outcome,
    RunnerFailureRule,
    failed_runner,
    outcome,
    spawn_failure,
)
from egress_proxy.sandbox.planted import Planted
from egress_proxy.sandbox.stderr_paths import Bounds
from tests.support.bwrap_shell import run_in_bwrap, unavailable

BOUNDS = Bounds(("/w",), "/w")
DENIED_LINE = b"touch: cannot touch '/opt/x': Read-only file system\n"
STARTED = '{ "child-pid": 7 }\n'
HOST = HostDenial("other.example", 443, 2, "not_allowed")


def bwrap(argv: Sequence[str], root: Path, *options: str) -> Outcome:
    """A command under real bwrap with its status stream, judged."""
    if (reason := unavailable()) is not None:
        pytest.skip(reason)
    read_end, write_end = os.pipe()
    try:
        ended = run_in_bwrap(
            argv, root, options=("--json-status-fd", str(write_end), *options), pass_fds=(write_end,)
        )
    finally:
        os.close(write_end)
    with os.fdopen(read_end) as stream:
        status = stream.read()
    return outcome(
        Ended(ended.returncode, ended.stderr.encode(), status), BWRAP, Bounds((str(root),), str(root))
    )


@pytest.mark.parametrize("code", [0, 1, 42, 125, 126, 127])
@pytest.mark.parametrize("line", ["bwrap: x", "sandbox-run: x", "bwrap: execvp x: No such file or directory"])
def test_no_exit_code_and_no_line_of_a_command_is_a_runner_failure(
    tmp_path: Path, code: int, line: str
) -> None:
    judged = bwrap(["sh", "-c", f"echo '{line}' >&2; exit {code}"], tmp_path)
    assert judged == Outcome(exit_code=code)


@pytest.mark.parametrize(("name", "code"), [("TERM", 143), ("KILL", 137)])
def test_a_commands_death_by_signal_is_told(tmp_path: Path, name: str, code: int) -> None:
    judged = bwrap(["sh", "-c", f"cat /dev/null >/opt/x; kill -{name} $$"], tmp_path)
    assert judged == Outcome(exit_code=code, signal=code - 128)
    assert not judged.denied


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--chdir", "/nope"], "bwrap: Can't chdir to /nope"),
        (["--bind", "/nope", "/nope"], "bwrap: Can't find source path /nope"),
        (["--ro-bind", "/etc/hostname", "/etc/nope/x"], "bwrap: "),
        (["--nope"], "bwrap: Unknown option --nope"),
        (["--seccomp", "99"], "bwrap: "),
    ],
)
def test_a_sandbox_that_is_not_set_up_is_a_runner_failure(
    tmp_path: Path, options: list[str], said: str
) -> None:
    """Though bwrap's words may be those of a denial, as for a mount point that it cannot make."""
    judged = bwrap(["true"], tmp_path, *options)
    assert judged.runner_failure is not None
    assert judged.runner_failure.startswith(said)
    assert not judged.denied


def test_a_command_that_is_missing_or_no_program_failed_to_execute(tmp_path: Path) -> None:
    missing, no_program = bwrap(["nope"], tmp_path), bwrap(["/etc/passwd"], tmp_path)
    assert (missing.exit_code, missing.runner_failure) == (127, None)
    assert missing.exec_failure == "bwrap: execvp nope: No such file or directory"
    assert (no_program.exit_code, no_program.exec_failure) == (
        126,
        "bwrap: execvp /etc/passwd: Permission denied",
    )
    assert not no_program.denied


def test_a_write_outside_is_a_denial_that_names_the_path(tmp_path: Path) -> None:
    judged = bwrap(["sh", "-c", "echo x > /opt/x"], tmp_path)
    assert judged.exit_code != 0
    assert judged.denied_writes == ("/opt/x",)
    assert judged.denied


def test_a_denied_write_that_the_command_got_over_is_none(tmp_path: Path) -> None:
    judged = bwrap(["sh", "-c", "echo x > /opt/x; exit 0"], tmp_path)
    assert judged == Outcome(exit_code=0)


@pytest.mark.parametrize("errors", ["confine landlock: EPERM\n", "confine x: y\nmore", "something else"])
def test_the_error_pipe_outranks_all_else(errors: str) -> None:
    ended = Ended(125, DENIED_LINE, STARTED + '{ "exit-code": 125 }\n', errors)
    judged = outcome(ended, BWRAP, BOUNDS, report=Report(denied=(HOST,)))
    assert judged == Outcome(125, runner_failure=errors.splitlines()[0])
    assert not judged.denied


def test_a_failed_exec_on_the_error_pipe_is_no_runner_failure() -> None:
    judged = outcome(Ended(127, errors="exec ENOENT nope: No such file or directory\n"), LANDLOCK, BOUNDS)
    assert judged == Outcome(127, exec_failure="exec ENOENT nope: No such file or directory")


def test_a_runner_that_was_killed_has_not_failed() -> None:
    """As when a caller's time limit ends it: the command may have run, and no exit code was written."""
    assert outcome(Ended(-signal.SIGKILL, status=STARTED), BWRAP, BOUNDS) == Outcome(137, signal.SIGKILL)


@pytest.mark.parametrize("status", ["", STARTED, '{ "exit-', "[1]\nnull\n", '"exit-code"\n'])
def test_no_exit_code_in_the_status_stream_is_a_runner_failure_even_without_a_word(status: str) -> None:
    assert outcome(Ended(1, b"", status), BWRAP, BOUNDS).runner_failure is not None


def test_denied_hosts_are_the_proxys_word_and_count_on_exit_0_too() -> None:
    for code in (0, 1, -signal.SIGTERM):
        judged = outcome(Ended(code), LANDLOCK, BOUNDS, report=Report(denied=(HOST,)))
        assert judged.denied_hosts == (HOST,)
        assert judged.denied
        assert judged.runner_failure is None
    assert not outcome(Ended(1), LANDLOCK, BOUNDS, report=Report()).denied


@pytest.mark.parametrize("returncode", [-signal.SIGSYS, 128 + signal.SIGSYS])
def test_a_kill_by_the_system_call_filter_is_a_denial(returncode: int) -> None:
    judged = outcome(Ended(returncode), LANDLOCK, BOUNDS)
    assert judged == Outcome(128 + signal.SIGSYS, signal.SIGSYS)
    assert judged.denied


@pytest.mark.parametrize("returncode", [0, -15, -9, 143, 137, 130])
def test_stderr_denies_nothing_on_success_and_on_death_by_signal(returncode: int) -> None:
    assert not outcome(Ended(returncode, DENIED_LINE), BWRAP, BOUNDS).denied


@pytest.mark.parametrize("returncode", [1, 2, 4, 30, 125, 127, 128, 129, 255])
def test_stderr_is_read_after_any_other_exit(returncode: int) -> None:
    assert outcome(Ended(returncode, DENIED_LINE), BWRAP, BOUNDS).denied_writes == ("/opt/x",)


def test_only_the_end_of_stderr_is_read() -> None:
    filler = b"x" * STDERR_LIMIT
    assert outcome(Ended(1, DENIED_LINE + filler[len(DENIED_LINE) :]), BWRAP, BOUNDS).denied
    assert not outcome(Ended(1, DENIED_LINE + filler), BWRAP, BOUNDS).denied
    assert outcome(Ended(1, b"\xff\xfe\n" + DENIED_LINE), BWRAP, BOUNDS).denied


def test_each_rung_has_its_own_words() -> None:
    words = {
        BWRAP: "Read-only file system",
        LANDLOCK: "Permission denied",
        SEATBELT: "Operation not permitted",
    }
    for backend, text in words.items():
        assert DENIAL_SIGNATURES[backend] == (text.lower(),)
        for said in words.values():
            line = f"touch: cannot touch '{sys.prefix}': {said}\n".encode()
            assert outcome(Ended(1, line), backend, BOUNDS).denied == (said == text)


def test_what_was_planted_is_carried_and_is_no_denial() -> None:
    found = Planted(("/w/.envrc",))
    judged = outcome(Ended(0), BWRAP, BOUNDS, planted=found)
    assert judged.planted == found
    assert not judged.denied


def test_a_seatbelt_runner_is_judged_by_its_words_and_exit_code() -> None:
    line = b"sandbox-exec: sandbox_apply: Operation not permitted\n"
    assert outcome(Ended(71, line), SEATBELT, BOUNDS).runner_failure == line.decode().strip()
    assert outcome(Ended(1, line), SEATBELT, BOUNDS) == Outcome(1)


@pytest.mark.parametrize(
    ("backend", "code", "stderr", "line"),
    [
        (
            BWRAP,
            1,
            "x\nbwrap: setting up uid map: Permission denied\n",
            "bwrap: setting up uid map: Permission denied",
        ),
        (BWRAP, 1, "usage: bwrap [OPTIONS...]", "usage: bwrap [OPTIONS...]"),
        (BWRAP, 125, "sandbox-run: landlock: EPERM", "sandbox-run: landlock: EPERM"),
        (BWRAP, 2, "bwrap: x", None),
        (BWRAP, 0, "bwrap: x", None),
        (BWRAP, None, "bwrap: x", None),
        (LANDLOCK, 125, "SANDBOX-RUN: x", "SANDBOX-RUN: x"),
        (LANDLOCK, 1, "sandbox-run: x", None),
        (LANDLOCK, 125, "x", None),
        (
            SEATBELT,
            65,
            "sandbox-exec: host must be * or localhost",
            "sandbox-exec: host must be * or localhost",
        ),
    ],
)
def test_a_host_without_streams_tells_a_failed_runner_by_exit_code_and_line(
    backend: str, code: int | None, stderr: str, line: str | None
) -> None:
    assert failed_runner(backend, code, stderr) == line


def test_informational_lines_are_no_failure() -> None:
    rule = RunnerFailureRule(("run: ",), None, ("run: partial",))
    assert rule.failure(3, "RUN: Partial\n") is None
    assert rule.failure(0, "run: x") is rule.failure(None, "run: x") is None
    assert rule.failure(3, "run: partial enforcement\n") == "run: partial enforcement"
    assert set(RUNNER_FAILURE_RULES) == set(DENIAL_SIGNATURES)


def test_a_failed_spawn_is_the_runners_when_it_names_the_runner(tmp_path: Path) -> None:
    def failure(program: str, cwd: str) -> str | None:
        with pytest.raises(OSError) as raised:  # noqa: PT011  which one is what is judged
            subprocess.run([program], cwd=cwd, check=False)
        return spawn_failure(raised.value, program, cwd)

    (tmp_path / "no-program").touch()
    assert failure("/nope", str(tmp_path)) == "/nope cannot be started: No such file or directory"
    assert "Permission denied" in (failure(f"{tmp_path}/no-program", str(tmp_path)) or "")
    assert failure("/bin/true", f"{tmp_path}/missing") is None
    missing = FileNotFoundError(2, "No such file or directory", "/nope")
    assert spawn_failure(missing, "/other", None) is None
    assert spawn_failure(missing, "/nope", f"{tmp_path}/missing") is None
    assert spawn_failure(OSError(7, "Argument list too long", "/nope"), "/nope", None) is None
