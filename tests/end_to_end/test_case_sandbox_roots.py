"""Case C66: a root that is a link, or lies behind one, is the folder that it led to when it was named."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.certificates import CertificateAuthority
from tests.support.confined_run import BACKENDS, END_S, RunGround
from tests.support.program import run_cli


@pytest.fixture
def ground(ca: CertificateAuthority) -> Iterator[RunGround]:
    with RunGround(ca) as made:
        for name in ("real", "elsewhere"):
            (made.folder / name).mkdir()
        (made.folder / "link").symlink_to("real")
        yield made


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("root", ["link", "link/", "link/../link", "./link/inner/.."])
def test_it_is_written_through_either_name(ground: RunGround, backend: str, root: str) -> None:
    (ground.folder / "real" / "inner").mkdir()
    script = "touch link/one real/two && cd link && touch three; touch ../elsewhere/no"
    ran = ground.run("sh", "-c", script, flags=("-q", "--backend", backend, "--rw", root))
    assert ran.code == 1
    assert {"one", "two", "three"} <= set(os.listdir(ground.folder / "real"))
    assert os.listdir(ground.folder / "elsewhere") == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_command_may_be_started_in_it_by_the_link(ground: RunGround, backend: str) -> None:
    ran = ground.run(
        "touch", "here", flags=("-q", "--backend", backend, "--rw", "."), cwd=ground.folder / "link"
    )
    assert ran.code == 0, ran.err
    assert (ground.folder / "real" / "here").exists()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_link_that_is_swapped_meanwhile_leads_to_no_new_place(ground: RunGround, backend: str) -> None:
    """Whether the command or somebody outside does it."""
    script = "echo ready; read line; touch link/f; touch real/kept"
    flags = ("-q", "--backend", backend, "--rw", "link")
    with ground.started("sh", "-c", script, flags=flags, stdin=-1) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        link = ground.folder / "link"
        link.unlink()
        link.symlink_to("elsewhere")
        process.communicate("\n", timeout=END_S)
    assert process.returncode == 0
    assert os.listdir(ground.folder / "elsewhere") == []
    assert os.listdir(ground.folder / "real") == ["kept"]


@pytest.mark.parametrize("words", [("run",), ("sandbox", "linux-wrap", "--no-network")], ids=" ".join)
def test_a_root_that_is_not_there_is_named(tmp_path: Path, words: tuple[str, ...]) -> None:
    flag = "--rw" if words[0] == "run" else "--writable-root"
    (tmp_path / "dangling").symlink_to("nowhere")
    for root in ("nope", "dangling"):
        done = run_cli(*words, flag, root, "--", "true", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"writable root '{root}'" in done.stderr


def test_a_profile_has_real_paths_alone(tmp_path: Path) -> None:
    """As /tmp is /private/tmp on a Mac, and TMPDIR lies behind /var."""
    real = tmp_path.resolve() / "private"
    (real / "tmp").mkdir(parents=True)
    (tmp_path / "var").symlink_to("private")
    root = str(tmp_path / "var" / "tmp")
    done = run_cli("sandbox", "profile", "--writable-root", root, env={"TMPDIR": root})
    assert f'{real}/tmp")' in done.stdout
    assert root not in done.stdout
