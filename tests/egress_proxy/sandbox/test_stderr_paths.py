"""Error lines of today's tools, made under real bwrap: a path outside is named, one inside never."""

import os
import shlex
import sys
from pathlib import Path

import pytest

from egress_proxy.sandbox.protected import protected_in
from egress_proxy.sandbox.stderr_paths import PATHS_LIMIT, Bounds, Dialect, denied_paths
from tests.support.bwrap_shell import run_in_bwrap, unavailable

ROFS = Dialect(("read-only file system",))
ACCESS = Dialect(("permission denied",), ambiguous=True)
SEATBELT = Dialect(("operation not permitted",), ambiguous=True, by_name=True)
PYTHON = shlex.quote(sys.executable)


def test_the_quotes_of_a_wider_locale_are_quotes() -> None:
    """GNU tools write them where the locale has them, whatever its language."""
    line = "mkdir: cannot create directory \u2018/out/a b\u2019: Read-only file system"
    assert denied_paths(line, ROFS, Bounds(("/root",), "/root")) == ("/out/a b",)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the root, with a file, a folder and a repository in it."""
    outside = tmp_path / "outside"
    (outside / "folder").mkdir(parents=True)
    (outside / "file").write_text("x\n")
    (tmp_path / "root").mkdir()
    return outside


# {out} is outside the root, {root} is the root, where they start; what they say goes to stderr.
WRITES = [
    ("bash -c 'echo x > {out}/new'", "new"),
    ("bash -c 'echo x >> {out}/file'", "file"),
    ("dash -c 'echo x > {out}/new'", "new"),
    ("bash -c 'echo x > ../outside/new'", "new"),
    ("touch {out}/new", "new"),
    ("touch '{out}/with blank'", "with blank"),
    ('touch "{out}/it\'s"', "it's"),
    ("cp /etc/passwd {out}/new", "new"),
    ("cp -r /etc/skel {out}/new", "new"),
    ("mv {out}/file .", "file"),
    ("touch mine; mv mine {out}/", "mine"),
    ("mv {out}/file {out}/new", "file"),
    ("rm {out}/file", "file"),
    ("rm -rf {out}/folder", "folder"),
    ("rmdir {out}/folder", "folder"),
    ("mkdir {out}/new", "new"),
    ("mkdir -p {out}/new/er", "new"),
    ("ln -s x {out}/new", "new"),
    ("tee {out}/new < /dev/null", "new"),
    ("dd if=/dev/null of={out}/new", "new"),
    ("truncate -s 0 {out}/file", "file"),
    ("tar -cf {out}/new.tar .", "new.tar"),
    ("install /etc/passwd {out}/new", "new"),
    ("chmod 700 {out}/file", "file"),
    ("git init -q {out}/new", "new"),
    ("git init -q g && git clone -q g {out}/new", "new"),
    (PYTHON + ' -c \'open("{out}/new", "w")\'', "new"),
    (PYTHON + " -c 'import os; os.mkdir(\"{out}/new\")'", "new"),
    (PYTHON + " -c 'import shutil; shutil.rmtree(\"{out}/folder\")'", "folder"),
    ("sed -i s/a/b/ {out}/file", None),  # a temporary file beside it
]


@pytest.mark.parametrize(("command", "name"), WRITES)
def test_the_path_of_a_refused_write_is_read_from_what_tools_say(
    outside: Path, command: str, name: str | None
) -> None:
    root = outside.parent / "root"
    paths = denied_under_bwrap(command.format(out=outside, root=root), root)
    assert paths
    assert all(path.startswith(f"{outside}/") for path in paths)
    assert name is None or paths == (f"{outside}/{name}",)


def denied_under_bwrap(command: str, root: Path) -> tuple[str, ...]:
    if (reason := unavailable()) is not None:
        pytest.skip(reason)
    found = protected_in(str(root))
    ended = run_in_bwrap(
        ["bash", "-c", command], root, mount_points=found.mount_points, read_only=found.read_only
    )
    assert ended.returncode != 0
    return denied_paths(
        ended.stderr, ROFS, Bounds((str(root),), str(root), (*found.mount_points, *found.read_only))
    )


def test_a_write_through_a_link_in_the_root_is_named_where_it_would_have_landed(outside: Path) -> None:
    root = outside.parent / "root"
    (root / "link").symlink_to("../outside")
    (root / "again").symlink_to("link/folder")
    assert denied_under_bwrap("touch link/new", root) == (f"{outside}/new",)
    assert denied_under_bwrap("touch again/new", root) == (f"{outside}/folder/new",)


@pytest.mark.parametrize(
    ("command", "path"),
    [
        ("echo x > .git/hooks/pre-commit", ".git/hooks/pre-commit"),
        ("git config core.fsmonitor ./x", ".git/config"),
        ("mv .git old", ".git"),
        ("rm -r .git/hooks", ".git/hooks/pre-push"),
        ("mv sub moved", "sub"),
        ("rm sub/.envrc", "sub/.envrc"),
    ],
)
def test_protected_names_and_their_folders_are_denied_inside_the_root(
    outside: Path, command: str, path: str
) -> None:
    root = outside.parent / "root"
    (root / ".git" / "hooks").mkdir(parents=True)
    (root / ".git" / "config").touch()
    (root / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    for name in ("objects", "refs"):
        (root / ".git" / name).mkdir()
    (root / ".git" / "hooks" / "pre-push").touch()
    (root / "sub").mkdir()
    (root / "sub" / ".envrc").touch()
    assert denied_under_bwrap(command, root) == (f"{root}/{path}",)


INSIDE = [
    "touch: cannot touch '/w/x': Read-only file system",
    "touch: cannot touch 'x': Read-only file system",
    "bash: line 1: x: Read-only file system",
    "dash: 1: cannot create x: Read-only file system",
    "/usr/bin/ld: cannot open output file x: Read-only file system",
    "touch: cannot touch '../w/./x/../y': Read-only file system",
    "Read-only file system at -e line 1.",
    "Read-only file system",
    "test_write_is_refused: expected 'Read-only file system'",
    "mv: cannot move '/opt/a' to '/opt/b': Device or resource busy",
    "touch: cannot touch '/opt/x': Permission denied",
    "touch: cannot touch '/opt/x': No space left on device",
    "",
]


@pytest.mark.parametrize("line", INSIDE)
def test_no_line_without_text_and_path_outside_is_a_denial(line: str) -> None:
    assert denied_paths(line, ROFS, Bounds(("/w",), "/w")) == ()


OUTSIDE = [
    ("/w/../opt/x: Read-only file system", "/opt/x"),
    ("touch: cannot touch '../opt/x': READ-ONLY FILE SYSTEM", "/opt/x"),
    ("Error: EROFS: read-only file system, open '/opt/x'", "/opt/x"),
    ("panic: open /opt/x: read-only file system", "/opt/x"),
    ("open /opt/x: read-only file system", "/opt/x"),
    ("java.io.FileNotFoundException: /opt/x (Read-only file system)", "/opt/x"),
    ('Error: Os { code: 30, message: "Read-only file system" } at "/opt/x"', "/opt/x"),
    ("tar: /opt/x.tar: Cannot open: Read-only file system", "/opt/x.tar"),
    ("/usr/bin/ld: cannot open output file /opt/x: Read-only file system", "/opt/x"),
    ("touch: cannot touch `/opt/x': Read-only file system", "/opt/x"),
    ("/ww/x: Read-only file system", "/ww/x"),
    ("sh: 1: can't create /opt/don't: Read-only file system", "/opt/don't"),
    ("sh: 1: can't create /opt/x': Read-only file system", "/opt/x'"),
]


@pytest.mark.parametrize(("line", "path"), OUTSIDE)
def test_other_programs_lines_are_read_too(line: str, path: str) -> None:
    assert denied_paths(line, ROFS, Bounds(("/w",), "/w")) == (path,)


def test_with_no_root_every_path_is_outside() -> None:
    assert denied_paths("bash: line 1: x: Read-only file system", ROFS, Bounds((), "/w")) == ("/w/x",)


def test_a_file_that_the_caller_may_not_write_either_is_no_denial(
    outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def may_write(path: str, mode: int) -> bool:  # root, who runs tests in containers, may write everywhere
        return path == str(outside) and mode == os.W_OK

    monkeypatch.setattr(os, "access", may_write)
    bounds = Bounds(("/w",), "/w")
    line = "touch: cannot touch '{}': {}"
    for dialect, text in ((ACCESS, "Permission denied"), (SEATBELT, "Operation not permitted")):
        assert denied_paths(line.format(f"{outside}/new", text), dialect, bounds) == (f"{outside}/new",)
        assert denied_paths(line.format("/etc/shadow", text), dialect, bounds) == ()


def test_what_can_be_no_path_is_none() -> None:
    for text in ("/opt/a\0b", "/opt/" + "a/" * 3000):
        assert denied_paths(f"{text}: Permission denied", ACCESS, Bounds(("/w",), "/w")) == ()


def test_by_name_denies_protected_names_at_any_depth_of_a_root() -> None:
    bounds = Bounds(("/w",), "/w")
    for path in ("/w/.envrc", "/w/a/.git/hooks/pre-commit", "/w/a/b/c/d/.vscode/tasks.json"):
        line = f"touch: cannot touch '{path}': Operation not permitted"
        assert denied_paths(line, SEATBELT, bounds) == (path,)
        assert (
            denied_paths(line.replace("Operation not permitted", "Permission denied"), ACCESS, bounds) == ()
        )
    assert denied_paths("touch: cannot touch '/w/envrc': Operation not permitted", SEATBELT, bounds) == ()


def test_links_in_the_root_that_run_in_circles_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a/x")
    bounds = Bounds((str(tmp_path),), str(tmp_path))
    assert denied_paths("touch: cannot touch 'a/y': Read-only file system", ROFS, bounds) == ()


def test_paths_are_told_once_and_not_without_end() -> None:
    line = "touch: cannot touch '/opt/{}': Read-only file system\n"
    bounds = Bounds(("/w",), "/w")
    assert denied_paths(line.format(1) * 3, ROFS, bounds) == ("/opt/1",)
    assert len(denied_paths("".join(map(line.format, range(200))), ROFS, bounds)) == PATHS_LIMIT


PROTECTED = Bounds(("/w",), "/w", ("/w/a/.git/config", "/w/a/dist/.env", "/w/b/.envrc", "/w/c/.envrc"))
BUSY = "Device or resource busy"


@pytest.mark.parametrize(
    ("line", "path"),
    [
        (f"error: could not write config file .git/config: {BUSY}", "/w/a/.git/config"),
        (f"rm: cannot remove 'dist/.env': {BUSY}", "/w/a/dist/.env"),
        (f"rm: cannot remove 'a/dist/.env': {BUSY}", "/w/a/dist/.env"),
        (f"rm: cannot remove '/w/a/dist': {BUSY}", "/w/a/dist"),
        (f"mv: cannot move 'a' to 'd': {BUSY}", "/w/a"),
        (f"error: failed to delete '/w/a': {BUSY}", "/w/a"),
        (f"rm: cannot remove '.envrc': {BUSY}", ".envrc"),  # one of two
        (f"umount: /mnt: {BUSY}", None),
        (f"rm: cannot remove '/w': {BUSY}", "/w"),
        ("sh: 1: cannot create .git/config: Read-only file system", "/w/a/.git/config"),
    ],
)
def test_what_is_busy_because_it_is_protected_is_named_wherever_the_program_had_gone(
    line: str, path: str | None
) -> None:
    assert denied_paths(line, ROFS, PROTECTED) == (() if path is None else (path,))
    assert denied_paths(line, ROFS, PROTECTED, only_protected=True) == (() if path is None else (path,))


def test_of_a_command_that_went_well_other_paths_are_no_news() -> None:
    assert denied_paths("x: /out/x: Read-only file system", ROFS, PROTECTED, only_protected=True) == ()


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("sh: 1: cannot create new: Read-only file system", "/here/new"),
        ("sh: 1: cannot create /out/.ssh/keys: Read-only file system", "/out/.ssh/keys"),
        ("error opening new: Read-only file system", "/here/new"),
        ("tool: failed to open file new: Read-only file system", "/here/new"),
        ("couldn't create new (Read-only file system)", "/here/new"),
        ("bash: line 1: with blank: Read-only file system", "/here/with blank"),
        ("sh: 1: cannot create /w/mine: Read-only file system", None),
    ],
)
def test_the_words_before_a_path_are_no_part_of_it(line: str, path: str | None) -> None:
    found = denied_paths(line, ROFS, Bounds(("/w",), "/here"))
    assert found == (() if path is None else (path,))
