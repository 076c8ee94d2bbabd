"""Case C68: git inside works on the root alone; what git outside would run cannot be planted unseen.

A worktree's real git folder lies outside its root: a commit there is refused, and nothing is widened.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.certificates import CertificateAuthority
from tests.support.confined_run import BACKENDS, RunGround

IDENTITY = ("-c", "user.name=one", "-c", "user.email=one@example.com")
COMMIT = "git -c user.name=one -c user.email=one@example.com commit -q -m two"


@pytest.fixture
def ground(ca: CertificateAuthority) -> Iterator[RunGround]:
    with RunGround(ca) as made:
        for name in ("one", "two"):
            repository = made.folder / name
            repository.mkdir()
            git(repository, "init", "-q", "-b", "main")
            (repository / "file").write_text("1\n")
            git(repository, "add", "file")
            git(repository, *IDENTITY, "commit", "-q", "-m", "one")
        yield made


def git(folder: Path, *words: str) -> str:
    """Outside, as the user's own."""
    environ = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.check_output(("git", *words), cwd=folder, env=environ, text=True)


@pytest.mark.parametrize("backend", BACKENDS)
def test_ordinary_git_works(ground: RunGround, backend: str) -> None:
    script = f"echo 2 >file && git add file && {COMMIT} && git checkout -q -b side && git gc -q"
    ran = ground.run("sh", "-c", script, flags=("--backend", backend, "--rw", "."), cwd=ground.folder / "one")
    assert ran.code == 0, ran.err
    assert git(ground.folder / "one", "log", "--format=%s") == "two\none\n"
    assert "planted" not in ran.err


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_commit_in_a_worktree_is_refused_with_the_path_and_widens_nothing(
    ground: RunGround, backend: str
) -> None:
    git(ground.folder / "one", "worktree", "add", "-q", "../tree")
    # Started above both, so that bwrap shows them.
    script = f"cd tree && echo 2 >file && {{ git add file; {COMMIT}; }}"
    ran = ground.run("sh", "-c", script, flags=("--backend", backend, "--rw", "tree"))
    assert ran.code != 0
    assert "/one/.git/worktrees/tree/index.lock" in ran.err
    assert f"  --rw {ground.folder.resolve()}/one\n" in ran.err
    assert git(ground.folder / "one", "log", "--all", "--format=%s") == "one\n"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_forged_pointer_opens_no_folder(ground: RunGround, backend: str) -> None:
    victim, root = ground.folder / "victim", ground.folder / "root"
    victim.mkdir()
    root.mkdir()
    (root / ".git").write_text(f"gitdir: {victim}\n")
    script = f"touch {victim}/x; git -C root init -q"
    ran = ground.run("sh", "-c", script, flags=("-q", "--backend", backend, "--rw", "root"))
    assert ran.code != 0
    assert list(victim.iterdir()) == []


@pytest.mark.parametrize(
    "plant",
    [
        "mkdir -p .git/hooks; echo x >.git/hooks/pre-commit",
        "git config core.fsmonitor ./x",
        "mv .git .git.old && cp -r .git.old .git && echo x >.git/hooks/pre-commit",
        "mkdir -p .git/info; echo '* filter=x' >.git/info/attributes",
    ],
)
def test_in_each_root_hooks_and_settings_stay_as_they_are(ground: RunGround, plant: str) -> None:
    """bwrap's: the other rung cannot, and says so in its gaps."""
    folders = [ground.folder / name for name in ("one", "two")]
    for folder in folders:
        (folder / ".git" / "info").mkdir(exist_ok=True)
        (folder / ".git" / "info" / "attributes").touch()
    obeyed = ("hooks", "config", "info")
    before = [contents(folder / ".git" / name) for folder in folders for name in obeyed]
    script = f"for root in one two; do ( cd $root && {{ {plant}; }} ); done 2>/dev/null; exit 0"
    ran = ground.run("sh", "-c", script, flags=("--backend", "bwrap", "--rw", "one", "--rw", "two"))
    assert ran.code == 0
    assert [contents(folder / ".git" / name) for folder in folders for name in obeyed] == before


def contents(path: Path) -> dict[str, bytes]:
    files = [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())
    return {str(one): one.read_bytes() for one in files}


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_could_be_planted_is_reported(ground: RunGround, backend: str) -> None:
    script = "mkdir nested && git init -q nested && echo x >nested/.git/hooks/pre-commit && echo x >.envrc"
    ran = ground.run("sh", "-c", script, flags=("--backend", backend, "--rw", "."), cwd=ground.folder / "one")
    assert ran.code == 0, ran.err
    planted = [line.split()[1] for line in ran.err.splitlines() if line.split()[:1] == ["planted"]]
    root = ground.folder.resolve() / "one"
    assert {str(root / ".envrc"), str(root / "nested/.git/hooks/pre-commit")} <= set(planted)


@pytest.mark.parametrize(
    ("script", "name"),
    [
        ("git -C one config x.y z", ".git/config"),  # of the two that are there
        ("cd one && git remote add other ../other", ".git/config"),
        ("git -C one push -q -u ../other main:refs/heads/x", ".git/config"),
        ("git -C one branch -m main renamed", ".git/config"),
        ("git -C one worktree remove --force ../tree", "tree"),
        ("cd one && rm -rf dist", "one/dist/.env"),
    ],
)
def test_what_git_may_not_write_is_named_also_where_it_goes_on(
    ground: RunGround, script: str, name: str
) -> None:
    one = ground.folder / "one"
    git(ground.folder, "init", "-q", "--bare", "other")
    git(one, "worktree", "add", "-q", "../tree")
    (one / "dist").mkdir()
    (one / "dist" / ".env").write_text("KEY=1\n")
    ran = ground.run("sh", "-c", script, flags=("--backend", "bwrap", "--rw", "."))
    lines = [line for line in ran.err.splitlines() if line.startswith("  refused  ")]
    assert any(line.split()[1].removeprefix(f"{ground.folder.resolve()}/") == name for line in lines), ran.err
    assert not [line for line in lines if "--rw" in line]
