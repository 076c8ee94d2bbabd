"""The program as a user starts it: a real process with an environment of its own. No test is here."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TIMEOUT_S = 30.0
# The entry points: the console scripts call just these functions.
PROGRAM = ("-c", "import sys; from egress_proxy.cli.main import main; sys.exit(main())")
DROP_IN = ("-c", "import sys; from egress_proxy.cli.main import main_drop_in; sys.exit(main_drop_in())")
MODULE = ("-m", "egress_proxy")


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    out: str
    err: str


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a test says, and what Python and coverage need; no settings of whoever runs the tests."""
    kept = {name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")}
    return {**kept, "PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8", **(more or {})}


def run(
    *argv: str,
    env: Mapping[str, str] | None = None,
    entry: tuple[str, ...] = PROGRAM,
    cwd: Path = ROOT,
) -> Ended:
    result = subprocess.run(
        [sys.executable, *entry, *argv],
        env={**environment(env), "PYTHONPATH": str(ROOT)},
        cwd=cwd,
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return Ended(result.returncode, result.stdout.decode(), result.stderr.decode())


@dataclass(frozen=True, slots=True)
class Running:
    """A service; ``lines`` are those that it printed at its start."""

    process: subprocess.Popen[str]
    lines: dict[str, str]

    @property
    def data_port(self) -> str:
        return self.lines["EGRESS_PROXY_PORT"]

    @property
    def control_port(self) -> str:
        return self.lines["EGRESS_CONTROL_PORT"]


@contextlib.contextmanager
def service(*argv: str, env: Mapping[str, str], prints: int) -> Iterator[Running]:
    """A service that runs until the block ends; ``prints``: how many lines it says at its start."""
    process = subprocess.Popen(
        [sys.executable, *MODULE, "serve", "--bind", "127.0.0.1:0", *argv],
        env={**environment(env), "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        pairs = [process.stdout.readline().rstrip("\n").partition("=") for _ in range(prints)]
        if not all(equals for _, equals, _ in pairs):
            raise AssertionError(f"the service did not start: {process.communicate(timeout=TIMEOUT_S)[1]}")
        yield Running(process, {name: value for name, _, value in pairs})
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=TIMEOUT_S)
