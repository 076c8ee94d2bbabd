"""Writable roots: what becomes of the ones asked for, which are refused, and that the refusal says it all."""

import os
import pwd
import re
import sys
from pathlib import Path

import pytest

import egress_proxy
from egress_proxy.sandbox import roots
from egress_proxy.sandbox.obeyed_names import WORKSPACE_NAMES
from egress_proxy.sandbox.roots import RootRefused, canonical_roots, outermost
from egress_proxy.sandbox.start_places import START_PLACES
from tests.support.bwrap_shell import run_in_bwrap, unavailable

SYSTEM = ["/", "/etc", "/usr", "/bin", "/sbin", "/lib", "/dev", "/proc", "/sys", "/run", "/var"]
INSIDE_SYSTEM = ["/usr/lib", "/usr/bin", "/dev/shm", "/proc/self", "/etc/.", "/bin/..", "/usr/local"]


def refusal(root: object, **options: object) -> str:
    with pytest.raises(RootRefused) as refused:
        canonical_roots([str(root)], **options)  # type: ignore[arg-type]
    message = str(refused.value)
    assert "\n" not in message
    return message


def test_a_folder_is_given_as_its_real_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to("work")
    work = str(tmp_path / "work")
    assert canonical_roots([f"{tmp_path}/link/deep/.."]) == (work,)
    monkeypatch.chdir(tmp_path)
    assert canonical_roots(["link/", "./work", "work/deep/../."]) == (work,)


def test_names_that_look_like_options_or_hold_blanks_are_only_names(tmp_path: Path) -> None:
    for name in ("--bind", "-x", "a b", "a=b", "ü", '"quoted"', "a;b", "$(a)", os.fsdecode(b"\xff")):
        (tmp_path / name).mkdir()
        assert canonical_roots([f"{tmp_path}/{name}"]) == (f"{tmp_path}/{name}",)


def test_a_root_inside_another_is_left_out(tmp_path: Path) -> None:
    for name in ("a/b", "ab", "c"):
        (tmp_path / name).mkdir(parents=True)
    a, b, ab, c = (f"{tmp_path}/{name}" for name in ("a", "a/b", "ab", "c"))
    assert canonical_roots([b, c, a, ab, a]) == (c, a, ab)
    assert outermost([a, "/"]) == ("/",)


def test_a_link_that_is_swapped_later_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "link"
    link.symlink_to("real")
    before = canonical_roots([str(link)])
    link.unlink()
    link.symlink_to("/etc")
    assert before == (f"{tmp_path}/real",)


@pytest.mark.parametrize("forced", [False, True])
def test_what_is_no_folder_is_refused_even_when_forced(tmp_path: Path, forced: bool) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nowhere")
    for name in ("nope", "file", "loop", "dangling", "file/x"):
        assert name in refusal(tmp_path / name, forced=forced)
    assert "No such file or directory; create it" in refusal(tmp_path / "nope", forced=forced)


@pytest.mark.parametrize("forced", [False, True])
@pytest.mark.parametrize("name", ["a\nb", "a\rb", "a\x1b[0m", "a\x7f", "a\x85", "a\u2028b", "a\0b", ""])
def test_control_characters_are_refused_in_the_name_and_behind_a_link(
    tmp_path: Path, name: str, forced: bool
) -> None:
    refusal(f"{tmp_path}/{name}" if name else "", forced=forced)
    if name and "\0" not in name:
        (tmp_path / name).mkdir()
        (tmp_path / "link").symlink_to(name)
        refusal(tmp_path / "link", forced=forced)


@pytest.mark.parametrize("root", [*SYSTEM, *INSIDE_SYSTEM])
def test_system_folders_are_refused_and_the_refusal_names_root_and_remedy(root: str) -> None:
    message = refusal(root)
    assert root in message
    assert "--dangerously-writable-root" in message


def test_a_link_to_a_system_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc")
    assert "/link' ('/etc') is refused: it is the system folder '/etc'" in refusal(tmp_path / "link")


@pytest.mark.parametrize("root", ["/etc", "/", "/usr/bin"])
def test_force_lifts_what_is_dangerous(root: str) -> None:
    assert canonical_roots([root], forced=True) == (os.path.realpath(root),)


def test_places_where_people_work_are_roots(tmp_path: Path) -> None:
    assert canonical_roots(["/var/tmp"]) == (os.path.realpath("/var/tmp"),)
    assert canonical_roots([str(tmp_path)]) == (str(tmp_path),)


