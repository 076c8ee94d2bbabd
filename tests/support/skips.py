"""The one rule about skipped tests: with CI=true only what the contract names may be left out.

A skip for any other reason is a failure there, so that no part of the tests is lost quietly.
conftest.py asks; tests give their reason to `pytest.skip`.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping

INDEX_OUT_OF_REACH = "pip cannot reach its package index from this machine, with or without the proxy"
# What no Linux machine has, and a client that cannot be installed.
_HELPLESS = "cannot be installed here: "
_ALLOWED = ("pwsh", "macOS", "Windows", _HELPLESS, INDEX_OUT_OF_REACH)
# Those of the system are root's to install; those of PyPI come with the tests, for every machine.
_DEBIAN = "Debian"


def cannot_be_installed(program: str, source: str = _DEBIAN) -> str:
    """The reason of a skip: the program is missing, and whether that could be helped."""
    could_be = source != _DEBIAN or (os.geteuid() == 0 and shutil.which("apt-get") is not None)
    return (
        f"not installed: {program}; run tests/run.sh" if could_be else f"cannot be installed here: {program}"
    )


def is_allowed(reason: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a test may be left out for this reason. Without CI=true, always."""
    if environ.get("CI") != "true":
        return True
    elsewhere = ("Linux",) if sys.platform != "linux" else ()
    return any(allowed in reason for allowed in (*_ALLOWED, *elsewhere))
