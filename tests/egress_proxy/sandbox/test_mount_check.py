"""What is mounted elsewhere, or is another folder than the one that was judged, ends the start."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from egress_proxy.sandbox import bwrap, mount_check
from egress_proxy.sandbox.choose import Chosen, choose
from egress_proxy.sandbox.confinement import Confinement, portable_argv
from egress_proxy.sandbox.mount_check import Mounts, fault, unescaped
from egress_proxy.sandbox.plan import LaunchPlan
from egress_proxy.sandbox.spec import Egress, NoNetwork, OpenNetwork, SandboxSpec
from tests.support.confined import ENVIRONMENT, SEARCH_PATH, shell

HOST = (
    b"20 1 8:1 / / ro,relatime - ext4 /dev/a rw\n"
    b"21 20 0:5 / /proc rw - proc proc rw\n"
    b"22 20 8:2 /homes /home ro - ext4 /dev/b rw\n"
    b"23 20 0:9 / /tmp rw - tmpfs tmpfs rw\n"
    b"24 22 8:2 /homes/me/w /home/me/w rw - ext4 /dev/b rw\n"
)
PLACES = {b"/home/me/w": b"8:2 /homes/me/w"}
POINTS = [b"/tmp", b"/home/me/w"]


def test_what_was_asked_for_is_right() -> None:
    assert fault(HOST, POINTS, PLACES) == ""


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"24 22 8:2 /homes/me/other /home/me/w rw - ext4 /dev/b rw\n", "/home/me/w is another folder"),
        (b"24 22 8:3 /homes/me/w /home/me/w rw - ext4 /dev/b rw\n", "/home/me/w is another folder"),
        (b"24 22 8:2 /homes/me/w /home/me/x rw - ext4 /dev/b rw\n", "/home/me/w was moved"),
        (b"", "/home/me/w was moved"),
        (HOST.splitlines()[-1] + b"\n25 22 8:2 /x /home/me/x rw - ext4 /dev/b rw\n", "/home/me/x can be wri"),
        (HOST.splitlines()[-1] + b"\n25 23 8:2 /x /tmp rw - ext4 /dev/b rw\n", "/tmp can be written"),
        (HOST.splitlines()[-1] + b"\n25 24 8:2 /x /home/me/w rw - ext4 /dev/b rw\n", "is another folder"),
    ],
)
def test_what_was_not_is_named(line: bytes, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mount_check, "_is_reached", lambda point: True)
    table = b"".join(HOST.splitlines(keepends=True)[:-1]) + line
    assert why in fault(table, POINTS, PLACES)


def test_what_cannot_be_entered_or_lies_under_another_mount_does_not_count() -> None:
    under = b"25 22 8:2 /x /home/me/w rw - ext4 /dev/b rw\n"
    table = HOST.replace(b"24 22", b"24 25") + under
    assert fault(table, POINTS, PLACES) == ""


def test_names_come_out_of_the_table_as_they_are() -> None:
    assert unescaped(rb"/a\040b\134c\012") == b"/a b\\c\n"
    assert unescaped(b"/plain") == b"/plain"
    mounts = Mounts(mount_check.read_table())
    assert mounts.holding(b"/").point == b"/"
    assert mounts.holding(b"/proc/self").point == b"/proc"


# The same with a real bwrap: its arguments changed to what a swap in the right moment makes of them.


@pytest.fixture
def ground(tmp_path: Path) -> Path:
    (tmp_path / "above/root/.git/hooks").mkdir(parents=True)
    (tmp_path / "above/root/.git/config").write_text("[core]\n")
    (tmp_path / "victim/.git/hooks").mkdir(parents=True)
    return tmp_path


@pytest.fixture
def no_landlock(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a kernel that has none: what is left then are the mounts."""
    make = bwrap._launch_plan

    def without(spec: SandboxSpec, arguments: tuple[str, ...]) -> LaunchPlan:
        return replace(make(spec, arguments), landlock=None)

    monkeypatch.setattr(bwrap, "_launch_plan", without)


