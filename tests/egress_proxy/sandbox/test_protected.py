"""What is protected and masked in a root: found wherever it is, and under real bwrap out of reach."""

import os
import subprocess
from pathlib import Path

import pytest

from egress_proxy.sandbox import protected
from egress_proxy.sandbox.obeyed_names import PROTECTED_NAMES, WORKSPACE_NAMES
from egress_proxy.sandbox.protected import (
    Protection,
    ProtectionRefused,
    protected_in,
    scan,
    small_file,
)
from tests.support.bwrap_shell import run_in_bwrap, unavailable


def git(*words: str, cwd: Path) -> None:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com", *words]
    subprocess.run(command, cwd=cwd, check=True, capture_output=True)


def make(root: Path, *paths: str) -> None:
    """Files, or folders where a path ends in a slash."""
    for path in paths:
        place = root / path
        (place if path.endswith("/") else place.parent).mkdir(parents=True, exist_ok=True)
        if not path.endswith("/"):
            place.write_text("x\n")


def names(root: Path, paths: tuple[str, ...]) -> list[str]:
    return [os.path.relpath(path, root) for path in paths]


def confined(root: Path, command: str) -> subprocess.CompletedProcess[str]:
    if (reason := unavailable()) is not None:
        pytest.skip(reason)
    found = protected_in(str(root))
    words = ["sh", "-c", command]
    return run_in_bwrap(words, root, mount_points=found.mount_points, read_only=found.read_only)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git("init", "-q", cwd=tmp_path)
    make(tmp_path, ".git/hooks/", ".git/info/attributes", ".envrc", ".vscode/tasks.json", "src/main.c")
    return tmp_path


def test_what_exists_is_read_only_and_every_folder_up_to_the_root_a_mount_point(repository: Path) -> None:
    found = protected_in(str(repository))
    assert names(repository, found.read_only) == [
        ".envrc", ".git/config", ".git/hooks", ".git/info/attributes", ".vscode",
    ]  # fmt: skip
    assert names(repository, found.mount_points) == [".git", ".git/info"]
    assert found.complete
    assert not found.links


@pytest.mark.parametrize("name", PROTECTED_NAMES)
def test_every_protected_name_is_found_in_the_root_and_below_it(tmp_path: Path, name: str) -> None:
    make(tmp_path, name, f"a/b/{name}", "a/b/c/other")
    assert set(names(tmp_path, protected_in(str(tmp_path)).read_only)) == {name, f"a/b/{name}"}


def test_mount_points_come_from_the_root_down(tmp_path: Path) -> None:
    make(tmp_path, "a/b/.git/hooks/")
    assert names(tmp_path, protected_in(str(tmp_path)).mount_points) == ["a", "a/b", "a/b/.git"]


def test_what_is_not_there_is_not_made(tmp_path: Path) -> None:
    make(tmp_path, "src/")
    assert protected_in(str(tmp_path)) == Protection((), ())
    assert os.listdir(tmp_path) == ["src"]


WRITES = [
    "echo x >> .git/config",
    "echo x > .git/hooks/pre-commit",
    "rm .git/config",
    "rm -r .git/hooks",
    "mv .git .git.old",
    "mv .git/hooks hooks.old",
    "mv .git/info info.old",
    "mv .vscode v",
    "rm .envrc",
    "mv .envrc e",
    "ln -sfn /etc .vscode",
    "echo x > e && mv -f e .envrc",
    "git config core.fsmonitor ./x",
    "ln .git/config config && echo x >> config",
    "chmod 777 .git/config",
    "truncate -s 0 .vscode/tasks.json",
]


@pytest.mark.parametrize("command", WRITES)
def test_no_command_changes_replaces_or_moves_what_is_protected(repository: Path, command: str) -> None:
    def content() -> dict[str, bytes]:
        paths = protected_in(str(repository)).read_only
        files = [file for path in paths for file in (Path(path), *Path(path).rglob("*")) if file.is_file()]
        return {str(file): file.read_bytes() for file in files}

    before = content()
    ended = confined(repository, command)
    assert ended.returncode != 0, ended
    assert content() == before


