"""A rung counts when its probe held; a named one is never replaced; none left is a refusal that helps."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from egress_proxy.sandbox import bwrap_binary
from egress_proxy.sandbox.choose import choose, forget_verdicts
from egress_proxy.sandbox.spec import Enforcement, NoNetwork, OpenNetwork, SandboxUnavailable
from tests.support.confined import SEARCH_PATH, is_root, spec_for

needs_root = pytest.mark.skipif(not is_root(), reason="cannot be installed here: a bwrap that root owns")
UID_MAP = "bwrap: setting up uid map: Permission denied"


@pytest.fixture(autouse=True)
def _fresh_verdicts() -> Iterator[None]:
    forget_verdicts()
    yield
    forget_verdicts()


@pytest.fixture(autouse=True)
def _is_a_system_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bwrap_binary, "SYSTEM_FOLDERS", (*bwrap_binary.SYSTEM_FOLDERS, str(tmp_path)))


def broken(folder: Path, script: str) -> str:
    """A PATH on which bwrap is somebody's who cannot confine; every run leaves a line in `runs`."""
    folder.mkdir()
    path = folder / "bwrap"
    path.write_text(f'#!/bin/sh\n[ "$1" = --version ] || echo run >> {folder}/runs\n{script}\n')
    path.chmod(0o755)
    return str(folder)


def test_bwrap_comes_first() -> None:
    chosen = choose(spec_for(), SEARCH_PATH)
    assert (chosen.backend, chosen.enforcement, chosen.gaps) == ("bwrap", Enforcement.FULL, ())
    assert chosen.passed_over == ""


def test_without_bwrap_it_is_landlock() -> None:
    chosen = choose(spec_for(), "/nowhere")
    assert chosen.backend == "landlock"
    assert chosen.gaps
    assert chosen.passed_over == "bwrap: no bwrap on PATH (install the package bubblewrap)"
    assert choose(spec_for(), "/nowhere", backend="landlock").passed_over == ""


def test_open_egress_is_partial_on_every_rung() -> None:
    for backend in ("bwrap", "landlock"):
        chosen = choose(spec_for(egress=OpenNetwork()), SEARCH_PATH, backend=backend)
        assert chosen.enforcement is Enforcement.PARTIAL


@needs_root
@pytest.mark.parametrize(
    "script", [f"echo '{UID_MAP}' >&2; exit 1", "exit 0", "exec sleep 600", "kill -9 $$"]
)
def test_a_broken_bwrap_leads_to_the_next_rung(tmp_path: Path, script: str) -> None:
    assert choose(spec_for(), broken(tmp_path / "bin", script)).backend == "landlock"


@needs_root
def test_a_named_rung_is_not_replaced(tmp_path: Path) -> None:
    path = broken(tmp_path / "bin", f"echo '{UID_MAP}' >&2; exit 1")
    with pytest.raises(SandboxUnavailable) as refused:
        choose(spec_for(), path, backend="bwrap")
    message = str(refused.value)
    assert message.startswith(f"the command cannot be confined here and is not run: {UID_MAP} (")
    assert "AppArmor" in message
    assert "\n" not in message


@needs_root
@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        (UID_MAP, "AppArmor"),
        ("bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted", "AppArmor"),
        ("bwrap: No permissions to create new namespace, likely because", "seccomp profile"),
        ("bwrap: Creating new namespace failed: nesting depth", "user.max_user_namespaces"),
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", "unmasked /proc"),
    ],
)
def test_the_likely_remedy_is_named(tmp_path: Path, line: str, remedy: str) -> None:
    path = broken(tmp_path / "bin", f'echo "{line}" >&2; exit 1')
    with pytest.raises(SandboxUnavailable) as refused:
        choose(spec_for(), path, backend="bwrap")
    assert line in str(refused.value)
    assert remedy in str(refused.value)


@needs_root
def test_the_probe_runs_once_for_one_shape_of_policy(tmp_path: Path) -> None:
    path = broken(tmp_path / "bin", "exit 1")
    root = tmp_path / "root"
    root.mkdir()
    for spec in (spec_for(), spec_for(root), spec_for()):
        choose(spec, path)
    assert (tmp_path / "bin/runs").read_text() == "run\n"
    choose(spec_for(egress=OpenNetwork()), path)
    assert (tmp_path / "bin/runs").read_text() == "run\n" * 2


def test_without_any_rung_nothing_is_run() -> None:
    with pytest.raises(SandboxUnavailable, match="no bwrap on PATH") as refused:
        choose(spec_for(egress=NoNetwork()), "/nowhere", backend="bwrap")
    assert refused.value.code == "SANDBOX_UNAVAILABLE"
    assert "install the package bubblewrap" in str(refused.value)


def test_a_root_that_has_gone_is_named(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    spec = spec_for(gone)
    gone.rmdir()
    with pytest.raises(SandboxUnavailable, match="gone' is no longer the folder that was named"):
        choose(spec, SEARCH_PATH)
