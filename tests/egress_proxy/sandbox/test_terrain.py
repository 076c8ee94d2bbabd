"""One search of where a command will run: both of its halves, and what it cannot see is a gap."""

from dataclasses import replace
from pathlib import Path

import pytest

from egress_proxy.sandbox.spec import Dimension, SandboxUnavailable
from egress_proxy.sandbox.terrain import survey
from tests.support.confined import spec_for


def test_it_finds_what_to_protect_and_what_to_hide(tmp_path: Path) -> None:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".env").write_text("KEY=1")
    spec = spec_for(tmp_path)
    found = survey(spec)
    assert found.masked.paths == (f"{tmp_path}/.env",)
    assert [one.read_only for one in found.protections(spec)] == [(f"{tmp_path}/.claude",)]
    assert found.protections(replace(spec, protect=False)) == ()


def test_what_stays_open_is_a_gap_of_secrets(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/config").write_text("[remote]\n\turl = https://u:t@h.test/x\n")
    assert [gap.dimension for gap in survey(spec_for(tmp_path)).gaps()] == [Dimension.SECRETS]


def test_what_cannot_be_protected_ends_it(tmp_path: Path) -> None:
    (tmp_path / ".git").symlink_to("elsewhere")
    with pytest.raises(SandboxUnavailable, match="symbolic link"):
        survey(spec_for(tmp_path)).protections(spec_for(tmp_path))
