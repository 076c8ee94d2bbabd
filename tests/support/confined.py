"""Runs a command confined by the library, as an executor does it: choose, confine, spawn, finish.

Real rungs on this machine, the proxy optional. For tests of what holds inside and of what is reported.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from egress_proxy.sandbox.choose import choose
from egress_proxy.sandbox.confinement import Confinement, Finished
from egress_proxy.sandbox.spec import Egress, NoNetwork, SandboxSpec
from tests.support.deadline import DEFAULT_S

SEARCH_PATH = "/usr/local/bin:/usr/bin:/bin"
ENVIRONMENT = {"PATH": SEARCH_PATH, "LANG": "C.UTF-8"}
PYTHON = "/usr/bin/python3"


@dataclass(frozen=True, slots=True)
class Confined:
    """How it ended: what it printed, and the typed end."""

    code: int
    stdout: str
    stderr: str
    finished: Finished


def spec_for(root: Path | None = None, egress: Egress | None = None) -> SandboxSpec:
    """One root, no network unless told otherwise, nobody's home."""
    roots = () if root is None else (str(root.resolve()),)
    return SandboxSpec(roots, egress or NoNetwork(), cwd=roots[0] if roots else "/")


def run_confined(
    spec: SandboxSpec,
    command: Sequence[str],
    *,
    backend: str | None = None,
    environ: Mapping[str, str] = ENVIRONMENT,
    stdin: int = subprocess.DEVNULL,
    pass_fds: Sequence[int] = (),
) -> Confined:
    chosen = choose(spec, SEARCH_PATH, backend=backend)
    with Confinement(chosen, spec, command, environ) as confinement:
        with subprocess.Popen(
            confinement.argv,
            env=confinement.env,
            pass_fds=(*confinement.pass_fds, *pass_fds),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            confinement.started()
            out, err = process.communicate(timeout=4 * DEFAULT_S)
        finished = confinement.finish(process.returncode, err)
    return Confined(process.returncode, out.decode(), err.decode(), finished)


def shell(script: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", script)


def is_root() -> bool:
    return os.geteuid() == 0
