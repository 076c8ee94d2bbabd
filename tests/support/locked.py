"""A command behind the real launcher, with a Landlock ruleset and a filter, and nothing else: no bwrap.

For tests that ask the kernel what a rule comes to.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from egress_proxy.sandbox.plan import LandlockRules, LaunchPlan
from tests.support.deadline import DEFAULT_S

_LAUNCHER = Path(__file__).parents[2] / "egress_proxy/sandbox/launcher.py"


def run_locked(
    argv: Sequence[str], rules: LandlockRules | None = None, program: bytes = b"", cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """The launcher drops all capabilities as well, so that root is no exception."""
    plan = LaunchPlan(landlock=rules, program=program, cwd=str(cwd) if cwd else None)
    with os.fdopen(os.memfd_create("plan"), "wb") as file:
        file.write(plan.encode())
        file.flush()
        file.seek(0)
        number = file.fileno()
        words = [sys.executable, "-I", "-S", "-B", str(_LAUNCHER), "inner", str(number), "-1", "-1", "--"]
        return subprocess.run(
            [*words, *argv],
            pass_fds=(number,),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEFAULT_S,
            check=False,
        )


def run_python(
    source: str,
    *arguments: str,
    rules: LandlockRules | None = None,
    program: bytes = b"",
    cwd: Path | None = None,
) -> str:
    """What Python prints behind the launcher; an error of it is the test's."""
    argv = [sys.executable, "-I", "-B", "-c", source, *arguments]
    ended = run_locked(argv, rules, program, cwd)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout
