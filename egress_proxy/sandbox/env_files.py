"""Files of variables (`.env` and its kin) and where they lie: which names are meant, and the search for them.

Looks at the file system and changes nothing. Next: protected.py (searches roots, with the same names),
masks.py (what becomes of them), tracked.py (the ones that a repository holds anyway).
"""

import os
import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

# `.envrc` is direnv's. What ends as an example is there to be read, and holds no secret.
_ENV_FILE = re.compile(r"\.env(?:rc)?(?:[._~-].*)?")
EXAMPLE_ENDS = (
    "example", "examples", "sample", "samples", "template", "templates", "tmpl", "tpl", "dist", "default",
    "defaults", "schema", "skel", "md",
)  # fmt: skip
_EXAMPLE = re.compile(rf".*[._-](?:{'|'.join(EXAMPLE_ENDS)})")

ENTRIES_LIMIT = 50_000  # some 40 ms; of all roots together, and of what is searched besides
ENV_FILES_LIMIT = 256  # each is a mount, and each makes the next one dearer
NOT_ENTERED = frozenset({
    "node_modules", "bower_components", "site-packages", ".venv", "venv", ".tox", ".nox", "__pycache__",
    ".cache", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".gradle", ".terraform",
})  # fmt: skip
"""Filled by tools, with thousands of files that no person keeps a secret in."""
# The same below a home, where toolchains and caches lie.
NOT_ENTERED_IN_A_HOME = NOT_ENTERED | frozenset({
    ".npm", ".pnpm-store", ".yarn", ".bun", ".deno", ".nvm", ".fnm", ".volta", ".pyenv", ".rbenv", ".rvm",
    ".asdf", ".sdkman", ".rustup", ".cargo", ".m2", ".ivy2", ".sbt", ".nuget", ".dotnet", ".conda",
    "miniconda3", "anaconda3", "miniforge3", ".pub-cache", ".gem", ".stack", ".cabal", ".ghcup", ".opam",
    ".julia", ".android", ".vscode-server", ".cursor-server", "extensions", ".Trash", "Trash", ".linuxbrew",
    ".oh-my-zsh", ".thumbnails", ".steam", "Steam", "dist-packages", "Library", ".nix-profile",
    ".nix-defexpr", "snap", ".var", ".wine", ".debug", ".ccache",
})  # fmt: skip


@dataclass(slots=True)
class EnvSearch:
    """``paths``: as they are spelt. ``configs``: `config` files of the git folders that were passed.
    ``complete``: False when a limit ended the search."""

    paths: list[str] = field(default_factory=list)
    configs: list[str] = field(default_factory=list)
    complete: bool = True
    entries: int = 0


def is_env_file(name: str) -> bool:
    lower = name.lower()
    return bool(_ENV_FILE.fullmatch(lower)) and not _EXAMPLE.fullmatch(lower)


def search(
    folders: Iterable[str],
    left_out: Collection[str] = (),
    *,
    not_entered: Collection[str] = NOT_ENTERED,
    entries: int = 0,
) -> EnvSearch:
    """Breadth first from each of the canonical ``folders``; follows no link. ``left_out``: folders that are
    searched otherwise, hidden as a whole, or too slow to look into. ``entries``: seen already, by others."""
    found = EnvSearch(entries=entries)
    seen = set(left_out)
    waiting = deque(folder for folder in dict.fromkeys(folders) if folder not in seen)
    while waiting:
        try:
            with os.scandir(waiting.popleft()) as listing:
                waiting.extend(path for path in _read(listing, not_entered, found) if path not in seen)
        except OSError:
            continue  # the command can read no more of it than we can
        if found.entries > ENTRIES_LIMIT or len(found.paths) > ENV_FILES_LIMIT:
            found.complete = False
            break
    return found


def _read(
    listing: "os._ScandirIterator[str]", not_entered: Collection[str], found: EnvSearch
) -> Iterator[str]:
    """The folders in a folder. One loop, since it runs for every entry of a home."""
    count = 0
    for entry in listing:
        count += 1
        name = entry.name
        if name.startswith(".env") and is_env_file(name):
            found.paths.append(entry.path)
        if entry.is_dir(follow_symlinks=False):
            if name == ".git":
                found.configs.append(f"{entry.path}/config")
            elif name not in not_entered:
                yield entry.path
        if count > ENTRIES_LIMIT:
            break
    found.entries += count
