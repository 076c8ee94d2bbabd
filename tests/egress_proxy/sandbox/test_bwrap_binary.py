"""A bwrap is trusted only where nobody but root can put one, and never from a writable root."""

import os
from pathlib import Path

import pytest

from egress_proxy.sandbox import bwrap_binary
from egress_proxy.sandbox.bwrap_binary import NoBwrap, find_bwrap
from tests.support.confined import SEARCH_PATH, is_root

needs_root = pytest.mark.skipif(
    not is_root(), reason="only root can make files of root's: cannot be installed here: root"
)


@pytest.fixture(autouse=True)
def _is_a_system_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bwrap_binary, "SYSTEM_FOLDERS", (*bwrap_binary.SYSTEM_FOLDERS, str(tmp_path)))


def fake(folder: Path, script: str = "echo bubblewrap 0.11.0") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "bwrap"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_the_system_has_one() -> None:
    found = find_bwrap(SEARCH_PATH, ())
    assert os.path.basename(found.path) == "bwrap"
    assert os.path.isabs(found.path)


def test_nobodys_relative_entry_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NoBwrap, match="no bwrap on PATH"):
        find_bwrap(".::bin", ())


def test_one_in_a_writable_root_is_passed_over(tmp_path: Path) -> None:
    path = fake(tmp_path / "bin")
    assert find_bwrap(f"{path.parent}:{SEARCH_PATH}", (str(tmp_path),)).path != str(path)
    with pytest.raises(NoBwrap, match=f"{path} is passed over: it lies in a writable root"):
        find_bwrap(str(path.parent), (str(tmp_path),))


def test_a_link_counts_as_where_it_leads(tmp_path: Path) -> None:
    path = fake(tmp_path / "root")
    link = tmp_path / "bin"
    link.mkdir()
    (link / "bwrap").symlink_to(path)
    with pytest.raises(NoBwrap, match="it lies in a writable root"):
        find_bwrap(str(link), (str(path.parent),))


@pytest.mark.parametrize("part", ["file", "folder", "folder above"])
def test_one_that_others_can_write_is_passed_over(tmp_path: Path, part: str) -> None:
    path = fake(tmp_path / "above" / "bin")
    place = {"file": path, "folder": path.parent, "folder above": path.parent.parent}[part]
    place.chmod(0o777)
    with pytest.raises(NoBwrap, match="root is not the only one who can write"):
        find_bwrap(str(path.parent), ())


@needs_root
def test_one_of_another_users_is_passed_over(tmp_path: Path) -> None:
    path = fake(tmp_path / "bin")
    os.chown(path, 1000, 1000)
    with pytest.raises(NoBwrap, match="root is not the only one who can write it"):
        find_bwrap(str(path.parent), ())


@needs_root
@pytest.mark.parametrize(
    ("version", "knows"),
    [("0.6.1", False), ("0.8.0", True), ("0.11.0", True), ("1.0", True), ("x", False)],
)
def test_flags_follow_the_version(tmp_path: Path, version: str, knows: bool) -> None:
    path = fake(tmp_path / "bin", f"echo bubblewrap {version}")
    assert find_bwrap(str(path.parent), ()).disables_userns is knows


@needs_root
@pytest.mark.parametrize("script", ["sleep 600", "exit 1", "kill -9 $$"])
def test_one_that_does_not_say_is_left_to_the_probe(tmp_path: Path, script: str) -> None:
    path = fake(tmp_path / "bin", f"exec {script}")
    assert find_bwrap(str(path.parent), ()).disables_userns is False


@needs_root
def test_a_setuid_one_has_no_such_flag(tmp_path: Path) -> None:
    path = fake(tmp_path / "bin")
    path.chmod(0o4755)
    assert find_bwrap(str(path.parent), ()).disables_userns is False


@needs_root
@pytest.mark.parametrize(
    "folder", ["/opt/bin", "/root/bin", "/home/somebody/.local/bin", "/usr/share", "/srv"]
)
def test_elsewhere_than_in_a_system_folder_it_is_passed_over(
    tmp_path: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bwrap_binary, "SYSTEM_FOLDERS", ("/usr/bin", f"{tmp_path}/usr/bin"))
    path = fake(tmp_path / folder[1:])
    with pytest.raises(NoBwrap, match="it lies in no folder of the system's"):
        find_bwrap(str(path.parent), ())


@needs_root
def test_below_the_working_folder_or_a_home_it_is_passed_over(tmp_path: Path) -> None:
    path = fake(tmp_path / "usr" / "bin")
    for own in (tmp_path, tmp_path / "usr", tmp_path / "usr/bin"):
        with pytest.raises(NoBwrap, match="it lies in the working folder or a home"):
            find_bwrap(str(path.parent), (), ("/nowhere", str(own)))


def test_whoever_works_in_the_top_folder_has_the_systems_one() -> None:
    assert find_bwrap(SEARCH_PATH, (), ("/", "/")).path
