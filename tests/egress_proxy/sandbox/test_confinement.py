"""One confined command from start to typed end: its environment, its descriptors, and why it failed."""

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from egress_proxy.core.attach import HostDenial, Report, encode_report
from egress_proxy.sandbox.choose import choose
from egress_proxy.sandbox.confinement import Confinement, portable_argv
from egress_proxy.sandbox.spec import (
    Egress,
    NoNetwork,
    OpenNetwork,
    SandboxSpec,
    SandboxUnavailable,
    ThroughProxy,
)
from tests.support.attach_peer import REPORT, WELCOME, attach_peer
from tests.support.confined import ENVIRONMENT, SEARCH_PATH, run_confined, shell, spec_for

BACKENDS = ["bwrap", "landlock"]


def open_descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 42", 42), ("exit 125", 125), ("exit 127", 127)]
)
def test_the_commands_own_code_is_no_failure_of_ours(backend: str, script: str, code: int) -> None:
    end = run_confined(
        spec_for(), shell(f"echo 'bwrap: x' >&2; echo 'sandbox-run: x' >&2; {script}"), backend=backend
    )
    assert (end.code, end.finished.outcome.exit_code) == (code, code)
    assert end.finished.outcome.runner_failure is None
    assert end.finished.outcome.exec_failure is None


@pytest.mark.parametrize("backend", BACKENDS)
def test_death_by_signal_is_told_as_shells_tell_it(backend: str) -> None:
    outcome = run_confined(spec_for(), shell("kill -TERM $$"), backend=backend).finished.outcome
    assert (outcome.exit_code, outcome.signal) == (143, 15)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("command", "code"), [("/nowhere/x", 127), ("/etc/passwd", 126)])
def test_what_cannot_be_executed_is_the_commands_fault(backend: str, command: str, code: int) -> None:
    outcome = run_confined(spec_for(), (command,), backend=backend).finished.outcome
    assert (outcome.exit_code, outcome.runner_failure) == (code, None)
    assert outcome.exec_failure is not None
    assert command in outcome.exec_failure


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_environment_is_a_list_of_what_may_be_in_it(backend: str) -> None:
    parent = {
        **ENVIRONMENT,
        "STEERABLE_EGRESS_CONTROL_TOKEN": "token",
        "LD_PRELOAD": "/x.so",
        "NO_PROXY": "*",
        "DECLARED": "yes",
        "OTHER": "no",
    }
    spec = replace(spec_for(), extras=("DECLARED",))
    end = run_confined(spec, ("/usr/bin/env",), backend=backend, environ=parent)
    names = {line.partition("=")[0] for line in end.stdout.splitlines()}
    assert names - {"TMPDIR", "PWD"} == {
        "PATH",
        "LANG",
        "LC_CTYPE",
        "LC_MESSAGES",
        "LSAN_OPTIONS",
        "DECLARED",
    }


@pytest.mark.parametrize("backend", BACKENDS)
def test_nothing_of_the_token_is_left_in_proc(backend: str) -> None:
    """bwrap's pid 1 keeps the environment that it was started with, and shows it."""
    end = run_confined(
        spec_for(),
        shell("cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n' | grep -c sesame"),
        backend=backend,
        environ={**ENVIRONMENT, "A_TOKEN": "sesame"},
    )
    assert end.stdout == "0\n"