def run(chosen: Chosen, spec: SandboxSpec, root: Path) -> tuple[str | None, str]:
    with Confinement(chosen, spec, shell(f"echo x > {root}/written; echo ran"), ENVIRONMENT) as confinement:
        done = subprocess.run(
            confinement.argv, env=confinement.env, pass_fds=confinement.pass_fds,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        confinement.started()
        return confinement.finish(done.returncode, done.stderr.encode()).outcome.runner_failure, done.stdout


def swapped(chosen: Chosen, change: Callable[[list[str]], None]) -> Chosen:
    args = list(chosen.recipe.args)
    change(args)
    return replace(chosen, recipe=replace(chosen.recipe, args=tuple(args)))


@pytest.mark.usefixtures("no_landlock")
@pytest.mark.parametrize("egress", [NoNetwork(), OpenNetwork()], ids=["no network", "open"])
@pytest.mark.parametrize("which", ["source", "target", "both", "protected", "mount point", "mask"])
def test_a_swap_in_any_moment_ends_the_start(ground: Path, egress: Egress, which: str) -> None:
    root, victim = ground / "above/root", ground / "victim"
    secret = ground / "above/root/key"
    secret.write_text("key")
    spec = SandboxSpec((str(root),), egress, cwd="/", masks=(str(secret),))
    chosen = choose(spec, SEARCH_PATH, backend="bwrap")
    assert run(chosen, spec, root) == (None, "ran\n")
    (root / "written").unlink()

    def change(args: list[str]) -> None:
        at = args.index("--bind")
        match which:
            case "source":
                args[at + 1] = str(victim)
            case "target":
                args[at + 2] = str(victim)
            case "both":
                args[at + 1 : at + 3] = [str(victim)] * 2
            case "protected":
                hooks = args.index(f"{root}/.git/hooks")
                args[hooks : hooks + 2] = [f"{victim}/.git/hooks"] * 2
            case "mount point":
                git = args.index(f"{root}/.git")
                args[git : git + 2] = [f"{victim}/.git"] * 2
            case "mask":
                args[args.index(str(secret))] = f"{root}/.git/config"

    failure, out = run(swapped(chosen, change), spec, root)
    assert out == ""
    assert failure is not None
    assert failure.startswith("confine mounts: ")
    assert not (victim / "written").exists()


SWAPPER = """
import ctypes, sys
libc = ctypes.CDLL(None)
here, there = (word.encode() for word in sys.argv[1:])
print("go", flush=True)
while True:
    libc.renameat2(-100, here, -100, there, 2)  # RENAME_EXCHANGE
    for _ in range(5000): pass
"""
STARTS, LIMIT_S = 200, 4.0


@contextlib.contextmanager
def swapping(root: Path, victim: Path) -> Iterator[None]:
    """Another sandbox that may write the folder above: now the root is there, now a link to the victim."""
    link = root.parent / "link"
    link.symlink_to(os.path.relpath(victim, root.parent))
    words = (sys.executable, "-c", SWAPPER, str(root), str(link))
    with subprocess.Popen(words, stdout=subprocess.PIPE) as swapper:
        assert swapper.stdout is not None
        swapper.stdout.readline()
        try:
            yield
        finally:
            swapper.kill()


@pytest.mark.parametrize("landlock", [True, False], ids=["Landlock", "no Landlock"])
@pytest.mark.parametrize("form", ["library, no network", "library, open", "printed"])
def test_nothing_is_written_outside_while_somebody_swaps_the_root(
    ground: Path, form: str, landlock: bool, request: pytest.FixtureRequest
) -> None:
    if not landlock:
        request.getfixturevalue("no_landlock")
    root, victim = ground / "above/root", ground / "victim"
    spec = SandboxSpec((str(root),), OpenNetwork() if "open" in form else NoNetwork(), cwd="/")
    chosen = choose(spec, SEARCH_PATH, backend="bwrap", portable=form == "printed")
    argv = portable_argv(chosen, spec, shell(f"echo x > {root}/written"), {})
    ends = time.monotonic() + LIMIT_S
    with swapping(root, victim):
        for _ in range(STARTS):
            if form == "printed":
                subprocess.run(argv, env=ENVIRONMENT, capture_output=True, check=False)
            else:
                run(chosen, spec, root)
            assert not (victim / "written").exists()
            if time.monotonic() > ends:
                break
