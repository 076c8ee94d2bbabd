"""The rule about skips, with and without CI=true, in a run of pytest of its own.

See ../skips.py and ../../conftest.py.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.program import REPOSITORY
from tests.support.skips import cannot_be_installed, is_allowed

SKIPPING = {
    "test_in_a_test.py": 'import pytest\ndef test_it():\n    pytest.skip("it rains")\n',
    "test_by_a_mark.py": 'import pytest\n@pytest.mark.skipif(True, reason="it rains")\ndef test_it(): ...\n',
    "test_whole_file.py": 'import pytest\npytest.skip("it rains", allow_module_level=True)\n',
    "test_allowed.py": 'import pytest\ndef test_it():\n    pytest.skip("needs macOS")\n',
}


def run_in(folder: Path, ci: str) -> str:
    """What came of a run of all the files."""
    for name, text in SKIPPING.items():
        (folder / name).write_text(text)
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    argv += ["--continue-on-collection-errors", "-c", str(REPOSITORY / "pyproject.toml")]
    done = subprocess.run(
        [*argv, "--rootdir", str(folder), str(folder)],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "CI": ci},
        timeout=50,
        check=False,
    )
    return done.stdout.splitlines()[-1].partition(" in ")[0]


def test_with_ci_a_skip_for_any_other_reason_fails(tmp_path: Path) -> None:
    # A mark is seen before the test starts, and a file before that: both are errors for pytest.
    assert run_in(tmp_path, "true") == "1 failed, 1 skipped, 2 errors"


def test_without_ci_any_skip_is_one(tmp_path: Path) -> None:
    assert run_in(tmp_path, "false") == "4 skipped"


@pytest.mark.parametrize("reason", ["pwsh is absent", "needs macOS", "Skipped: Windows only"])
def test_what_the_contract_names_may_be_skipped(reason: str) -> None:
    assert is_allowed(reason, {"CI": "true"})
    assert not is_allowed("it rains", {"CI": "true"})


@pytest.mark.parametrize(
    ("user", "source", "allowed"),
    [(0, "Debian", False), (1000, "Debian", True), (0, "PyPI", False), (1000, "PyPI", False)],
)
def test_a_client_may_be_absent_only_where_it_cannot_be_installed(
    user: int, source: str, allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    assert is_allowed(cannot_be_installed("curl", source), {"CI": "true"}) is allowed
