"""Names that programs of the host obey where they lie, wherever that is: git, editors, agents and shells read
what is in them outside of the sandbox, and run it.

Names only. Next: protected.py (finds them in a root), planted.py (compares), start_places.py (in a home).
"""

GIT_NAMES = ("hooks", "config", "config.worktree", "commondir", "info/attributes")
"""In a git folder: what makes git run programs, or look for the rest of this list elsewhere."""
WORKTREE_NAMES = ("commondir", "gitdir", "config.worktree")
"""In .git/worktrees/NAME, obeyed in a linked worktree wherever that is."""
WORKSPACE_NAMES = (
    ".envrc", ".mcp.json", ".vscode", ".idea", ".devcontainer", ".devcontainer.json",
    ".claude", ".codex", ".agents", ".cursor", ".gemini",
    ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile",
    ".zshrc", ".zprofile", ".zshenv", ".zlogin", ".zlogout", ".gitconfig", ".ripgreprc",
)  # fmt: skip
"""Anywhere: what editors, agents and shells obey when they open a folder, or a home that links to it. What a
project runs by design (Makefile, package.json, conftest.py) cannot be told from work and is not here."""
PROTECTED_NAMES = (*(f".git/{name}" for name in GIT_NAMES), *WORKSPACE_NAMES)
"""Relative, at any depth. Not all of it: a `.git` that is a file, and repositories inside .git/modules."""
REPORTED_NAMES = (".gitmodules", ".husky")
"""Obeyed too, but changed by ordinary work (switching a branch, `npm install`): reported, not protected."""
