"""`run` before and after its command: what it plans, and that its own faults are 125 and one line.

The command itself is in test_run_child.py; the whole verb in end_to_end/test_run*.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.egress_proxy.cli.command import Ended, run

TRUE = ("--", "/bin/true")


@pytest.fixture(autouse=True)
def is_linux() -> None:
    if sys.platform != "linux":
        pytest.skip("Linux: rungs")


def one_error(ended: Ended, code: int) -> str:
    assert (ended.code, ended.out) == (code, "")
    assert ended.err.startswith("error: ")
    assert ended.err.count("\n") == 1
    return ended.err


def test_no_command_is_a_usage_error() -> None:
    assert "name the command behind --" in one_error(run("run", "--allow", "a.example"), 2)


def test_a_rung_that_cannot_run_is_our_fault_and_quoted(tmp_path: Path) -> None:
    ended = run("run", "--backend", "bwrap", *TRUE, env={"PATH": str(tmp_path)})
    assert "bwrap" in one_error(ended, 125)


def test_a_service_that_cannot_start_is_our_fault(tmp_path: Path) -> None:
    ended = run("run", "--audit", str(tmp_path / "none" / "audit"), *TRUE)
    assert "cannot open the audit log" in one_error(ended, 125)


def test_a_working_folder_that_is_gone_is_said(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = f"import os, sys; os.chdir({str(gone)!r}); os.rmdir({str(gone)!r})"
    entry = ("-c", f"{script}; from egress_proxy.cli.main import main; sys.exit(main())")
    assert "the working folder cannot be used" in one_error(run("run", *TRUE, entry=entry), 2)


@pytest.mark.parametrize("marker", ["0", "1"])
def test_the_marker_explains_a_failure_and_causes_none(tmp_path: Path, marker: str) -> None:
    env = {"STEERABLE_EGRESS_CONFINED": marker, "PATH": str(tmp_path)}
    error = one_error(run("run", "--backend", "bwrap", *TRUE, env=env), 125)
    assert ("this is a sandbox already" in error) is (marker == "1")
    assert run("run", "-q", *TRUE, env={"STEERABLE_EGRESS_CONFINED": marker}).code == 0


def test_without_a_list_nothing_is_reached_and_it_starts() -> None:
    ended = run("run", "--backend", "landlock", "--", "/bin/sh", "-c", "exit 3")
    assert ended.code == 3
    assert ended.err.splitlines()[0] == ("egress-proxy run: exit 3, confined by landlock, enforcement full")


def test_ask_needs_a_terminal() -> None:
    script = "import os, sys; os.setsid(); from egress_proxy.cli.main import main; sys.exit(main())"
    assert "--ask needs a terminal" in one_error(run("run", "--ask", *TRUE, entry=("-c", script)), 125)


def test_what_is_settled_elsewhere_is_not_of_this_run(tmp_path: Path) -> None:
    """A data port and a socket that a settings file names are the service's."""
    config = tmp_path / "egress.toml"
    config.write_text(
        f'bind = "127.0.0.1:1"\nlisten_unix = "{tmp_path}/none/data.sock"\nallow = ["a.example"]\n'
    )
    ended = run("run", "-q", "--config", str(config), *TRUE)
    assert (ended.code, ended.out, ended.err) == (0, "", "")


@pytest.mark.parametrize("table", ["[control]\nport = 1\n", "[control]\n", "control_port = 1\n"])
def test_a_control_api_in_the_file_is_an_error_that_says_why(tmp_path: Path, table: str) -> None:
    config = tmp_path / "egress.toml"
    config.write_text(f'allow = ["a.example"]\n{table}')
    error = one_error(run("run", "--config", str(config), *TRUE), 2)
    assert "control" in error
    assert str(config) in error
    assert "`run` has no control API on a port" in error


def test_the_users_own_file_may_have_one_for_serve(tmp_path: Path) -> None:
    folder = tmp_path / "egress"
    folder.mkdir()
    (folder / "egress.toml").write_text('allow = ["a.example"]\n[control]\nport = 1\n')
    ended = run("run", "-q", *TRUE, env={"XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path)})
    assert ended.code == 0


def test_variables_are_passed_or_set_by_name() -> None:
    show = ("--", "/bin/sh", "-c", "echo $CI-$MODE-$GONE-$HIDDEN")
    words = ("--env", "CI", "--env", "MODE=a=b", "--env", "GONE")
    ended = run("run", "-q", *words, *show, env={"CI": "1", "MODE": "x", "HIDDEN": "2"})
    assert (ended.code, ended.out) == (0, "1-a=b--\n")


@pytest.mark.parametrize(
    "name", ["LD_PRELOAD=x", "HTTPS_PROXY=x", "STEERABLE_EGRESS_CONFINED", "1x", "a b", "=x"]
)
def test_variables_that_change_the_loader_or_the_sandbox_are_refused(name: str) -> None:
    assert "--env: " in one_error(run("run", "--env", name, *TRUE), 2)