@pytest.mark.parametrize("egress", [NoNetwork(), OpenNetwork()], ids=["no inner launcher", "inner launcher"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_only_what_is_handed_in_is_inherited(backend: str, egress: Egress, tmp_path: Path) -> None:
    """Our own descriptors never; where our launcher runs inside, not even a careless caller's."""
    with open(tmp_path / "file", "w") as inherited:
        number = inherited.fileno()
        spec = spec_for(egress=egress)
        end = run_confined(spec, shell("ls /proc/self/fd"), backend=backend, pass_fds=(number,))
    is_callers = backend == "bwrap" and isinstance(egress, NoNetwork)
    assert set(end.stdout.split()) - {"0", "1", "2", "3"} == ({str(number)} if is_callers else set())


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_proxy_hears_of_the_end_and_reports(backend: str, tmp_path: Path) -> None:
    denied = (HostDenial("evil.test", 443, 2, "not_listed"),)
    answers = (WELCOME, b"K", encode_report(Report(denied=denied)))
    with attach_peer(tmp_path, *answers) as path:
        end = run_confined(spec_for(egress=ThroughProxy(path, 8899)), ("/bin/true",), backend=backend)
    assert end.finished.outcome.denied_hosts == denied
    assert end.finished.outcome.denied
    assert not end.finished.egress_lost


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_proxy_that_goes_is_told_and_the_command_goes_on(backend: str, tmp_path: Path) -> None:
    with attach_peer(tmp_path, WELCOME, b"K") as path:
        end = run_confined(spec_for(egress=ThroughProxy(path, 8899)), shell("echo done"), backend=backend)
    assert (end.stdout, end.finished.egress_lost) == ("done\n", True)


@pytest.mark.parametrize("backend", BACKENDS)
def test_without_the_proxys_word_the_command_is_not_run(backend: str, tmp_path: Path) -> None:
    with attach_peer(tmp_path, WELCOME, b"X") as path:
        end = run_confined(spec_for(egress=ThroughProxy(path, 8899)), shell("echo ran"), backend=backend)
    assert end.stdout == ""
    assert end.finished.outcome.runner_failure is not None
    assert "the proxy did not take the listener" in end.finished.outcome.runner_failure


def test_an_extra_that_no_child_may_have_is_an_error() -> None:
    spec = replace(spec_for(), extras=("LD_PRELOAD",))
    with pytest.raises(ValueError, match="LD_PRELOAD cannot be handed"):
        Confinement(choose(spec, SEARCH_PATH), spec, ("true",), ENVIRONMENT)


def test_nothing_stays_open_when_it_is_not_started(tmp_path: Path) -> None:
    before = open_descriptors()
    with attach_peer(tmp_path, WELCOME, REPORT) as path:
        spec = spec_for(egress=ThroughProxy(path, 8899))
        chosen = choose(spec, SEARCH_PATH)
        with Confinement(chosen, spec, ("true",), ENVIRONMENT) as confinement:
            assert {str(number) for number in confinement.pass_fds} <= open_descriptors()
    assert open_descriptors() == before
    with pytest.raises(SandboxUnavailable):
        Confinement(chosen, spec, ("true",), ENVIRONMENT)
    assert open_descriptors() == before


def portable(spec: SandboxSpec, *command: str, backend: str | None = None) -> tuple[str, ...]:
    chosen = choose(spec, SEARCH_PATH, backend=backend, portable=True)
    return portable_argv(chosen, spec, command, {"SET": "here"})


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_portable_command_line_needs_nothing_but_a_spawn(backend: str, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    argv = json.loads(
        json.dumps(
            portable(spec_for(root), *shell(f"env; echo x > {root}/f; echo y > /etc/y"), backend=backend)
        )
    )
    environ = {**ENVIRONMENT, "A_TOKEN": "sesame", "LC_TIME": "C"}
    for _ in range(2):
        done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        names = {line.partition("=")[0] for line in done.stdout.splitlines()}
        assert names - {"PWD", "TMPDIR"} == {
            "PATH",
            "LANG",
            "LC_TIME",
            "LC_MESSAGES",
            "LSAN_OPTIONS",
            "SET",
        }
        assert (root / "f").read_text() == "x\n"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_file_given_on_stdin_cannot_be_opened_anew_to_write(backend: str, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("original\n")
    argv = portable(spec_for(), *shell("cat; echo x > /proc/self/fd/0; echo x > /dev/stdin"), backend=backend)
    with victim.open() as stdin:
        done = subprocess.run(argv, env=ENVIRONMENT, stdin=stdin, capture_output=True, text=True, check=False)
    assert done.stdout == "original\n"
    assert victim.read_text() == "original\n"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_portable_command_line_is_refused_without_its_proxy(backend: str, tmp_path: Path) -> None:
    spec = spec_for(egress=ThroughProxy(str(tmp_path / "gone.sock"), 8899))
    argv = portable(spec, "/bin/echo", "ran", backend=backend)
    done = subprocess.run(argv, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.startswith("sandbox-run: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_portable_command_line_works_several_times_at_once(backend: str) -> None:
    argv = portable(
        spec_for(), *shell("echo x > ${TMPDIR:-/tmp}/f && cat; cat ${TMPDIR:-/tmp}/f"), backend=backend
    )
    started = [
        subprocess.Popen(argv, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [process.communicate("hello\n")[0] for process in started] == ["hello\nx\n"] * 3


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_root_that_is_a_link_by_the_time_of_the_start_is_refused(backend: str, tmp_path: Path) -> None:
    root, victim = tmp_path / "root", tmp_path / "victim"
    root.mkdir()
    victim.mkdir()
    argv = portable(spec_for(root), *shell(f"echo x > {root}/planted"), backend=backend)
    root.rmdir()
    root.symlink_to(victim)
    done = subprocess.run(argv, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    words = "sandbox-run: writable root: "
    assert (done.returncode, done.stderr) == (
        125,
        f"{words}{root}: it is no longer the folder that was named\n",
    )
    assert not list(victim.iterdir())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("egress", [NoNetwork(), OpenNetwork()])
def test_a_command_that_is_too_long_is_the_commands_fault(backend: str, egress: Egress) -> None:
    spec = spec_for(egress=egress)
    taken = run_confined(spec, (*shell("echo $#"), "x", *["w" * 60] * 20_000), backend=backend)
    assert (taken.code, taken.stdout) == (0, "20000\n")
    refused = run_confined(spec, ("/bin/true", "x" * 200_000), backend=backend).finished.outcome
    assert (refused.exit_code, refused.runner_failure) == (126, None)
    assert refused.exec_failure == "exec E2BIG /bin/true: Argument list too long"
