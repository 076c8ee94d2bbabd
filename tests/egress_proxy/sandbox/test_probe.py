"""The probe calls nothing sound that lets its canary out, or that cannot run."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from egress_proxy.sandbox.bwrap import bwrap_gaps, bwrap_recipe
from egress_proxy.sandbox.bwrap_binary import find_bwrap
from egress_proxy.sandbox.plan import Recipe
from egress_proxy.sandbox.probe import TIMEOUT_S, fault_of
from egress_proxy.sandbox.spec import (
    Dimension,
    Egress,
    Enforcement,
    Gap,
    NoNetwork,
    OpenNetwork,
    SandboxSpec,
    ThroughProxy,
)

NOTHING = SandboxSpec(roots=(), egress=NoNetwork())
PROXY = SandboxSpec(roots=(), egress=ThroughProxy("", 8899))


def recipe(spec: SandboxSpec) -> Recipe:
    return bwrap_recipe(spec, find_bwrap(os.defpath, ()), portable=False)


def by_bwrap_alone(spec: SandboxSpec) -> Recipe:
    """The same without the launcher inside, which would catch most of what bwrap leaves open."""
    whole = recipe(spec)
    return replace(whole, words=whole.words[: whole.words.index("--") + 1])


@pytest.mark.parametrize("egress", [NoNetwork(), ThroughProxy("", 8899), OpenNetwork()], ids=repr)
def test_the_real_profile_holds(egress: Egress) -> None:
    spec = SandboxSpec(roots=(), egress=egress)
    assert fault_of(recipe, spec, bwrap_gaps(spec)) == ""


MakeRecipe = Callable[[SandboxSpec], Recipe]


def without(*dropped: str) -> MakeRecipe:
    """A profile with a hole: the same without some of its flags."""

    def make(spec: SandboxSpec) -> Recipe:
        whole = recipe(spec) if isinstance(spec.egress, ThroughProxy) else by_bwrap_alone(spec)
        return changed(whole, lambda args: [word for word in args if word not in dropped])

    return make


def writable(spec: SandboxSpec) -> Recipe:
    return changed(by_bwrap_alone(spec), lambda args: ["--bind", *args[1:]])


def unfiltered(spec: SandboxSpec) -> Recipe:
    def hole(args: list[str]) -> list[str]:
        at = args.index("--seccomp")
        return [*args[:at], *args[at + 2 :]]

    return changed(by_bwrap_alone(spec), hole)


def with_host_tmp(make: MakeRecipe) -> MakeRecipe:
    """The same with the host's /tmp, where the probe has its files and sockets."""

    def hole(args: list[str]) -> list[str]:
        at = args.index("/tmp")
        return [*args[: at - 1], "--bind", "/tmp", *args[at:]]

    return lambda spec: changed(make(spec), hole)


def changed(whole: Recipe, change: Callable[[list[str]], list[str]]) -> Recipe:
    return replace(whole, args=tuple(change(list(whole.args))))


@pytest.mark.parametrize(
    ("make", "spec", "escaped"),
    [
        (without("--unshare-net"), PROXY, "tcp, udp"),
        (writable, NOTHING, "home"),
        (with_host_tmp(by_bwrap_alone), NOTHING, "write"),
        (with_host_tmp(unfiltered), NOTHING, "unix, write"),
        (without("--unshare-pid", "--proc", "/proc"), NOTHING, "signal"),
    ],
    ids=["network", "root folder", "temporary files", "unix sockets", "processes"],
)
def test_each_way_out_is_seen(make: MakeRecipe, spec: SandboxSpec, escaped: str) -> None:
    assert fault_of(make, spec, ()) == f"the probe's canary got out by {escaped}"


def test_what_is_not_promised_need_not_hold() -> None:
    gaps = (Gap(Dimension.EGRESS, Enforcement.PARTIAL, "test:open"),)
    assert fault_of(without("--unshare-net"), PROXY, gaps) == ""


def fake_bwrap(folder: Path, script: str) -> MakeRecipe:
    path = folder / "bwrap"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return lambda spec: replace(recipe(spec), words=(str(path), *by_bwrap_alone(spec).words[1:]))


@pytest.mark.parametrize(
    ("script", "fault"),
    [
        (
            "echo 'bwrap: setting up uid map: Permission denied' >&2; exit 1",
            "bwrap: setting up uid map: Permission denied",
        ),
        ("echo one >&2; echo two >&2; exit 1", "one"),
        ("exit 0", "the probe ended with 0"),
        ("exit 7", "the probe ended with 7"),
        ("kill -9 $$", "the probe ended with -9"),
    ],
)
def test_a_tool_that_fails_is_quoted(tmp_path: Path, script: str, fault: str) -> None:
    assert fault_of(fake_bwrap(tmp_path, script), NOTHING, ()) == fault


def test_a_tool_that_runs_the_command_bare_is_seen(tmp_path: Path) -> None:
    bare = fake_bwrap(tmp_path, 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"')
    assert "the probe's canary got out by " in fault_of(bare, NOTHING, ())


def test_a_tool_that_hangs_is_given_up(tmp_path: Path) -> None:
    started = time.monotonic()
    fault = fault_of(fake_bwrap(tmp_path, "sleep 600 & sleep 600"), NOTHING, ())
    assert fault == "the probe did not end within 5 s"
    assert time.monotonic() - started < TIMEOUT_S + 2


def test_a_tool_that_is_not_there_is_no_traceback(tmp_path: Path) -> None:
    gone = str(tmp_path / "bwrap")
    fault = fault_of(lambda spec: replace(recipe(spec), words=(gone, "--")), NOTHING, ())
    assert fault == "the probe could not run: no such file or directory"


@pytest.mark.parametrize("portable", [False, True])
def test_its_code_lies_in_no_file_that_a_command_could_reach_and_the_masks_are_in_force(
    portable: bool, tmp_path: Path
) -> None:
    """What is run comes with the command line, and what is masked for the command is so for the canary."""
    seen: list[SandboxSpec] = []
    (tmp_path / ".ssh").mkdir()

    def make(spec: SandboxSpec) -> Recipe:
        seen.append(spec)
        return bwrap_recipe(spec, find_bwrap(os.defpath, ()), portable=portable)

    spec = replace(NOTHING, homes=(str(tmp_path),), masks=("/etc/passwd",))
    assert fault_of(make, spec, ()) == ""
    (stand_in,) = seen
    assert (stand_in.homes, stand_in.masks, stand_in.mask_secrets) == (
        (str(tmp_path),),
        ("/etc/passwd",),
        True,
    )
    (root,) = map(Path, stand_in.roots)
    assert root.parent.parent == Path("/tmp")  # which can be no root, nor can what holds it


def test_what_stands_in_the_temporary_folder_is_never_run(tmp_path: Path) -> None:
    """A swapper in the stand-in folder gets no code run: there is none there."""
    planted = tmp_path / "ran"

    def plant(spec: SandboxSpec) -> Recipe:
        for name in ("canary.py", "os.py", "sitecustomize.py", "_socket.py"):
            Path(spec.roots[0], name).write_text(f"open({str(planted)!r}, 'w')\n")
        return recipe(spec)

    assert fault_of(plant, NOTHING, ()) == ""
    assert not planted.exists()
