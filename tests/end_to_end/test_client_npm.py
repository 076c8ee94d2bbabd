"""npm through the proxy: a package from a registry of the test's own, over TLS, scripts switched off.

What it trusts is said by npm_config_cafile. It shows the phrase of a refusal, and even its code.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.end_to_end.programs import npm_program
from tests.end_to_end.road import LISTED, UNLISTED, Road
from tests.support import answers

NAME, VERSION = "tinypackage", "1.2.3"
CODE = "module.exports = 42;\n"


def tarball() -> bytes:
    manifest = json.dumps({"name": NAME, "version": VERSION, "main": "index.js"})
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in (("package/package.json", manifest), ("package/index.js", CODE)):
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return packed.getvalue()


@pytest.fixture(scope="module")
def registry(road: Road) -> str:
    """The URL of the registry, under the listed name."""
    packed, path = tarball(), f"/{NAME}/-/{NAME}-{VERSION}.tgz"
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(packed).digest()).decode()
    version = {
        "name": NAME,
        "version": VERSION,
        "dist": {"tarball": road.url(LISTED, path), "integrity": integrity},
    }
    document = {"name": NAME, "dist-tags": {"latest": VERSION}, "versions": {VERSION: version}}
    kind = [("Content-Type", "application/json")]
    road.origin.on(f"/{NAME}", answers.fixed(json.dumps(document).encode(), headers=kind))
    road.origin.on(path, answers.fixed(packed))
    return road.url(LISTED)


def npm(road: Road, registry: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    program = npm_program()
    env = {
        "npm_config_registry": registry,
        "npm_config_cafile": str(road.ca_path),
        "npm_config_globalconfig": "/dev/null",  # the machine's own settings are no part of this
        "npm_config_cache": str(folder / "cache"),
        "npm_config_ignore_scripts": "true",
        "npm_config_audit": "false",
        "npm_config_fund": "false",
        "npm_config_update_notifier": "false",
        "npm_config_fetch_retries": "0",
    }
    return road.run(*program, *words, env=env, cwd=folder)


def test_npm_views_and_installs_from_a_listed_registry(road: Road, registry: str, tmp_path: Path) -> None:
    seen = npm(road, registry, tmp_path, "view", NAME, "version")
    assert (seen.stdout.strip(), seen.returncode) == (VERSION, 0), seen.stderr
    done = npm(road, registry, tmp_path, "install", NAME)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "node_modules" / NAME / "index.js").read_text() == CODE


@pytest.mark.usefixtures("registry")
def test_npm_is_refused_an_unlisted_registry_and_shows_the_phrase(road: Road, tmp_path: Path) -> None:
    before = road.connections
    done = npm(road, road.url(UNLISTED), tmp_path, "view", NAME, "version")
    assert done.returncode != 0
    assert VERSION not in done.stdout
    assert road.phrase() in done.stderr
    assert road.connections == before
