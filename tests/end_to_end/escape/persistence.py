"""Attempts to leave something behind that is run later, outside: hooks, settings, start-up files.

Run inside; some are planted before the start and wait for our own programs. Next: evidence.py (planted).
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from tests.end_to_end.escape.attempts import Escaped, Ground, Kind, Missing, Setting, attempt
from tests.end_to_end.escape.calls import rename_exchange, write
from tests.end_to_end.escape.evidence import MARK, code_ran, planted

HOOK = ".git/hooks/pre-commit"


def open_for_writing(paths: Iterable[str]) -> None:
    """Only opened: what is in them is the machine's own."""
    failures = []
    for path in paths:
        try:
            if os.path.isdir(path):
                os.close(os.open(path, os.O_TMPFILE | os.O_WRONLY, 0o600))
            elif os.path.exists(path):
                os.close(os.open(path, os.O_WRONLY | os.O_APPEND))
            else:
                continue
        except OSError as error:
            failures.append(error)
        else:
            raise Escaped(f"could write {path}")
    raise failures[-1] if failures else Missing("none of them is here")


def plant(ground: Ground, name: str) -> None:
    path = f"{ground.root}/{name}"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    write(path, MARK)


def append(ground: Ground, name: str) -> None:
    write(f"{ground.root}/{name}", f"[core]\n fsmonitor = {MARK}\n", mode="a")


@attempt(Kind.EFFECT)
def write_ld_so_preload_dir(ground: Ground) -> None:
    open_for_writing(["/etc"])


@attempt(Kind.EFFECT)
def write_cron(ground: Ground) -> None:
    open_for_writing(["/var/spool/cron", "/etc/cron.d", "/etc/crontab"])


@attempt(Kind.EFFECT)
def write_shell_rc(ground: Ground) -> None:
    open_for_writing([f"{ground.home}/.bashrc", f"{ground.home}/.profile"])


@attempt(Kind.EFFECT)
def write_ssh_authorized_keys(ground: Ground) -> None:
    open_for_writing([f"{ground.home}/.ssh"])


@attempt(Kind.EFFECT)
def write_path_bin(ground: Ground) -> None:
    open_for_writing(["/usr/local/bin", f"{ground.home}/.local/bin"])


@attempt(Kind.EFFECT)
def write_user_systemd(ground: Ground) -> None:
    open_for_writing([f"{ground.home}/.config/systemd/user", f"{ground.home}/.config/autostart"])


@attempt(Kind.PERSIST, planted(HOOK))
def git_hook_plant(ground: Ground) -> None:
    plant(ground, HOOK)


@attempt(Kind.PERSIST, planted(".git/config"))
def git_config_plant(ground: Ground) -> None:
    append(ground, ".git/config")


@attempt(Kind.PERSIST, planted(HOOK))
def git_dir_rename_plant(ground: Ground) -> None:
    os.rename(f"{ground.root}/.git", f"{ground.root}/.git.old")
    plant(ground, HOOK)


@attempt(Kind.PERSIST, planted(HOOK))
def git_dir_exchange_plant(ground: Ground) -> None:
    os.makedirs(f"{ground.root}/other/hooks")
    write(f"{ground.root}/other/hooks/pre-commit", MARK)
    rename_exchange(f"{ground.root}/.git", f"{ground.root}/other")


@attempt(Kind.PERSIST, planted(HOOK))
def git_hooks_exchange_plant(ground: Ground) -> None:
    os.mkdir(f"{ground.root}/.git/other")
    write(f"{ground.root}/.git/other/pre-commit", MARK)
    rename_exchange(f"{ground.root}/.git/hooks", f"{ground.root}/.git/other")


@attempt(Kind.PERSIST, planted("sub/.git/hooks/post-checkout"))
def git_nested_repo_plant(ground: Ground) -> None:
    plant(ground, "sub/.git/hooks/post-checkout")


@attempt(Kind.PERSIST, planted("bare/config"))
def git_bare_repo_plant(ground: Ground) -> None:
    """Git obeys a bare repository wherever it is started in one."""
    for name in ("objects", "refs"):
        os.makedirs(f"{ground.root}/bare/{name}")
    write(f"{ground.root}/bare/HEAD", "ref: refs/heads/main\n")
    plant(ground, "bare/config")


@attempt(Kind.PERSIST, planted(".git/commondir"))
def git_commondir_plant(ground: Ground) -> None:
    """Moves settings and hooks to wherever it says."""
    plant(ground, ".git/commondir")


@attempt(Kind.PERSIST, planted(".git/info/attributes"))
def git_attributes_plant(ground: Ground) -> None:
    plant(ground, ".git/info/attributes")


@attempt(Kind.PERSIST, planted(".git/modules/lib/config"))
def git_module_config_plant(ground: Ground) -> None:
    append(ground, ".git/modules/lib/config")


