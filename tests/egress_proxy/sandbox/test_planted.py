"""What a command planted: everything that the host obeys is reported, readably, and ordinary work is not."""

import os
import subprocess
from pathlib import Path

import pytest

from egress_proxy.sandbox import planted as module
from egress_proxy.sandbox import protected
from egress_proxy.sandbox.obeyed_names import PROTECTED_NAMES, REPORTED_NAMES
from egress_proxy.sandbox.planted import Planted, planted, snapshot


def shell(command: str, root: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(root.parent), "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["sh", "-ec", command], cwd=root, env=environment, check=True, capture_output=True)


def after(command: str, root: Path) -> list[str]:
    """What is planted by ``command``, relative to the root."""
    before = snapshot([str(root)])
    shell(command, root)
    found = planted([str(root)], before)
    assert found.complete
    return [os.path.relpath(path, root) for path in found.paths]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace with a repository, a submodule's repository and an editor's folder."""
    root = tmp_path / "root"
    root.mkdir()
    shell("git init -q; mkdir -p .git/modules/sub .vscode src; git init -q --bare .git/modules/sub", root)
    shell("echo x > .envrc; echo x > .vscode/tasks.json; echo x > src/main.c; echo x > .gitmodules", root)
    written = (root / ".gitmodules").stat().st_ctime_ns
    while (root / "src/main.c").stat().st_ctime_ns <= written:  # the kernel's clock has a grain of some ms
        (root / "src/main.c").touch()
    return root


PLANTS = [
    ("echo x > .git/hooks/pre-commit", [".git/hooks/pre-commit"]),
    ("cp .git/hooks/pre-commit.sample .git/hooks/pre-push", [".git/hooks/pre-push"]),
    ("git config core.fsmonitor ./x", [".git/config"]),
    ("git config -f .git/modules/sub/config core.hooksPath x", [".git/modules/sub/config"]),
    ("echo x > .git/commondir", [".git/commondir"]),
    ("echo x > .git/config.worktree", [".git/config.worktree"]),
    ("mkdir -p .git/info; echo x > .git/info/attributes", [".git/info/attributes"]),
    ("mkdir -p .git/worktrees/w; echo x > .git/worktrees/w/commondir", [".git/worktrees/w/commondir"]),
    ("echo y > .envrc", [".envrc"]),
    ("chmod +x .envrc", [".envrc"]),
    ("echo y > e; mv e .envrc", [".envrc"]),
    ("ln -sf src/main.c .envrc", [".envrc", "src/main.c"]),
    ("echo x > .mcp.json", [".mcp.json"]),
    ("echo y > .vscode/tasks.json", [".vscode/tasks.json"]),
    ("echo x > .vscode/settings.json", [".vscode/settings.json"]),
    ("mkdir -p .claude/skills/s; echo x > .claude/skills/s/SKILL.md", [".claude/skills/s/SKILL.md"]),
    ("echo y > .gitmodules", [".gitmodules"]),
    ("mkdir .husky; echo x > .husky/pre-commit", [".husky/pre-commit"]),
    ("echo x > src/.bashrc", ["src/.bashrc"]),
    ("mkfifo src/.envrc", ["src/.envrc"]),
    ("mkdir src/a; echo 'gitdir: /x' > src/a/.git", ["src/a/.git"]),
    ("git init -q src/a", ["src/a/.git"]),
    ("git init -q --bare src/a.git", ["src/a.git"]),
    ("git init -q a; echo x > a/.git/hooks/post-checkout", ["a/.git", "a/.git/hooks/post-checkout"]),
    (
        "mv .git g; rm -r g/modules g/hooks; cp -r g .git; mkdir .git/hooks; echo x > .git/hooks/pre-commit",
        [".git/config", ".git/hooks/pre-commit", "g"],
    ),
    ("mkdir .claude; echo x > .claude/config", [".claude/config"]),
    ("mkdir .idea; for i in 1 2 3 4 5 6 7 8 9; do echo > .idea/$i; done", [".idea"]),
]


@pytest.mark.parametrize(("command", "expected"), PLANTS)
def test_what_the_host_would_obey_is_reported(root: Path, command: str, expected: list[str]) -> None:
    assert after(command, root) == expected


WORK = [
    "true",
    "echo x >> src/main.c; mkdir build; echo x > build/out",
    "git add -A; git -c user.name=t -c user.email=t@e commit -qm x; git checkout -qb y; git gc -q",
    "rm .envrc; rm -r .vscode",
    "mkdir -p node_modules/x; echo x > node_modules/x/.envrc",
    "cat .envrc .vscode/tasks.json .git/config",
    "echo x > .env; echo x > Makefile",
    "echo x > .git/hooks/pre-commit.sample",
]


@pytest.mark.parametrize("command", WORK)
def test_ordinary_work_is_not_reported(root: Path, command: str) -> None:
    assert after(command, root) == []


def test_a_write_whose_time_and_size_are_put_back_is_seen(root: Path) -> None:
    assert after("touch -r .envrc t; printf 'y\\n' > .envrc; touch -r t .envrc; rm t", root) == [".envrc"]


def test_what_a_link_in_the_root_leads_to_is_watched_and_nothing_outside(root: Path) -> None:
    (root.parent / "outside").mkdir()
    shell("rm -r .git/hooks; mkdir githooks; ln -s ../githooks .git/hooks; ln -s ../outside .claude", root)
    assert after("echo x > githooks/pre-commit; echo x > ../outside/x", root) == ["githooks/pre-commit"]


@pytest.mark.parametrize("name", [*PROTECTED_NAMES, *REPORTED_NAMES])
def test_every_name_is_watched_below_the_root_too(root: Path, name: str) -> None:
    found = after(f"mkdir -p 'src/x/{name}'; rmdir 'src/x/{name}'; echo x > 'src/x/{name}'", root)
    assert found == ["src/x/.git" if name == ".git/config" else f"src/x/{name}"]


def test_every_root_is_looked_at(root: Path, tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    roots = [str(root), f"{tmp_path}/second"]
    before = snapshot(roots)
    shell("echo x > ../second/.envrc", root)
    assert planted(roots, before) == Planted((f"{tmp_path}/second/.envrc",))


def test_pipes_and_folders_that_vanish_hold_nothing_up(root: Path) -> None:
    shell("mkfifo .git/hooks/p .vscode/p; ln -s loop .idea; ln -s .codex .codex", root)
    assert after("rm -r .git/hooks", root) == []
    before = snapshot([str(root), f"{root}/missing"])
    shell("rm -r .git .vscode", root)
    assert planted([str(root), f"{root}/missing"], before) == Planted()


def test_a_limit_is_told(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = snapshot([str(root)])
    with monkeypatch.context() as patch:
        patch.setattr(module, "FILES_LIMIT", 3)
        assert not planted([str(root)], before).complete
    with monkeypatch.context() as patch:
        patch.setattr(protected, "ENTRIES_LIMIT", 3)
        assert not planted([str(root)], before).complete
    assert planted([str(root)], before).complete


@pytest.mark.parametrize(
    "name", ["CLAUDE.md", "AGENTS.md", "GEMINI.md", "Jenkinsfile", ".github/workflows/ci.yml"]
)
def test_orders_to_agents_and_servers_are_told_as_people_write_them(root: Path, name: str) -> None:
    assert after(f"mkdir -p \"$(dirname '{name}')\"; echo x > '{name}'", root) == [name]


def test_a_rebase_that_will_run_a_program_and_the_folder_of_hooks_are_told(root: Path) -> None:
    subprocess.run(("git", "init", "-q", str(root)), check=True)
    subprocess.run(("git", "-C", str(root), "config", "core.hooksPath", "tools/hooks"), check=True)
    script = "mkdir -p .git/rebase-merge tools/hooks; echo exec x > .git/rebase-merge/git-rebase-todo"
    found = after(f"{script}; echo x > tools/hooks/pre-commit", root)
    assert found == [".git/rebase-merge/git-rebase-todo", "tools/hooks/pre-commit"]
