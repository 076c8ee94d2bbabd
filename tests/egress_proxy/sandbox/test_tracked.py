"""Whether a repository holds a file's content: by what git itself has written, in all its kinds."""

import subprocess
from pathlib import Path

import pytest

from egress_proxy.sandbox.tracked import is_tracked


def git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@t.test", "-c", "protocol.file.allow=always")
    subprocess.run(("git", "-C", str(folder), *identity, *words), check=True, capture_output=True)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep/.env").write_text("A=1\n")
    return folder


@pytest.mark.parametrize("options", [(), ("--object-format=sha256",)])
@pytest.mark.parametrize("version", ["2", "4"])
def test_what_was_added_is_tracked_until_it_is_changed(
    work: Path, options: tuple[str, ...], version: str
) -> None:
    git(work, "init", "-q", *options)
    assert not is_tracked(f"{work}/deep/.env")
    git(work, "add", "-A")
    git(work, "update-index", "--index-version", version)
    assert is_tracked(f"{work}/deep/.env")
    (work / "deep/.env").write_text("A=2\n")
    assert not is_tracked(f"{work}/deep/.env")


def test_a_split_index_and_a_linked_worktree(work: Path) -> None:
    git(work, "init", "-q")
    git(work, "add", "-A")
    git(work, "commit", "-qm", "one")
    git(work, "worktree", "add", "-q", "../linked")
    assert is_tracked(f"{work.parent}/linked/deep/.env")
    git(work, "update-index", "--split-index")
    assert is_tracked(f"{work}/deep/.env")


def test_line_ends_that_git_turns_are_no_change(work: Path) -> None:
    git(work, "init", "-q")
    git(work, "add", "-A")
    (work / "deep/.env").write_bytes(b"A=1\r\n")
    assert is_tracked(f"{work}/deep/.env")


def test_nothing_is_tracked_outside_of_a_repository_or_in_a_broken_one(work: Path) -> None:
    assert not is_tracked(f"{work}/deep/.env")
    (work / ".git").mkdir()
    assert not is_tracked(f"{work}/deep/.env")
    (work / ".git/index").mkdir()
    assert not is_tracked(f"{work}/deep/.env")
    assert not is_tracked(f"{work}/missing")