def test_a_workplace_in_a_system_folder_holds_roots_and_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """/usr/src in containers; what is guarded in it still is."""
    (tmp_path / "usr/src/app/state").mkdir(parents=True)
    monkeypatch.setattr(roots, "_SYSTEM_TREES", (f"{tmp_path}/usr",))
    monkeypatch.setattr(roots, "_WORKPLACE", re.compile(rf"({re.escape(str(tmp_path))}/usr/src)/."))
    app = f"{tmp_path}/usr/src/app"
    assert canonical_roots([app]) == (app,)
    assert "usr" in refusal(tmp_path / "usr/src")
    refusal(app, protected_trees=[f"{app}/state"])
    refusal(f"{app}/state", protected_trees=[app])


@pytest.mark.parametrize(
    ("path", "is_workplace"),
    [("/usr/src/app", True), ("/usr/src", False), ("/usr/src/", False), ("/run/user/1/x", True),
     ("/run/user/1", False), ("/run/user/x/y", False), ("/run/media/u/disk", True), ("/usr/srcs/x", False)],
)  # fmt: skip
def test_workplaces_are_few(path: str, is_workplace: bool) -> None:
    assert bool(roots._WORKPLACE.match(path)) == is_workplace


@pytest.mark.parametrize("home", [pwd.getpwuid(os.geteuid()).pw_dir, "/home", "/root", "/home/../home"])
def test_home_folders_are_refused(home: str) -> None:
    if os.path.isdir(home):
        assert home in refusal(home)


def test_the_home_that_the_caller_knows_is_refused_and_folders_in_it_are_not(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".steerable").mkdir(parents=True)
    assert "home folder" in refusal(home, home=str(home))
    assert "holds" in refusal(tmp_path, home=str(home))
    assert canonical_roots([f"{home}/.steerable"], home=str(home)) == (f"{home}/.steerable",)