@attempt(Kind.PERSIST, planted(".git/modules/lib/hooks/post-checkout"))
def git_module_hook_plant(ground: Ground) -> None:
    plant(ground, ".git/modules/lib/hooks/post-checkout")


@attempt(Kind.PERSIST, planted(".git/modules/lib/config"))
def git_module_rename_plant(ground: Ground) -> None:
    os.rename(f"{ground.root}/.git/modules", f"{ground.root}/.git/old")
    plant(ground, ".git/modules/lib/config")


@attempt(Kind.PERSIST, planted("linked/.git"))
def git_pointer_repointed(ground: Ground) -> None:
    write(f"{ground.root}/linked/.git", f"gitdir: {ground.root}/{MARK}\n")


@attempt(Kind.PERSIST, planted("linked/.git"))
def git_pointer_replaced(ground: Ground) -> None:
    write(f"{ground.root}/linked/new", f"gitdir: {ground.root}/{MARK}\n")
    os.rename(f"{ground.root}/linked/new", f"{ground.root}/linked/.git")


@attempt(Kind.PERSIST, planted("linked/.git"))
def git_pointer_folder_renamed(ground: Ground) -> None:
    os.rename(f"{ground.root}/linked", f"{ground.root}/moved")
    plant(ground, "linked/.git")


@attempt(Kind.PERSIST, planted("a/b/c/d/.git/hooks/post-checkout"))
def git_deep_repo_plant(ground: Ground) -> None:
    """In a repository that was there, deeper than anyone looks."""
    plant(ground, "a/b/c/d/.git/hooks/post-checkout")


@attempt(Kind.PERSIST, planted(".git/config"))
def git_config_by_old_hardlink(ground: Ground) -> None:
    """A second name of the file, from before the sandbox: no command can make one in it."""
    append(ground, "config-link")


@attempt(Kind.PERSIST, planted(".git/config"))
def git_config_by_new_hardlink(ground: Ground) -> None:
    os.link(f"{ground.root}/.git/config", f"{ground.root}/new-link")
    append(ground, "new-link")


@attempt(Kind.PERSIST, planted(".idea/workspace.xml"))
def protected_link_replaced(ground: Ground) -> None:
    """A protected name that is a symbolic link into the root."""
    os.unlink(f"{ground.root}/.idea")
    plant(ground, ".idea/workspace.xml")


@attempt(Kind.PERSIST, planted("editor/workspace.xml"))
def protected_link_target_plant(ground: Ground) -> None:
    plant(ground, "editor/workspace.xml")


@attempt(Kind.PERSIST, planted(".bashrc"))
def bashrc_in_root_replaced(ground: Ground) -> None:
    plant(ground, "new-bashrc")
    os.rename(f"{ground.root}/new-bashrc", f"{ground.root}/.bashrc")


@attempt(Kind.PERSIST, planted(".vscode/tasks.json"))
def vscode_tasks_plant(ground: Ground) -> None:
    plant(ground, ".vscode/tasks.json")


@attempt(Kind.PERSIST, planted(".vscode/tasks.json"))
def vscode_dir_rename_plant(ground: Ground) -> None:
    os.rename(f"{ground.root}/.vscode", f"{ground.root}/old")
    plant(ground, ".vscode/tasks.json")


@attempt(Kind.PERSIST, planted(".envrc", ".mcp.json"))
def envrc_mcp_plant(ground: Ground) -> None:
    plant(ground, ".envrc")
    plant(ground, ".mcp.json")


@attempt(Kind.PERSIST, planted(".exrc", ".gdbinit"))
def start_files_of_tools_plant(ground: Ground) -> None:
    plant(ground, ".exrc")
    plant(ground, ".gdbinit")


@attempt(Kind.PERSIST, planted("AGENTS.md", "CLAUDE.md"))
def agents_orders_plant(ground: Ground) -> None:
    plant(ground, "AGENTS.md")
    plant(ground, "CLAUDE.md")


@attempt(Kind.PERSIST, planted(".github/workflows/ci.yml"))
def workflow_plant(ground: Ground) -> None:
    plant(ground, ".github/workflows/ci.yml")


@attempt(Kind.PERSIST, planted(".cargo/config.toml", ".npmrc", "mise.toml"))
def settings_of_tools_plant(ground: Ground) -> None:
    for name in (".cargo/config.toml", ".npmrc", "mise.toml"):
        plant(ground, name)


@attempt(Kind.PERSIST, planted(".git/rebase-merge/git-rebase-todo"))
def git_rebase_todo_plant(ground: Ground) -> None:
    """An `exec` line in it runs with the next `git rebase --continue`."""
    plant(ground, ".git/rebase-merge/git-rebase-todo")


@attempt(Kind.PERSIST, code_ran, Setting.PLANTED)
def code_planted_for_the_start(ground: Ground) -> None:
    """Nothing is left to do: our programs have been started in this folder, with this PATH."""
