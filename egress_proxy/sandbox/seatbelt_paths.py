"""Paths and names in the text of a Seatbelt profile: what may be quoted, and the patterns of protected names.

Text to text, no I/O. A path that could end its string is refused, never escaped. Next: seatbelt.py (the
rules that these stand in), protected.py (the names).
"""

import posixpath
import re
from collections.abc import Sequence

from egress_proxy.sandbox.env_files import EXAMPLE_ENDS
from egress_proxy.sandbox.obeyed_names import GIT_NAMES, PROTECTED_NAMES, WORKTREE_NAMES

# Links of every macOS system volume. Seatbelt compares resolved paths: a rule on /tmp matches nothing.
_SYSTEM_LINKS = ("/tmp", "/var", "/etc")  # noqa: S108  text, no file
_BELOW = "(/[^/]+)*"
_ANYWHERE = "([^/]+/)*"
# What several letters, or one that is no ASCII, are the same as to a file system that ignores case (Unicode
# full case folding: the long s, the Kelvin sign, the ligatures). `.git/hoo\u212as` is hooks on APFS.
_FOLDED = re.compile(r"ffi|ffl|ff|fi|fl|ss|st|[ks]|.")
# A root in a git folder: its hooks are beside the root, not in a `.git` below it.
_INSIDE_GIT = re.compile(r"/\.git(/.*)?$", re.IGNORECASE)
_NOT_ASCII = "[^ -~]"


def checked_path(path: str, what: str) -> str:
    """The path as macOS resolves it. Raises ValueError, which names it: ``what`` is root, mask or the like.

    Absolute, normal (no `..`, no slash at the end), not `/`, printable, without `"` and backslash: what is
    left cannot end a string of the profile, whatever the compiler makes of escapes.
    """
    if not path.startswith("/") or path.startswith("//") or posixpath.normpath(path) != path or path == "/":
        raise ValueError(
            f"invalid {what} {path!r}: give an absolute path below /, with links and .. resolved"
        )
    if not path.isprintable() or '"' in path or "\\" in path:
        raise ValueError(
            f"invalid {what} {path!r}: a Seatbelt profile cannot name it safely; rename it without control"
            " characters, double quotes and backslashes"
        )
    linked = any(is_at_or_below(path, link) for link in _SYSTEM_LINKS)
    return f"/private{path}" if linked else path


def is_at_or_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def literal(path: str) -> str:
    return f'(literal "{path}")'


def subpath(path: str) -> str:
    return f'(subpath "{path}")'


def protected_names(root: str) -> tuple[str, ...]:
    """Filters for what is obeyed outside the sandbox, at any depth, there or not yet.

    Each covers the name, all below it, and the folders that the name itself goes through: with `.git` free
    to be made or renamed, a prepared folder becomes `.git/hooks` in one step (`mv .git old; mv mine .git`).
    A folder further up may be renamed: the names in it are protected under its new name too.
    """
    root = _INSIDE_GIT.sub("", root)
    names = [*PROTECTED_NAMES, *(f".git/worktrees/*/{name}" for name in WORKTREE_NAMES)]
    patterns = [_pattern(name) for name in names]
    modules = f"{_component('.git')}/{_component('modules')}/([^/]+/)+"
    patterns += [modules + _pattern(name) for name in GIT_NAMES]
    return tuple(_at_any_depth(root, pattern) for pattern in patterns)


def submodule_folders(root: str) -> str:
    """A filter for the folders of submodules' repositories. Their names may have slashes (`vendor/lib`), so
    which of them are ancestors of a config is not told by a pattern: none may be renamed away."""
    pattern = _at_any_depth(root, f"{_component('.git')}/{_component('modules')}{_BELOW}")
    return f"(require-all (vnode-type DIRECTORY) {pattern})"


def env_files(root: str, unmasked: Sequence[str] = ()) -> str:
    """A filter for `.env` and its kin (env_files.py) at any depth, but for examples and ``unmasked``."""
    every = _at_any_depth(root, rf"{_component('.env')}({_component('rc')})?([._~-][^/]*)?")
    ends = "|".join(map(_component, EXAMPLE_ENDS))
    examples = _at_any_depth(root, rf"{_component('.env')}[^/]*[._-]({ends})")
    shown = "".join(f" (require-not {subpath(path)})" for path in unmasked)
    return f"(require-all {every} (require-not {examples}){shown})"


def _at_any_depth(root: str, pattern: str) -> str:
    # No `.` in any pattern: whether it matches a line end, which a folder's name may hold, is not documented.
    return f'(regex #"^{_escaped(root)}/{_ANYWHERE}{pattern}$")'


def _pattern(name: str) -> str:
    *folders, last = name.split("/")
    text = _component(last) + _BELOW
    for folder in reversed(folders):
        text = f"{_component(folder)}(/{text})?"
    return text


def _component(name: str) -> str:
    """One name in whatever case; `*` is any one name. More may match than is meant, never less."""
    return "[^/]+" if name == "*" else "".join(map(_spellings, _FOLDED.findall(name)))


def _spellings(piece: str) -> str:
    if not piece.isalpha():
        return _escaped(piece)
    both = f"[{piece}{piece.upper()}]"
    return f"({both}|{_NOT_ASCII})+" if len(piece) > 1 or piece in "ks" else both


def _escaped(text: str) -> str:
    # These alone: in some dialects a backslash gives a plain character a meaning, such as `\<`.
    return re.sub(r"[][.^$*+?(){}|]", r"\\\g<0>", text)