def test_ordinary_work_goes_on_beside_it(repository: Path) -> None:
    work = (
        "git add src && git -c user.name=t -c user.email=t@e commit -qm x && git checkout -q -b y"
        " && mv src lib && rm -r lib && mkdir new && echo x > new/.envrc && git stash -q && git status"
    )
    ended = confined(repository, work)
    assert ended.returncode == 0, ended


def test_a_repository_below_the_root_cannot_be_moved_away(tmp_path: Path) -> None:
    make(tmp_path, "a/b/.git/hooks/")
    for command in ("mv a/b/.git a/b/g", "mv a/b a/c", "mv a c", "rm -r a"):
        assert confined(tmp_path, command).returncode != 0
        assert (tmp_path / "a/b/.git/hooks").is_dir()


def test_a_worktrees_git_file_is_protected_and_nothing_outside_is_opened(tmp_path: Path) -> None:
    """A commit there fails, as the repository is not writable: that is the documented outcome."""
    main, tree = tmp_path / "main", tmp_path / "tree"
    main.mkdir()
    git("init", "-q", cwd=main)
    git("commit", "-q", "--allow-empty", "-m", "x", cwd=main)
    git("worktree", "add", "-q", str(tree), cwd=main)
    found = protected_in(str(tree))
    assert names(tree, found.read_only) == [".git"]
    assert confined(tree, "echo 'gitdir: /tmp' > .git").returncode != 0
    commit = confined(tree, "git -c user.name=t -c user.email=t@e commit --allow-empty -qm y")
    assert commit.returncode != 0
    assert "Read-only file system" in commit.stderr


@pytest.mark.parametrize(
    "line", ["gitdir: /etc", "gitdir: ../..", "gitdir: /", "gitdir: .", "gitdir: a\0b", "x"]
)
def test_a_forged_git_file_changes_nothing_else(tmp_path: Path, line: str) -> None:
    root = tmp_path / "root"
    make(root, "config", "hooks/")
    (root / ".git").write_text(line)
    assert protected_in(str(root)) == Protection((), (f"{root}/.git",))


def test_a_git_folder_elsewhere_in_the_root_is_found_by_its_git_file(tmp_path: Path) -> None:
    (tmp_path / "store/deep/er").mkdir(parents=True)
    git("init", "-q", "--separate-git-dir", "store/deep/er/git", cwd=tmp_path)
    read_only = names(tmp_path, protected_in(str(tmp_path)).read_only)
    assert "store/deep/er/git/config" in read_only
    assert ".git" in read_only


def test_repositories_in_modules_and_linked_worktrees_are_protected(tmp_path: Path) -> None:
    make(
        tmp_path, ".git/modules/lib/json/HEAD", ".git/modules/lib/json/config", ".git/modules/a/HEAD",
        ".git/modules/a/hooks/", ".git/modules/a/modules/b/config", ".git/worktrees/w/commondir",
        ".git/worktrees/w/gitdir", ".git/worktrees/w/HEAD",
    )  # fmt: skip
    assert names(tmp_path, protected_in(str(tmp_path)).read_only) == [
        ".git/modules/a/hooks", ".git/modules/a/modules/b/config", ".git/modules/lib/json/config",
        ".git/worktrees/w/commondir", ".git/worktrees/w/gitdir",
    ]  # fmt: skip


def test_modules_in_modules_without_end_are_walked_without_recursion(tmp_path: Path) -> None:
    make(tmp_path, ".git/" + "modules/a/" * 300 + "config")
    place = tmp_path / ".git"
    for _ in range(300):
        place = place / "modules" / "a"
        (place / "HEAD").touch()
    assert len(protected_in(str(tmp_path)).read_only) == 1


def test_a_bare_repository_is_protected_and_hides_nothing_beside_it(tmp_path: Path) -> None:
    git("init", "-q", "--bare", "store.git", cwd=tmp_path)
    git("init", "-q", cwd=tmp_path)
    make(tmp_path, "HEAD", "objects/", "refs/", "sub/.envrc")
    read_only = names(tmp_path, protected_in(str(tmp_path)).read_only)
    assert {"store.git/config", "store.git/hooks", ".git/config", "sub/.envrc"} <= set(read_only)


