"""Case C63: a tool that is there and cannot run leads to the next rung, or to a refusal; never to a bare run.

Each of the broken tools is one that was met in the field; the whole probe takes seconds at most.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.certificates import CertificateAuthority
from tests.support.confined_run import PATH, RunGround, in_place_of_bwrap
from tests.support.program import PROGRAM, run_cli

BROKEN = {
    "AppArmor": ("echo 'bwrap: setting up uid map: Permission denied' >&2; exit 1", "setting up uid map"),
    "loopback": (
        "echo 'bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted' >&2; exit 1",
        "RTM_NEWADDR",
    ),
    "masked proc": (
        'echo "bwrap: Can\'t mount proc on /newroot/proc: Operation not permitted" >&2; exit 1',
        "proc",
    ),
    "silent": ("exit 1", "ended with 1"),
    "pretends": ("exit 0", "ended with 0"),
    "hangs": ("exec sleep 600", "did not end within 5 s"),
}
PROBES_S = 5.0 + 10.0  # the limit of one probe, and what starting Python takes on a busy machine

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="cannot be installed here: a tool that root owns")


@pytest.fixture(scope="module")
def ground(ca: CertificateAuthority) -> Iterator[RunGround]:
    with RunGround(ca) as made:
        yield made


def broken(folder: Path, script: str) -> tuple[str, ...]:
    path = folder / "bwrap"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return in_place_of_bwrap(path)


@needs_root
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_tool_leads_to_the_next_rung(ground: RunGround, tmp_path: Path, name: str) -> None:
    begun = time.monotonic()
    ran = ground.run(
        "sh", "-c", "touch /etc/x 2>/dev/null || echo confined", before=broken(tmp_path, BROKEN[name][0])
    )
    assert (ran.code, ran.out) == (0, "confined\n")
    assert "confined by landlock, enforcement full" in ran.err
    assert "not the stronger sandbox: bwrap" in ran.err
    assert BROKEN[name][1] in ran.err
    assert time.monotonic() - begun < PROBES_S


@needs_root
@pytest.mark.parametrize("name", BROKEN)
def test_where_that_rung_was_asked_for_nothing_runs_and_its_line_is_quoted(
    ground: RunGround, tmp_path: Path, name: str
) -> None:
    script, line = BROKEN[name]
    before = broken(tmp_path, script)
    ran = ground.run("sh", "-c", "echo ran", flags=("--backend", "bwrap"), before=before)
    assert (ran.code, ran.out, ran.err.count("\n")) == (125, "", 1)
    assert line in ran.err
    described = run_cli("sandbox", "describe", "--backend", "bwrap", program=(*before, *PROGRAM))
    assert json.loads(described.stdout)["backend"] == "none"
    assert line in described.stderr


def test_without_the_tool_it_is_the_next_rung(ground: RunGround, tmp_path: Path) -> None:
    (tmp_path / "sh").symlink_to("/bin/sh")
    ran = ground.run("/bin/sh", "-c", "echo ran", env={"PATH": str(tmp_path)})
    assert (ran.code, ran.out) == (0, "ran\n")
    assert "confined by landlock" in ran.err
    assert "not the stronger sandbox: bwrap: no bwrap on PATH (install the package bubblewrap)\n" in ran.err
    described = run_cli("sandbox", "describe", env={"PATH": str(tmp_path)})
    assert json.loads(described.stdout)["backend"] == "landlock"
    assert described.stderr.startswith("not the stronger sandbox: bwrap: no bwrap on PATH (install")


PLANTED = "#!/bin/sh\necho it ran >&2\nexit 1\n"


@pytest.mark.parametrize("place", ["work/bin", "work/node_modules/.bin", "home/.local/bin", "elsewhere"])
def test_a_tool_that_an_earlier_command_planted_is_never_run(
    ground: RunGround, tmp_path: Path, place: str
) -> None:
    path = tmp_path / place / "bwrap"
    path.parent.mkdir(parents=True)
    path.write_text(PLANTED)
    path.chmod(0o755)
    (tmp_path / "work").mkdir(exist_ok=True)
    env = {"PATH": str(path.parent), "HOME": str(tmp_path / "home")}
    ran = ground.run("/bin/sh", "-c", "echo ran", env=env, cwd=tmp_path / "work")
    assert (ran.code, ran.out) == (0, "ran\n")
    assert "it ran" not in ran.err
    assert f"{path} is passed over: it lies in" in ran.err
    both = ground.run("/bin/sh", "-c", "echo ran", env={"PATH": f"{path.parent}:{PATH}"}, cwd=tmp_path)
    assert "confined by bwrap" in both.err
    assert "it ran" not in both.err
