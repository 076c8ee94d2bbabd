"""What a run must say of itself so that its figures can be judged: when, where, how, and whose versions.

No host name, no user, no path. Next: publish.py (who writes it down).
"""

from __future__ import annotations

import datetime
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from tests.benchmarks.network.install import ENVIRONMENTS
from tests.benchmarks.network.peers import venv_program
from tests.benchmarks.network.place import PLAIN_PORT, find

_PACKAGE = "import importlib.metadata; print(importlib.metadata.version('{}'))"
_ASKS = {
    **{name: (name, "-v") for name in ("squid", "tinyproxy", "nginx", "haproxy")},
    **{
        package.partition("-")[0]: (venv_program(package, "python"), "-c", _PACKAGE.format(package))
        for package in ENVIRONMENTS
    },
}


def machine() -> dict[str, object]:
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "cores": os.cpu_count(),
        "kernel": platform.release().partition("-")[0],  # what follows names who built it
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),  # what else it did when the run began
        "server_names_judged": PLAIN_PORT == 443,
    }


def sentence(about: Mapping[str, object]) -> str:
    return (
        f"{about['date']}, {about['cores']} cores ({about['architecture']}), Linux {about['kernel']}, "
        f"Python {about['python']}, load average at the start {about['load']}"
    )


def versions(names: Iterable[str]) -> dict[str, str]:
    """Of the peers that can tell."""
    found: dict[str, str] = {}
    for name in set(names):
        argv = _ASKS.get(name)
        program = argv and find(argv[0])
        if argv and program:
            found[name] = _first_version([program, *argv[1:]])
    return {name: version for name, version in sorted(found.items()) if version}


def _first_version(argv: Sequence[str]) -> str:
    """The first thing that looks like one; some tell it on stderr."""
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
        if found := re.search(r"\d+\.\d+(\.\d+)?", done.stdout + done.stderr):
            return found[0]
    return ""
