"""Who could write a file or put another in its place: root and its owner are trusted, the rest is told."""

import os
from pathlib import Path

import pytest

from egress_proxy import path_trust
from egress_proxy.path_trust import file_owner, open_folder_above, writable_by_others


@pytest.mark.parametrize(
    ("mode", "told"), [(0o600, None), (0o644, None), (0o755, None), (0o660, "0660"), (0o4646, "4646")]
)
def test_a_file_that_others_can_write_is_told_with_its_mode(
    tmp_path: Path, mode: int, told: str | None
) -> None:
    path = tmp_path / "file"
    path.touch()
    path.chmod(mode)
    assert writable_by_others(path.stat()) == told


def test_devices_and_pipes_are_nobody_s_to_replace() -> None:
    assert writable_by_others(os.stat("/dev/null")) is None


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o1777])
def test_a_folder_in_which_each_has_his_own_is_none(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    assert open_folder_above(str(tmp_path / "a" / "b")) is None


def test_every_folder_on_the_way_counts_past_links_and_dots_too(tmp_path: Path) -> None:
    for name in ("open/inner", "closed"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "closed" / "link").symlink_to(tmp_path / "open" / "inner")
    (tmp_path / "open" / "out").symlink_to(tmp_path / "closed")
    for path in ("open/x", "open/inner/x", "closed/link/x", "open/out/x", "closed/link/none/x"):
        assert open_folder_above(str(tmp_path / path)) == str(tmp_path / "open"), path
    assert open_folder_above(str(tmp_path / "closed" / "x")) is None


def test_root_and_we_are_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = os.stat(tmp_path).st_uid
    assert file_owner(str(tmp_path)) is None
    assert file_owner("/") is None
    assert file_owner(str(tmp_path / "none")) is None
    monkeypatch.setattr(path_trust, "_TRUSTED", frozenset({owner + 1}))
    monkeypatch.setattr("os.geteuid", lambda: owner + 1)
    assert file_owner(str(tmp_path)) == owner
