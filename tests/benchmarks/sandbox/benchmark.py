"""Start-up added to a command, on each rung, with and without a proxy; beside it that of the command line.

From a ready library in a running process to the end of /bin/true, less the same without a sandbox. The proxy
is the real one, in a process of its own. Next: sandbox/confinement.py (what is measured).
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from egress_proxy.sandbox.choose import choose
from egress_proxy.sandbox.confinement import Confinement
from egress_proxy.sandbox.egress_choice import through_proxy
from egress_proxy.sandbox.spec import Egress, NoNetwork, SandboxSpec
from tests.benchmarks.report import Report
from tests.support.confined import ENVIRONMENT, SEARCH_PATH
from tests.support.program import PROGRAM
from tests.support.service import Service

COMMAND = ("/bin/true",)
GOALS_MS = {"no network": 15.0, "through the proxy": 45.0}


def run(argv: Sequence[str]) -> Report:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks sandbox")
    parser.add_argument("--rounds", type=int, default=20, help="runs of each kind; medians are shown")
    rounds = parser.parse_args(argv).rounds
    bare = _median_ms(_bare, rounds)
    numbers: dict[str, float] = {"bare": bare}
    lines = [f"bare /bin/true: {bare:.1f} ms; medians of {rounds} runs, what is added to that", ""]
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, Service("--allow-none") as service:
        proxy = through_proxy(str(service.attach_path))
        egresses: dict[str, Egress] = {"no network": NoNetwork(), "through the proxy": proxy}
        for backend in ("bwrap", "landlock"):
            for name, egress in egresses.items():
                added = _median_ms(_confined(backend, egress, folder), rounds) - bare
                numbers[f"{backend}, {name}"] = added
                lines.append(f"{backend:<9} {name:<18} {added:6.1f} ms   (goal {GOALS_MS[name]:.0f})")
        cli = (*PROGRAM, "run", "-q", "--", *COMMAND)
        numbers["egress-proxy run"] = _median_ms(lambda: _spawn(cli), max(3, rounds // 4)) - bare
    lines.append(
        f"egress-proxy run -- …         {numbers['egress-proxy run']:6.1f} ms   (with its own start)"
    )
    return Report("\n".join(lines), {name: round(added, 2) for name, added in numbers.items()})


def _median_ms(once: Callable[[], None], rounds: int) -> float:
    once()  # probes, caches, the page cache
    took = []
    for _ in range(rounds):
        started = time.perf_counter()
        once()
        took.append((time.perf_counter() - started) * 1e3)
    return statistics.median(took)


def _bare() -> None:
    _spawn(COMMAND)


def _spawn(command: Sequence[str]) -> None:
    subprocess.run(command, stdin=subprocess.DEVNULL, check=True)


def _confined(backend: str, egress: Egress, folder: str) -> Callable[[], None]:
    spec = SandboxSpec((folder,), egress, cwd=folder, homes=(str(Path.home()),))

    def once() -> None:
        chosen = choose(spec, SEARCH_PATH, backend=backend)
        with Confinement(chosen, spec, COMMAND, ENVIRONMENT) as confinement:
            process = subprocess.Popen(
                confinement.argv,
                env=confinement.env,
                pass_fds=confinement.pass_fds,
                stdin=subprocess.DEVNULL,
            )
            confinement.started()
            if process.wait() != 0:
                sys.exit(f"{backend}: /bin/true ended with {process.returncode}")

    return once
