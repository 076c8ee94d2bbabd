"""Paths in a profile: which can stand there, and that the patterns of protected names miss no spelling."""

import re

import pytest

from egress_proxy.sandbox.obeyed_names import PROTECTED_NAMES
from egress_proxy.sandbox.seatbelt_paths import (
    checked_path,
    env_files,
    is_at_or_below,
    protected_names,
    submodule_folders,
)
from tests.support.sbpl import Profile

ROOT = "/Users/u/p"


def covers(filters: tuple[str, ...] | list[str], path: str) -> bool:
    patterns = [re.sub(r'^.*\(regex #"(.*)\$"\)+$', r"\1\\Z", text) for text in filters]
    return any(re.search(pattern, path) for pattern in patterns)


@pytest.mark.parametrize(
    "path", ["/a", "/Users/u/My Project (1)", "/Users/O'Brien/x;y#z", "/Users/jörg/[a].b"]
)
def test_a_path_that_strings_can_hold_is_taken_as_it_is(path: str) -> None:
    assert checked_path(path, "root") == path


@pytest.mark.parametrize(
    "path", ["", "a", "/", "//", "//a", "/a/", "/a//b", "/a/../b", "/a/.", "/a\nb", "/a\rb", "/a\0b", '/a"b',
             "/a\\b", "/a\x7f", "/a\x85b", "/a\u2028b", "/a\udc80", "~", "/a\tb"]
)  # fmt: skip
def test_any_other_is_refused_by_name(path: str) -> None:
    with pytest.raises(ValueError, match=r"^invalid writable root ") as refusal:
        checked_path(path, "writable root")
    assert repr(path) in str(refusal.value)
    assert str(refusal.value).isprintable()


@pytest.mark.parametrize(
    ("path", "real"),
    [
        ("/tmp", "/private/tmp"),
        ("/tmp/x", "/private/tmp/x"),
        ("/var/folders/a/b/T", "/private/var/folders/a/b/T"),
        ("/private/tmp/x", "/private/tmp/x"),
        ("/tmpx", "/tmpx"),
    ],
)
def test_the_links_of_the_system_volume_are_resolved(path: str, real: str) -> None:
    assert checked_path(path, "root") == real


def test_below_ends_at_a_slash() -> None:
    assert is_at_or_below("/a", "/a")
    assert is_at_or_below("/a/b", "/a")
    assert not is_at_or_below("/ab", "/a")


@pytest.mark.parametrize("name", PROTECTED_NAMES)
@pytest.mark.parametrize("below", ["", "/x", "/x/y\nz"])
@pytest.mark.parametrize("depth", ["", "/a", "/a\nb/c c/jörg"])
def test_a_protected_name_is_covered_at_any_depth(depth: str, name: str, below: str) -> None:
    assert covers(protected_names(ROOT), f"{ROOT}{depth}/{name}{below}")


@pytest.mark.parametrize(
    "name",
    [
        ".GIT/Hooks/pre-commit",
        ".git/hoo\u212as/pre-commit",
        ".git/hook\u017f",
        ".git/con\ufb01g",
        ".v\u017fcode/tasks.json",
        ".pro\ufb01le",
        ".gitcon\ufb01G",
        ".git",
        ".git/info",
        ".git/worktrees",
        ".git/worktrees/w",
        ".git/worktrees/w/gitdir",
        ".git/modules/lib/config",
        ".git/modules/vendor/lib/hooks/post-checkout",
        ".git/modules/lib/modules/inner/config",
    ],
)
def test_other_spellings_and_the_folders_on_the_way_are_covered(name: str) -> None:
    assert covers(protected_names(ROOT), f"{ROOT}/{name}")


@pytest.mark.parametrize(
    "path",
    [
        ROOT,
        f"{ROOT}/x",
        f"{ROOT}/.github/workflows/ci.yml",
        f"{ROOT}/.gitignore",
        f"{ROOT}/.git/index.lock",
        f"{ROOT}/.git/refs/heads/config",
        f"{ROOT}/.git/hooks.txt",
        f"{ROOT}/.git/modules/lib/index",
        f"{ROOT}/config",
        f"{ROOT}/x.git/hooks",
        f"{ROOT}/notes.profile",
        "/Users/u/.git/hooks",
        "/Users/u/pp/.git/hooks",
    ],
)
def test_ordinary_work_is_not_covered(path: str) -> None:
    assert not covers(protected_names(ROOT), path)


def test_a_root_that_lies_behind_a_protected_name_is_usable() -> None:
    root = "/Users/u/.claude/worktrees/w"
    assert not covers(protected_names(root), f"{root}/x")
    assert covers(protected_names(root), f"{root}/.claude/settings.json")


@pytest.mark.parametrize("inner", ["", "/modules/lib", "/hooks"])
def test_a_root_in_a_git_folder_leaves_no_way_round(inner: str) -> None:
    root = f"/Users/u/p/.git{inner}"
    assert covers(protected_names(root), "/Users/u/p/.git/hooks/pre-commit")
    assert covers(protected_names(root), "/Users/u/p/.git/config")


def test_what_a_root_is_called_is_no_pattern() -> None:
    filters = protected_names("/a/.+(x|y)[z]{2}^$*?")
    assert covers(filters, "/a/.+(x|y)[z]{2}^$*?/.git/hooks")
    assert not covers(filters, "/a/bbx/.git/hooks")


def test_folders_of_submodules_are_found_whatever_their_names() -> None:
    folders = [submodule_folders(ROOT)]
    assert "(vnode-type DIRECTORY)" in folders[0]
    for name in (".git/modules", ".git/modules/a", ".git/modules/vendor/lib", "deep/.git/MODULES/a"):
        assert covers(folders, f"{ROOT}/{name}")
    assert not covers(folders, f"{ROOT}/.git/objects/aa")


def test_env_files_are_those_that_hold_secrets() -> None:
    def hidden(name: str, *unmasked: str) -> bool:
        rule = f"(deny file-read* {env_files(ROOT, unmasked)})"
        text = f'(version 1)\n(deny default)\n(allow file-read* (subpath "/"))\n{rule}\n'
        return not Profile(text).allows("file-read-data", f"{ROOT}/{name}")

    for name in (".env", ".env.local", ".env.production", ".env-prod", ".envrc", ".env.a.local", "a/b/.ENV"):
        assert hidden(name)
    for name in (".env.example", ".env.local.Sample", ".env-dist", ".environment", "x.env", ".env/x"):
        assert not hidden(name)
    assert not hidden("a/.env", f"{ROOT}/a")
