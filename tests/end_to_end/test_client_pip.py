"""pip through the proxy: a wheel from a package index of the test's own, over TLS.

It shows the phrase of a refusal. The real index is in test_package_index.py.
"""

from __future__ import annotations

import base64
import hashlib
import io
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.end_to_end.programs import python_program
from tests.end_to_end.road import LISTED, UNLISTED, Road
from tests.support import answers

NAME, VERSION = "tinywheel", "1.0"
WHEEL = f"{NAME}-{VERSION}-py3-none-any.whl"
DIST_INFO = f"{NAME}-{VERSION}.dist-info"
FILES = {
    f"{NAME}.py": "ANSWER = 42\n",
    f"{DIST_INFO}/METADATA": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {VERSION}\n",
    f"{DIST_INFO}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}


def wheel() -> bytes:
    """A wheel of one module, its RECORD included."""
    digests = {name: hashlib.sha256(text.encode()).digest() for name, text in FILES.items()}
    record = [
        f"{name},sha256={base64.urlsafe_b64encode(digest).decode().rstrip('=')},{len(FILES[name])}"
        for name, digest in digests.items()
    ]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in FILES.items():
            archive.writestr(name, text)
        archive.writestr(f"{DIST_INFO}/RECORD", "\n".join([*record, f"{DIST_INFO}/RECORD,,", ""]))
    return packed.getvalue()


@pytest.fixture(scope="module")
def index(road: Road) -> str:
    """The path below which the origin is a package index."""
    packed = wheel()
    digest = hashlib.sha256(packed).hexdigest()
    page = f'<!DOCTYPE html><a href="/files/{WHEEL}#sha256={digest}">{WHEEL}</a>'
    road.origin.on(f"/simple/{NAME}/", answers.fixed(page.encode(), headers=[("Content-Type", "text/html")]))
    road.origin.on(f"/files/{WHEEL}", answers.fixed(packed))
    return "/simple/"


def install(road: Road, url: str, folder: Path) -> subprocess.CompletedProcess[str]:
    env = {
        "PIP_CERT": str(road.ca_path),
        "PIP_CONFIG_FILE": "/dev/null",  # the machine's own indexes and constraints are no part of this
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_RETRIES": "1",  # what went wrong is said before each retry
    }
    words = ("-m", "pip", "install", "--no-deps", "--no-compile", "--target", str(folder))
    return road.run(python_program("pip"), *words, "--index-url", url, NAME, env=env)


def test_pip_installs_from_a_listed_index(road: Road, index: str, tmp_path: Path) -> None:
    done = install(road, road.url(LISTED, index), tmp_path / "site")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / f"{NAME}.py").read_text() == FILES[f"{NAME}.py"]
    assert {request.value("Host") for request in road.origin.requests} == {f"{LISTED}:{road.origin.port}"}


def test_pip_is_refused_an_unlisted_index_and_shows_the_phrase(
    road: Road, index: str, tmp_path: Path
) -> None:
    before = road.connections
    done = install(road, road.url(UNLISTED, index), tmp_path / "site")
    assert done.returncode == 1
    assert road.phrase() in done.stdout + done.stderr
    assert road.connections == before
