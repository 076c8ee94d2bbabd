"""Many starts of the program at the price of one import: a process of its own for each, forked.

Run as a script: reads a list of {argv, env, cwd} as JSON, writes a list of {code, out, err}. No test is here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from tests.egress_proxy.cli.command import ROOT, TIMEOUT_S, Ended, environment


@dataclass(frozen=True, slots=True)
class Start:
    argv: list[str]
    env: dict[str, str]
    cwd: str


def run_all(starts: Sequence[Start]) -> list[Ended]:
    result = subprocess.run(
        [sys.executable, "-m", "tests.egress_proxy.cli.many_starts"],
        env=environment(),
        cwd=ROOT,
        input=json.dumps([asdict(start) for start in starts]).encode(),
        stdout=subprocess.PIPE,
        timeout=TIMEOUT_S,
        check=True,
    )
    return [Ended(**ended) for ended in json.loads(result.stdout)]


def _run(start: Start) -> Ended:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            _become(start, out.fileno(), err.fileno())
        _, status = os.waitpid(child, 0)
        for file in (out, err):
            file.seek(0)
        return Ended(os.waitstatus_to_exitcode(status), out.read().decode(), err.read().decode())


def _become(start: Start, out: int, err: int) -> None:
    """The child: from here on as if it had been started so."""
    from egress_proxy.cli.main import main

    os.dup2(out, 1)
    os.dup2(err, 2)
    os.chdir(start.cwd)
    os.environ.clear()
    os.environ.update(start.env)
    code = 70  # that nothing else uses
    try:
        code = main(start.argv)
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


def _answer() -> None:
    import egress_proxy.cli.planning
    import egress_proxy.suffixes

    egress_proxy.suffixes.suffix_of("example.com")
    starts = [Start(**start) for start in json.loads(sys.stdin.read())]
    answers = [asdict(_run(start)) for start in starts]
    print(json.dumps(answers))


if __name__ == "__main__":
    _answer()
