"""Names that programs of the host obey where they lie, wherever that is: git, editors, agents and shells read
what is in them outside of the sandbox, and run it.

Names only. Next: protected.py (finds them in a root), planted.py (compares), start_places.py (in a home).
"""

from collections.abc import Mapping

GIT_NAMES = ("hooks", "config", "config.worktree", "commondir", "info/attributes")
"""In a git folder: what makes git run programs, or look for the rest of this list elsewhere."""
GIT_REPORTED_NAMES = ("rebase-merge/git-rebase-todo", "sequencer/todo")
"""There too: work writes them, and an `exec` line in one runs with the next `git rebase --continue`."""
WORKTREE_NAMES = ("commondir", "gitdir", "config.worktree")
"""In .git/worktrees/NAME, obeyed in a linked worktree wherever that is."""
WORKSPACE: Mapping[str, str] = {
    **dict.fromkeys((
        ".vscode", ".idea", ".zed", ".devcontainer", ".devcontainer.json", ".exrc", ".nvim.lua", ".nvimrc",
        ".vimrc", ".gvimrc", ".lvimrc", ".emacs",
    ), "an editor runs what it names when it opens the folder"),
    **dict.fromkeys((
        ".mcp.json", ".claude", ".codex", ".agents", ".cursor", ".gemini", ".windsurf", ".roo", ".kiro",
        ".opencode", ".continue", ".aider.conf.yml",
    ), "an agent takes its tools, hooks and orders from it"),
    **dict.fromkeys((
        ".envrc", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile",
        ".zshrc", ".zprofile", ".zshenv", ".zlogin", ".zlogout", ".kshrc", ".inputrc", ".xinitrc",
        ".xsession", ".xsessionrc", ".xprofile", ".pam_environment",
    ), "a shell or a session runs it, in a home that links to it"),
    **dict.fromkeys((
        ".gitconfig", ".ripgreprc", ".gdbinit", ".lldbinit", ".pdbrc", ".pdbrc.py", ".tmux.conf",
        ".screenrc", ".curlrc", ".wgetrc", ".psqlrc", ".sqliterc", ".irbrc", ".pryrc", ".rprofile",
    ), "a tool runs what is in it when it starts there"),
}  # fmt: skip
WORKSPACE_NAMES = tuple(WORKSPACE)
"""Anywhere, in lower case: what is read when a folder is opened. What a project runs by design (Makefile,
package.json, conftest.py) cannot be told from work and is not here."""
NESTED_NAMES = (
    ".config/fish", ".config/nvim", ".config/git", ".config/autostart", ".config/systemd", ".config/direnv",
    ".hg/hgrc",
)  # fmt: skip
"""The same, of which the first folder may hold anything."""
PROTECTED_NAMES = (*(f".git/{name}" for name in GIT_NAMES), *WORKSPACE_NAMES, *NESTED_NAMES)
"""Relative, at any depth. Not all of it: a `.git` that is a file, and repositories inside .git/modules."""
REPORTED: Mapping[str, str] = {
    **dict.fromkeys((
        ".gitmodules", ".husky", ".githooks", ".pre-commit-config.yaml", "lefthook.yml", "lefthook.yaml",
        ".lefthook.yml", "lefthook-local.yml", ".lefthook",
    ), "git runs hooks from it"),
    **dict.fromkeys((
        ".cargo/config.toml", ".cargo/config", ".yarnrc.yml", ".yarnrc", ".yarn/plugins", ".yarn/releases",
        ".npmrc", ".pnpmfile.cjs", "mise.toml", ".mise.toml", ".mise", ".config/mise.toml",
        ".tool-versions", ".mvn", ".bazelrc", ".bundle/config", "gradle/wrapper/gradle-wrapper.properties",
        "sitecustomize.py", "usercustomize.py", "pip.conf", ".local/bin",
    ), "a tool takes programs or their places from it"),
    **dict.fromkeys((
        ".github/workflows", ".github/actions", ".gitlab-ci.yml", ".circleci", ".travis.yml", ".drone.yml",
        ".buildkite", ".woodpecker.yml", ".woodpecker", ".forgejo/workflows", ".gitea/workflows",
        "azure-pipelines.yml", "bitbucket-pipelines.yml", "jenkinsfile",
    ), "a server runs it, with its secrets, after a push"),
    **dict.fromkeys((
        "claude.md", "claude.local.md", "agents.md", "agents.override.md", "gemini.md", "qwen.md",
        "conventions.md", ".github/copilot-instructions.md", ".github/instructions", ".github/prompts",
        ".cursorrules", ".windsurfrules", ".clinerules", ".roorules", ".goosehints", ".rules",
        "opencode.json", "opencode.jsonc", "mcp.json",
    ), "an agent takes orders from it"),
}  # fmt: skip
REPORTED_NAMES = tuple(REPORTED)
"""In lower case. Obeyed too, but changed by ordinary work (switching a branch, `npm install`): reported."""
