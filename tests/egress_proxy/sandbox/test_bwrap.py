"""The bwrap rung: what its mounts show and hide, what can be written, and in which order it is said."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from egress_proxy.sandbox import bwrap
from egress_proxy.sandbox.bwrap import bwrap_gaps, bwrap_recipe
from egress_proxy.sandbox.bwrap_binary import BwrapBinary
from egress_proxy.sandbox.spec import (
    Dimension,
    Enforcement,
    NoNetwork,
    OpenNetwork,
    PortsOnly,
    SandboxSpec,
    SandboxUnavailable,
    ThroughProxy,
    overall,
)
from tests.support.confined import Confined, run_confined, shell, spec_for

BINARY = BwrapBinary("/usr/bin/bwrap", disables_userns=True)
PROXY = ThroughProxy("/attach.sock", 8899)


def run(spec: SandboxSpec, script: str) -> Confined:
    return run_confined(spec, shell(script), backend="bwrap")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


def test_the_root_can_be_written_and_nothing_else(root: Path) -> None:
    ended = run(
        spec_for(root), f"echo in > {root}/file; echo out > /etc/egress-test; echo out > {root}/../out"
    )
    assert (root / "file").read_text() == "in\n"
    assert not Path("/etc/egress-test").exists()
    assert not (root.parent / "out").exists()
    assert ended.stderr.count("Read-only file system") == 1  # the other is in the sandbox's own /tmp


def test_folders_for_temporary_files_are_its_own(root: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("other people's")
    ended = run(spec_for(root), f"cat {tmp_path}/secret; echo x > /tmp/own && cat /tmp/own")
    assert ended.stdout == "x\n"
    assert not Path("/tmp/own").exists()


def test_a_working_folder_in_tmp_is_shown_and_stays_read_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("shown\n")
    ended = run(replace(spec_for(), cwd=str(tmp_path)), "cat file; echo x > new")
    assert ended.stdout == "shown\n"
    assert not (tmp_path / "new").exists()


def test_a_working_folder_in_run_is_refused() -> None:
    with pytest.raises(SandboxUnavailable, match="the working folder /run/user is not shown"):
        bwrap_recipe(replace(spec_for(), cwd="/run/user"), BINARY, portable=False)


def test_hooks_cannot_be_changed_nor_moved_away(root: Path) -> None:
    subprocess.run(("git", "init", "-q", str(root)), check=True)
    script = "echo x > .git/hooks/pre-commit; mv .git .old; mv .git/hooks .git/h2; rm -rf .git; ls .git/hooks"
    before = sorted(os.listdir(root / ".git/hooks"))
    ended = run(spec_for(root), script)
    assert sorted(os.listdir(root / ".git/hooks")) == before
    assert ended.stderr.count("Device or resource busy") >= 2
    assert ended.finished.outcome.planted.paths == ()


def test_git_commit_works_beside_protected_hooks(root: Path) -> None:
    subprocess.run(("git", "init", "-q", str(root)), check=True)
    commit = "git -c user.name=t -c user.email=t@t.test commit -q --allow-empty -m x && git log --format=%s"
    assert run(spec_for(root), commit).stdout == "x\n"


def test_secrets_of_the_home_and_env_files_are_hidden(root: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/id").write_text("KEY")
    (home / ".netrc").write_text("KEY")
    (root / ".env").write_text("KEY")
    (root / "named").write_text("KEY")
    spec = replace(spec_for(root), homes=(str(home),), cwd=str(home), masks=(str(root / "named"),))
    script = f"cat .ssh/id .netrc {root}/.env {root}/named"
    assert "KEY" not in run(spec, script).stdout
    shown = run(replace(spec, mask_secrets=False, masks=()), script)
    assert shown.stdout == "KEY" * 4


def test_a_root_that_is_a_link_later_leads_nowhere_new(root: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    spec = spec_for(root)
    root.rename(tmp_path / "moved")
    root.symlink_to(victim)
    with pytest.raises(SandboxUnavailable, match="no longer the folder that was named"):
        run(spec, f"echo x > {root}/planted")
    assert not list(victim.iterdir())


def test_the_command_has_no_capability_and_no_new_namespace(root: Path) -> None:
    ended = run(
        spec_for(root), "grep -E 'Cap(Eff|Bnd)|NoNewPrivs|Seccomp:' /proc/self/status; unshare -U true"
    )
    assert {line.split()[-1] for line in ended.stdout.splitlines() if "Cap" in line} == {"0" * 16}
    assert "NoNewPrivs:\t1\nSeccomp:\t2\n" in ended.stdout
    assert "Operation not permitted" in ended.stderr


@pytest.mark.parametrize("egress", [NoNetwork(), PROXY])
def test_with_a_network_of_its_own_nothing_is_missing(egress: NoNetwork | ThroughProxy) -> None:
    assert bwrap_gaps(spec_for(egress=egress)) == ()


@pytest.mark.parametrize("egress", [OpenNetwork(), PortsOnly(frozenset({443}))])
def test_with_the_hosts_network_egress_is_partial(egress: OpenNetwork | PortsOnly) -> None:
    gaps = bwrap_gaps(spec_for(egress=egress))
    assert overall(gaps) is Enforcement.PARTIAL
    assert {gap.dimension for gap in gaps} == {Dimension.EGRESS, Dimension.INBOUND}


def test_roots_come_after_the_folders_that_would_hide_them(root: Path) -> None:
    args = bwrap_recipe(spec_for(root), BINARY, portable=False).args
    assert args.index(str(root.resolve())) > args.index("/tmp")


def test_proc_sys_is_covered_after_proc(root: Path) -> None:
    """Else its files, which belong to uid 0, stay writable to root: core_pattern is code on the host."""
    args = bwrap_recipe(spec_for(root), BINARY, portable=False).args
    at = args.index("/proc/sys")
    assert args[at - 1 : at + 2] == ("--ro-bind", "/proc/sys", "/proc/sys")
    assert at > args.index("/proc")


@pytest.mark.parametrize("interactive", [True, False])
def test_only_a_command_at_the_terminal_keeps_its_session(root: Path, interactive: bool) -> None:
    args = bwrap_recipe(replace(spec_for(root), interactive=interactive), BINARY, portable=False).args
    assert ("--new-session" in args) is not interactive


@pytest.mark.skipif(os.geteuid() != 0, reason="not root: the drop-ins cannot be made")
def test_ssh_reads_its_settings_or_none_where_roots_files_belong_to_nobody(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    drop_ins = tmp_path / "ssh_config.d"
    drop_ins.mkdir()
    monkeypatch.setattr(bwrap, "_SSH_DROP_INS", (str(drop_ins), str(tmp_path / "none")))
    assert list(bwrap._hidden_settings()) == []
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert list(bwrap._hidden_settings()) == []  # nothing in it, nothing to hide
    (drop_ins / "20-one.conf").write_text("Host *\n")
    hidden = list(bwrap._hidden_settings())
    assert hidden == ["--tmpfs", str(drop_ins), "--remount-ro", str(drop_ins)]