def test_homes_of_others_are_refused_and_what_holds_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through a link as well, as /home is on some systems; the homes themselves are not looked at."""
    (tmp_path / "data" / "bob" / "project").mkdir(parents=True)
    (tmp_path / "homes").symlink_to("data")
    others = pwd.struct_passwd(("bob", "x", 1001, 1001, "", f"{tmp_path}/homes/bob", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwall", lambda: [others])
    assert "home" in refusal(tmp_path / "data" / "bob")
    assert "home" in refusal(tmp_path / "data")
    assert canonical_roots([f"{tmp_path}/data/bob/project"])


def test_the_proxys_own_folders_are_neither_held_nor_entered(tmp_path: Path) -> None:
    state = tmp_path / "a" / "state"
    (state / "inner").mkdir(parents=True)
    for root in (state, state.parent, tmp_path, state / "inner"):
        assert str(state) in refusal(root, protected_trees=[str(state)])
    (tmp_path / "beside").mkdir()
    assert canonical_roots([f"{tmp_path}/beside"], protected_trees=[str(state)])


def test_a_folder_that_will_hold_our_state_is_refused_before_it_does(tmp_path: Path) -> None:
    assert "holds" in refusal(tmp_path, protected_trees=[f"{tmp_path}/not/yet"])


def test_the_running_program_is_neither_held_nor_entered() -> None:
    package = os.path.dirname(str(egress_proxy.__file__))
    for tree in {package, sys.prefix, sys.base_prefix}:
        for root in (tree, os.path.dirname(tree)):
            refusal(root)
    refusal(f"{package}/sandbox")


def test_an_environment_in_a_project_guards_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".venv" / "lib").mkdir(parents=True)
    monkeypatch.setattr(sys, "prefix", f"{tmp_path}/.venv")
    for root in (tmp_path, tmp_path / ".venv", tmp_path / ".venv" / "lib"):
        assert "Python" in refusal(root)


def test_a_folder_is_told_by_what_it_is_and_not_by_its_name(tmp_path: Path) -> None:
    """As where a folder is mounted twice, or where the case of letters does not count."""
    if (reason := unavailable()) is not None:
        pytest.skip(reason)
    state, twin = tmp_path / "state", tmp_path / "twin"
    state.mkdir()
    twin.mkdir()
    check = (
        f"import sys; sys.path.insert(0, {str(Path(egress_proxy.__file__ or '').parents[1])!r})\n"
        "from egress_proxy.sandbox.roots import canonical_roots\n"
        f"canonical_roots([{str(twin)!r}], protected_trees=[{str(state)!r}])"
    )
    argv = [sys.executable, "-c", check]
    assert run_in_bwrap(argv, tmp_path).returncode == 0
    mounted = run_in_bwrap(argv, tmp_path, options=("--bind", str(state), str(twin)))
    assert f"it is the proxy's own folder '{state}'" in mounted.stderr


def test_a_root_in_a_git_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".git" / "hooks").mkdir(parents=True)
    assert "git" in refusal(tmp_path / ".git")
    assert "git" in refusal(tmp_path / ".git" / "hooks")
    assert canonical_roots([str(tmp_path)])


def test_a_uid_without_a_name_has_no_home_to_guard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000_000)
    assert canonical_roots([str(tmp_path)])


PLACES = [".config/fish", ".local/bin", "bin", ".config/systemd/user", ".config/autostart", ".config/git"]


@pytest.mark.parametrize(
    "name", [*PLACES, *list(START_PLACES)[::7], *WORKSPACE_NAMES[::4], ".ssh", ".aws", ".gnupg"]
)
def test_what_starts_from_a_home_or_is_secret_in_it_is_no_root(tmp_path: Path, name: str) -> None:
    """Itself, what lies in it, and by way of a link."""
    (tmp_path / name / "inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to(name)
    for path in (name, f"{name}/inner", "link"):
        assert name.partition("/")[0] in refusal(tmp_path / path, home=str(tmp_path))
    assert canonical_roots([f"{tmp_path}/{name}"], home=str(tmp_path), forced=True)


@pytest.mark.parametrize("name", [".config", ".local", ".local/share", ".cargo", "go", ".gradle", ".m2"])
def test_what_would_hold_a_place_that_programs_start_from_is_no_root(tmp_path: Path, name: str) -> None:
    """There or not: the command would make it."""
    (tmp_path / name).mkdir(parents=True)
    assert "holds" in refusal(tmp_path / name, home=str(tmp_path))


@pytest.mark.parametrize(
    "name",
    [".steerable", ".cache", ".npm", ".cargo/registry", "go/pkg", ".m2/repository", ".gradle/caches", "work",
     ".claude/worktrees/one", ".codex/worktrees/a/project", ".gemini/antigravity/scratch/x"],
)  # fmt: skip
def test_caches_and_places_to_work_in_are_roots(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir(parents=True)
    assert canonical_roots([f"{tmp_path}/{name}"], home=str(tmp_path)) == (f"{tmp_path}/{name}",)


def test_what_a_dotfile_leads_to_is_what_it_is(tmp_path: Path) -> None:
    """As people link their settings out of a repository."""
    (tmp_path / "dotfiles/fish").mkdir(parents=True)
    (tmp_path / "dotfiles/claude").mkdir()
    (tmp_path / ".config").mkdir()
    (tmp_path / ".config/fish").symlink_to("../dotfiles/fish")
    (tmp_path / ".claude").symlink_to("dotfiles/claude")
    for path in ("dotfiles", "dotfiles/fish", "dotfiles/claude"):
        assert "dotfiles" in refusal(tmp_path / path, home=str(tmp_path))


@pytest.mark.parametrize("name", WORKSPACE_NAMES)
def test_a_name_that_is_obeyed_anywhere_is_no_root_in_a_project_either(tmp_path: Path, name: str) -> None:
    for spelt in (name, name.upper()):
        (tmp_path / "project" / spelt / "inner").mkdir(parents=True, exist_ok=True)
        assert name in refusal(tmp_path / "project" / spelt).lower()
        assert name in refusal(tmp_path / "project" / spelt / "inner").lower()
    assert canonical_roots([f"{tmp_path}/project"])


def test_a_link_that_a_command_could_have_made_is_refused_where_it_leads_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("work/inside", "elsewhere", "other"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "work/build").symlink_to("../elsewhere")
    (tmp_path / "work/near").symlink_to("inside")
    assert canonical_roots([f"{tmp_path}/work/build"]) == (f"{tmp_path}/elsewhere",)
    assert "leads out of" in refusal_of([f"{tmp_path}/work", f"{tmp_path}/work/build"])
    monkeypatch.chdir(tmp_path / "work")
    assert f"name '{tmp_path}/elsewhere'" in refusal("build")
    assert canonical_roots(["near"]) == (f"{tmp_path}/work/inside",)
    assert canonical_roots(["build"], forced=True) == (f"{tmp_path}/elsewhere",)
    assert canonical_roots(["../elsewhere"]) == (f"{tmp_path}/elsewhere",)


def refusal_of(paths: list[str]) -> str:
    with pytest.raises(RootRefused) as refused:
        canonical_roots(paths)
    return str(refused.value)
