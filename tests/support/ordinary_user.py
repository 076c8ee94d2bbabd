"""The product run by a user without privileges, where the tests themselves are run by root.

The interpreter is one that such a user can enter: never one below a closed home folder.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import sysconfig

import pytest

from tests.support.program import REPOSITORY

UID = 65534
_SYSTEM_PYTHON = "/usr/bin/python3"


def may_be_played() -> bool:
    return os.geteuid() == 0


def libraries() -> str:
    """PYTHONPATH for `interpreter`: the product, and what it needs."""
    return f"{REPOSITORY}:{sysconfig.get_path('purelib')}"


@functools.cache
def interpreter() -> str:
    """Skips where there is none that can import the product."""
    for candidate in (sys.executable, _SYSTEM_PYTHON):
        try:
            done = subprocess.run(
                (candidate, "-c", "import egress_proxy.cli.serve"),
                env={"PYTHONPATH": libraries()},
                user=UID,
                group=UID,
                extra_groups=(),
                cwd="/",
                capture_output=True,
                check=False,
            )
        except OSError:
            continue
        if done.returncode == 0:
            return candidate
    pytest.skip("cannot be installed here: a Python with the product's libraries for an ordinary user")
