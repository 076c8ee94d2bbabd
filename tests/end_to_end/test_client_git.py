"""git through the proxy: a clone over https of a small repository, served as plain files.

It shows the number of a refusal, not its phrase. What git trusts is said by GIT_SSL_CAINFO.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.end_to_end.programs import system_program
from tests.end_to_end.road import LISTED, UNLISTED, Road
from tests.support import answers
from tests.support.program import clean_environment
from tests.support.recorded import RecordedRequest

TEXT = "what was committed\n"


@pytest.fixture(scope="module")
def git() -> str:
    return system_program("git")


@pytest.fixture(scope="module")
def served(git: str, road: Road, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bare repository that the origin serves below /repository.git (git's dumb protocol)."""
    folder = tmp_path_factory.mktemp("git")
    work, bare = folder / "work", folder / "repository.git"
    work.mkdir()
    (work / "file.txt").write_text(TEXT)
    person = ("-c", "user.name=A Person", "-c", "user.email=person@example.com")
    for words in (
        ("-C", str(work), "init", "--quiet", "--initial-branch", "main"),
        ("-C", str(work), "add", "file.txt"),
        ("-C", str(work), *person, "commit", "--quiet", "--message", "one file"),
        ("clone", "--quiet", "--bare", str(work), str(bare)),
        ("-C", str(bare), "update-server-info"),
    ):
        subprocess.run([git, *words], check=True, timeout=30, env=clean_environment(folder))

    def file_of(request: RecordedRequest) -> bytes:
        path = bare / request.path.removeprefix("/repository.git/")
        if not path.is_file():
            return answers.fixed(status=404)
        return answers.fixed(path.read_bytes(), headers=[("Content-Type", "application/octet-stream")])

    road.origin.otherwise(answers.reply_with(file_of))
    return bare


@pytest.mark.usefixtures("served")
def test_git_clones_from_a_listed_host(road: Road, git: str, tmp_path: Path) -> None:
    url = road.url(LISTED, "/repository.git")
    env = {"GIT_SSL_CAINFO": str(road.ca_path), "GIT_TERMINAL_PROMPT": "0"}
    done = road.run(git, "clone", "--quiet", url, str(tmp_path / "clone"), env=env)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "clone" / "file.txt").read_text() == TEXT


@pytest.mark.usefixtures("served")
def test_git_is_refused_an_unlisted_host_and_shows_the_number(road: Road, git: str, tmp_path: Path) -> None:
    before = road.connections
    env = {"GIT_SSL_CAINFO": str(road.ca_path), "GIT_TERMINAL_PROMPT": "0"}
    done = road.run(git, "clone", road.url(UNLISTED, "/repository.git"), str(tmp_path / "clone"), env=env)
    assert done.returncode == 128
    assert "403" in done.stderr
    assert road.connections == before
    assert not (tmp_path / "clone").exists()


@pytest.mark.usefixtures("served")
def test_the_proxy_hides_no_certificate_from_git(road: Road, git: str, tmp_path: Path) -> None:
    done = road.run(git, "clone", road.url(LISTED, "/repository.git"), str(tmp_path / "clone"))
    assert done.returncode == 128
    assert "certificate" in done.stderr
