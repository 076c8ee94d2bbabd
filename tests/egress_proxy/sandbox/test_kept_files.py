"""What steers the next run stays as it is, or the root is refused: by links, second names, and the rung."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from egress_proxy.core.attach import OwnFiles
from egress_proxy.sandbox.kept_files import check_kept, kept_of
from egress_proxy.sandbox.spec import Kept, KeptRefused, SandboxSpec, ThroughProxy
from tests.support.confined import run_confined, shell, spec_for


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    (tmp_path / "root/conf").mkdir(parents=True)
    file = tmp_path / "root/conf/egress.toml"
    file.write_text("allow = []\n")
    return file


def keeping(root: Path, path: object) -> SandboxSpec:
    return replace(spec_for(root), kept=(Kept(str(path), "the settings file (--config)"),))


def test_bwrap_has_it_read_only_and_in_its_place(tmp_path: Path, settings: Path) -> None:
    script = "echo x >> conf/egress.toml; mv conf other; rm conf/egress.toml; echo x > conf/new"
    ended = run_confined(keeping(tmp_path / "root", settings), shell(script), backend="bwrap")
    assert settings.read_text() == "allow = []\n"
    assert (tmp_path / "root/conf/new").exists()
    assert "Read-only" in ended.stderr


def test_a_folder_in_a_root_is_kept_with_all_that_is_and_could_be_in_it(
    tmp_path: Path, settings: Path
) -> None:
    script = "echo x > conf/new; rm conf/egress.toml; mv conf other; echo x > beside"
    ended = run_confined(keeping(tmp_path / "root", settings.parent), shell(script), backend="bwrap")
    assert "Read-only" in ended.stderr
    assert sorted(os.listdir(tmp_path / "root")) == ["beside", "conf"]
    assert os.listdir(settings.parent) == ["egress.toml"]


def test_a_folder_that_is_the_root_or_holds_it_is_no_less_writable(tmp_path: Path, settings: Path) -> None:
    for folder in (tmp_path / "root", tmp_path):
        run_confined(keeping(tmp_path / "root", folder), shell("echo x > new"), backend="bwrap")
        (tmp_path / "root/new").unlink()


def test_landlock_refuses_the_root_and_names_the_file_and_the_flag(tmp_path: Path, settings: Path) -> None:
    with pytest.raises(KeptRefused, match=rf"{tmp_path}/root.*--config.*egress\.toml"):
        run_confined(keeping(tmp_path / "root", settings), shell("true"), backend="landlock")
    check_kept(keeping(tmp_path / "root/conf", tmp_path / "elsewhere"), can_keep=False)


def test_a_link_a_second_name_and_a_file_to_come_cannot_be_kept(tmp_path: Path, settings: Path) -> None:
    root = tmp_path / "root"
    (root / "link").symlink_to("conf")
    (tmp_path / "outside.toml").symlink_to(settings)
    check_kept(keeping(root, tmp_path / "outside.toml"), can_keep=True)
    for path in ("link/egress.toml", "missing.toml"):
        with pytest.raises(KeptRefused):
            check_kept(keeping(root, root / path), can_keep=True)
    os.link(settings, root / "second")
    with pytest.raises(KeptRefused, match="hard link"):
        check_kept(keeping(root, settings), can_keep=True)


def test_what_the_proxy_names_is_kept_too(tmp_path: Path) -> None:
    own = OwnFiles((f"{tmp_path}/key",), (f"{tmp_path}/audit",))
    spec = spec_for(tmp_path, ThroughProxy("/attach.sock", 1, own))
    assert {one.path for one in kept_of(spec)} == {f"{tmp_path}/key", f"{tmp_path}/audit"}