def test_a_git_link_is_refused_by_name(tmp_path: Path) -> None:
    make(tmp_path, "store/hooks/")
    (tmp_path / ".git").symlink_to("store")
    with pytest.raises(ProtectionRefused, match=r"\.git' is a symbolic link.*gitdir: FOLDER"):
        protected_in(str(tmp_path))


def test_another_link_is_named_and_its_target_in_the_root_protected(tmp_path: Path) -> None:
    root = tmp_path / "root"
    make(tmp_path, "root/shared/vscode/", "outside")
    for name, target in (
        (".vscode", "shared/vscode"),
        (".envrc", "../outside"),
        (".idea", ".idea"),
        (".codex", "x"),
    ):
        (root / name).symlink_to(target)
    found = protected_in(str(root))
    assert names(root, found.read_only) == ["shared/vscode"]
    assert names(root, found.mount_points) == ["shared"]
    assert set(names(root, found.links)) == {".vscode", ".envrc", ".idea", ".codex"}


def test_links_to_folders_and_dependencies_are_not_entered(tmp_path: Path) -> None:
    root = tmp_path / "root"
    make(tmp_path, "outside/.envrc", "root/node_modules/x/.envrc", "root/.venv/.envrc", "root/a/b/c/.envrc")
    (root / "link").symlink_to("../outside")
    assert protected_in(str(root)) == Protection((), ())


def test_further_paths_are_protected_where_they_lie_in_the_root(tmp_path: Path) -> None:
    root = tmp_path / "root"
    make(tmp_path, "root/app/approvals.json", "outside")
    also = [f"{root}/app/approvals.json", f"{tmp_path}/outside", f"{root}/missing", str(root)]
    found = protected_in(str(root), also)
    assert names(root, found.read_only) == ["app/approvals.json"]
    assert names(root, found.mount_points) == ["app"]


def test_case_does_not_hide_a_name(tmp_path: Path) -> None:
    make(tmp_path, ".Git/hooks/", ".EnvRC")
    assert names(tmp_path, protected_in(str(tmp_path)).read_only) == [".EnvRC", ".Git/hooks"]


def test_a_limit_says_that_it_was_reached_and_the_roots_own_names_are_found_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, *(f"f{number}" for number in range(50)), ".git/hooks/", *WORKSPACE_NAMES)
    monkeypatch.setattr(protected, "ENTRIES_LIMIT", 20)
    found = protected_in(str(tmp_path))
    assert not found.complete
    assert set(names(tmp_path, found.read_only)) == {".git/hooks", *WORKSPACE_NAMES}


def test_too_many_protected_names_end_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, *(f"{number}/.envrc" for number in range(20)))
    monkeypatch.setattr(protected, "FOUND_LIMIT", 5)
    found = protected_in(str(tmp_path))
    assert not found.complete
    assert len(found.read_only) == 6


def test_bwrap_takes_as_many_mounts_as_the_limit_lets_through(tmp_path: Path) -> None:
    make(tmp_path, *(f"d/{number}/.envrc" for number in range(protected.FOUND_LIMIT)))
    assert protected_in(str(tmp_path)).complete
    assert confined(tmp_path, "true").returncode == 0


def test_reported_names_are_found_and_left_writable(tmp_path: Path) -> None:
    make(tmp_path, ".gitmodules", "a/.husky/pre-commit")
    assert names(tmp_path, tuple(scan(str(tmp_path)).reported)) == [".gitmodules", "a/.husky"]
    assert protected_in(str(tmp_path)).read_only == ()


def test_names_are_relative_and_plain() -> None:
    for name in PROTECTED_NAMES:
        assert name == os.path.normpath(name)
        assert name.startswith(".")
        assert not name.startswith("..")


def test_a_small_file_is_read_and_nothing_is_waited_for_or_followed(tmp_path: Path) -> None:
    make(tmp_path, "file", "folder/")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("file")
    assert small_file(f"{tmp_path}/file", 1) == b"x"
    for name in ("pipe", "link", "folder", "missing"):
        assert small_file(f"{tmp_path}/{name}", 10) is None
