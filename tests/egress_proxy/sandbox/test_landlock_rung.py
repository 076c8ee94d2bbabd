"""The Landlock rung as a whole: what it promises for a policy, and that it holds here."""

from dataclasses import replace
from pathlib import Path

import pytest

from egress_proxy.sandbox.landlock_gaps import Rung
from egress_proxy.sandbox.landlock_rung import find_landlock, landlock_gaps, landlock_recipe
from egress_proxy.sandbox.spec import (
    Dimension,
    Enforcement,
    NoNetwork,
    OpenNetwork,
    PortsOnly,
    SandboxUnavailable,
    ThroughProxy,
    overall,
)
from tests.support.confined import run_confined, shell, spec_for

PROXY = ThroughProxy("/attach.sock", 8899)


def test_this_kernel_has_it() -> None:
    rung = find_landlock()
    assert rung.abi >= 1
    assert rung.supervised is rung.filtered


@pytest.mark.parametrize("egress", [NoNetwork(), PROXY], ids=repr)
@pytest.mark.parametrize(("abi", "word"), [(1, "partial"), (2, "partial"), (3, "full"), (7, "full")])
def test_the_word_is_full_from_the_abi_that_holds_truncate(
    egress: NoNetwork | ThroughProxy, abi: int, word: str
) -> None:
    assert overall(landlock_gaps(spec_for(egress=egress), Rung(abi))) == word


@pytest.mark.parametrize("egress", [OpenNetwork(), PortsOnly(frozenset({443}))], ids=repr)
def test_open_and_port_only_egress_is_partial(egress: OpenNetwork | PortsOnly) -> None:
    assert overall(landlock_gaps(spec_for(egress=egress), Rung(7))) is Enforcement.PARTIAL


def test_a_mask_inside_a_root_is_a_gap_that_is_named(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("KEY=1")
    gaps = landlock_gaps(spec_for(tmp_path), Rung(7))
    assert Dimension.SECRETS in {gap.dimension for gap in gaps}
    assert Dimension.SECRETS not in {gap.dimension for gap in landlock_gaps(spec_for(), Rung(7))}


def test_per_host_egress_without_the_filter_is_refused() -> None:
    with pytest.raises(SandboxUnavailable, match="needs the seccomp filter"):
        landlock_recipe(spec_for(egress=PROXY), Rung(7, filtered=False, supervised=False))


def test_the_channel_is_opened_for_the_proxy_alone() -> None:
    rung = find_landlock()
    assert "@channel" in landlock_recipe(spec_for(egress=PROXY), rung).words
    assert "@channel" not in landlock_recipe(spec_for(), rung).words


def test_roots_and_a_private_folder_can_be_written_and_nothing_else(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    script = f"echo in > {root}/f; echo x > $TMPDIR/f && echo tmp; echo out > {tmp_path}/out; echo $TMPDIR"
    end = run_confined(spec_for(root), shell(script), backend="landlock")
    said = end.stdout.splitlines()
    assert said[0] == "tmp"
    assert (root / "f").read_text() == "in\n"
    assert not (tmp_path / "out").exists()
    assert not Path(said[1]).exists()
    assert end.stderr.count("Permission denied") == 1


def test_secrets_of_the_home_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/id").write_text("KEY")
    (tmp_path / "other").write_text("other")
    spec = replace(spec_for(), homes=(str(tmp_path),), cwd=str(tmp_path))
    end = run_confined(spec, shell("cat .ssh/id other"), backend="landlock")
    assert end.stdout == "other"


def test_what_it_has_started_ends_with_it() -> None:
    script = "setsid sleep 600 >/dev/null 2>&1 & echo $!"
    end = run_confined(spec_for(), shell(script), backend="landlock")
    assert not Path(f"/proc/{end.stdout.strip()}").exists()
