"""Every check of the project, in order: python -m tests.check [--fast] [--coverage] [-- pytest arguments]

Only the order and the verdict live here; what a tool checks is set in pyproject.toml, and what has
to be installed first in run.sh.
"""

import argparse
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TREES = ("egress_proxy", "control_api", "tests")
SCRIPTS = sysconfig.get_path("scripts")
# Three workers: half of a test's time is waiting, so that is what two cores take with deadlines kept. One
# file stays in one worker, so that its tests may share a service.
WORKERS = ("-n", "3", "--dist", "loadfile")


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    argv: tuple[str, ...]


def module(*argv: str) -> tuple[str, ...]:
    """The command line of an installed module, run by this interpreter."""
    return (sys.executable, "-m", *argv)


def steps(*, fast: bool, measured: bool, pytest_args: Sequence[str]) -> list[Step]:
    runner = ("coverage", "run", "-m", "pytest") if measured else ("pytest",)
    skipped = ("--ignore=tests/end_to_end",) if fast else ()
    return [
        Step("format", module("ruff", "format", "--check", *TREES)),
        Step("lint", module("ruff", "check", *TREES)),
        Step("types", module("mypy", *TREES)),
        Step("imports", (str(Path(SCRIPTS, "lint-imports")), "--no-logo")),
        Step("tests", module(*runner, *WORKERS, *skipped, *pytest_args)),
    ]


def passes(step: Step, environ: Mapping[str, str]) -> bool:
    """Run one step, its output shown as it comes. That pytest collects nothing is a failure too."""
    print(f"\n== {step.name}: {' '.join((Path(step.argv[0]).name, *step.argv[1:]))}", flush=True)
    started = time.monotonic()
    code = subprocess.run(step.argv, cwd=ROOT, env=environ, check=False).returncode
    verdict = "passed" if code == 0 else f"FAILED (exit {code})"
    print(f"== {step.name}: {verdict} in {time.monotonic() - started:.1f} s", flush=True)
    return code == 0


def report_coverage(environ: Mapping[str, str]) -> None:
    """For readers, not a gate: a number to reach is met by tests that assert nothing."""
    print("\n== coverage", flush=True)
    for argv in (module("coverage", "combine", "--quiet"), module("coverage", "report")):
        subprocess.run(argv, cwd=ROOT, env=environ, check=False)


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Our flags, and what is behind the first ``--``."""
    own, pytest_args = list(argv), []
    if "--" in own:
        at = own.index("--")
        own, pytest_args = own[:at], own[at + 1 :]
    parser = argparse.ArgumentParser(prog="python -m tests.check")
    parser.add_argument("--fast", action="store_true", help="leave out tests/end_to_end")
    parser.add_argument("--coverage", action="store_true", help="measure it, which takes half as long again")
    return parser.parse_args(own), pytest_args


def main(argv: Sequence[str]) -> int:
    flags, pytest_args = parse(argv)
    # Outside the checkout, so that two runs at once do not mix their measurements.
    with tempfile.TemporaryDirectory(prefix="coverage-") as folder:
        environ = {
            **os.environ,
            "COVERAGE_FILE": str(Path(folder, "data")),
            "PATH": os.pathsep.join((SCRIPTS, os.environ.get("PATH", os.defpath))),
        }
        started = time.monotonic()
        todo = steps(fast=flags.fast, measured=flags.coverage, pytest_args=pytest_args)
        failed = [step.name for step in todo if not passes(step, environ)]
        if flags.coverage:
            report_coverage(environ)
    verdict = f"FAILED: {', '.join(failed)}" if failed else f"all {len(todo)} checks passed"
    print(f"\n== {verdict}, in {time.monotonic() - started:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
