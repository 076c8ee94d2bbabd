"""Backends as executors use them: a rewritten command that is confined, and a promise that is true."""

import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from egress_proxy.sandbox.backends import (
    BwrapExecBackend,
    LandlockExecBackend,
    SeatbeltExecBackend,
    bwrap_path,
    landlock_available,
    select_exec_backend,
)
from egress_proxy.sandbox.spec import Enforcement, SandboxUnavailable
from tests.support.attach_peer import WELCOME, attach_peer
from tests.support.program import REPOSITORY

LINUX = [BwrapExecBackend, LandlockExecBackend]
ALL = [*LINUX, SeatbeltExecBackend]


def run(command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, shell=True, cwd=cwd, capture_output=True, text=True, check=False)  # noqa: S602


@pytest.mark.parametrize("kind", LINUX)
def test_a_rewritten_command_is_confined(
    kind: type[BwrapExecBackend] | type[LandlockExecBackend], tmp_path: Path
) -> None:
    root = tmp_path / "it's a root"
    root.mkdir()
    backend = kind([str(root)])
    assert backend.enforcement is Enforcement.FULL
    done = run(backend.wrap_command("echo in > 'a file'; echo out > ../out; echo said"), root)
    assert done.stdout == "said\n"
    assert (root / "a file").read_text() == "in\n"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", LINUX)
def test_without_network_nothing_answers(
    kind: type[BwrapExecBackend] | type[LandlockExecBackend], tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        connect = f"curl -s http://127.0.0.1:{listener.getsockname()[1]}/"
        assert run(kind().wrap_command(connect), tmp_path).returncode == 7
        with pytest.raises(BlockingIOError):
            listener.accept()


@pytest.mark.parametrize("kind", ALL)
def test_open_and_listed_egress_is_partial(kind: type[BwrapExecBackend]) -> None:
    assert kind(network=True).enforcement is Enforcement.PARTIAL
    assert kind(allowed_hosts=["api.example.com"]).enforcement is Enforcement.PARTIAL
    assert kind(allowed_hosts=[]).enforcement is Enforcement.FULL


@pytest.mark.parametrize("kind", LINUX)
def test_the_running_proxy_makes_a_loopback_entry_full(
    kind: type[BwrapExecBackend], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with attach_peer(tmp_path, WELCOME) as path:
        monkeypatch.setenv("EGRESS_ATTACH", path)
        assert kind(allowed_hosts=["127.0.0.1:8899"]).enforcement is Enforcement.FULL
        assert kind(allowed_hosts=["127.0.0.1:8898"]).enforcement is Enforcement.PARTIAL


@pytest.mark.parametrize("kind", ALL)
def test_a_missing_root_and_a_bad_entry_raise_at_construction(
    kind: type[BwrapExecBackend], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="nope"):
        kind([str(tmp_path / "nope")])
    with pytest.raises(ValueError, match="http://x"):
        kind(allowed_hosts=["http://x"])


def test_the_strongest_that_works_is_selected(monkeypatch: pytest.MonkeyPatch) -> None:
    selected = select_exec_backend()
    assert selected is not None
    assert selected.name == "bwrap"
    assert bwrap_path() == "/usr/bin/bwrap"
    monkeypatch.setenv("PATH", "/nowhere")
    fallen = select_exec_backend()
    assert fallen is not None
    assert fallen.name == "landlock"
    assert bwrap_path() is None
    with pytest.raises(SandboxUnavailable):
        BwrapExecBackend()


def test_landlock_was_seen_to_work() -> None:
    assert landlock_available()


def test_seatbelt_starts_from_a_clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TOKEN", "sesame")
    argv = SeatbeltExecBackend().wrap_argv(("/bin/echo", "x"))
    assert argv[:2] == ("/usr/bin/env", "-i")
    assert argv[-2:] == ("/bin/echo", "x")
    assert "/usr/bin/sandbox-exec" in argv
    assert not any("sesame" in word for word in argv)


@pytest.mark.parametrize("backend", ["bwrap", "landlock"])
def test_a_package_that_lies_in_tmp_is_found_from_inside(backend: str) -> None:
    """The sandbox has a /tmp of its own, and what is needed for the start is shown in it."""
    script = f"""
from egress_proxy.sandbox.choose import choose
from egress_proxy.sandbox.confinement import portable_argv
from egress_proxy.sandbox.spec import SandboxSpec
import os, subprocess
spec = SandboxSpec(())
chosen = choose(spec, os.defpath, backend={backend!r}, portable=True)
argv = portable_argv(chosen, spec, ("/bin/echo", "ran"), {{}})
os.execv(argv[0], argv)
"""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        shutil.copytree(REPOSITORY / "egress_proxy", Path(folder, "egress_proxy"))
        done = subprocess.run(
            (sys.executable, "-c", script),
            cwd="/var",
            env={"PYTHONPATH": folder},
            capture_output=True,
            text=True,
            check=False,
        )
    assert (done.stdout, done.stderr) == ("ran\n", "")


def test_seatbelts_command_has_a_folder_of_its_own_for_temporary_files() -> None:
    backend = SeatbeltExecBackend()
    argv = backend.wrap_argv(("/bin/echo", "x"))
    (folder,) = (Path(word.removeprefix("TMPDIR=")) for word in argv if word.startswith("TMPDIR="))
    assert folder.stat().st_mode & 0o777 == 0o700
    assert str(folder) in argv[argv.index("-p") + 1]
    assert str(folder) not in SeatbeltExecBackend().wrap_argv(("x",))
    del backend
    assert not folder.exists()
