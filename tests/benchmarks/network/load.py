"""The two C programs that make the load: compiled at need, run on the other core, their answers read.

Python would be the slowest part of what is measured. Next: loadgen.c, upstream.c, cases.py (the users).
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.network import proc_tree
from tests.benchmarks.network.place import (
    ADDRESS,
    HTTP_PORT,
    PLAIN_PORT,
    SECRET,
    TARGET,
    TLS_PORT,
    Place,
    cache_folder,
    find,
    is_free,
)
from tests.benchmarks.network.proxies import pinned, stop

SOURCES = Path(__file__).parent
LIBRARIES = {"loadgen": (), "upstream": ("-lssl", "-lcrypto", "-lpthread")}
TWO_STEPS = ("down", "up", "ping", "idle")  # these wait, when all tunnels are open
_LIMIT_S = 90.0

Answer = dict[str, float]


class LoadFailed(Exception):
    """The load generator gave no answer, or the upstream did not start."""


def built(name: str) -> str:
    """The path of the program; compiled when its source is new."""
    source = SOURCES / f"{name}.c"
    program = cache_folder() / f"{name}-{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}"
    if program.exists():
        return str(program)
    compiler = find("cc")
    if compiler is None:
        raise SystemExit(
            "error: no C compiler for the load generator: install gcc and libssl-dev (Debian's names)"
        )
    program.parent.mkdir(parents=True, exist_ok=True)
    argv = [compiler, "-O2", "-o", str(program), str(source), *LIBRARIES[name]]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(
            f"error: {source.name} does not compile (needs gcc, libssl-dev):\n{done.stderr[-2000:]}"
        )
    return str(program)


@contextmanager
def running_upstream(place: Place, core: int) -> Iterator[None]:
    ports = [str(port) for port in (PLAIN_PORT, HTTP_PORT, TLS_PORT)]
    taken = [port for port in ports if not is_free(int(port))]
    if taken:
        raise SystemExit(f"error: taken on {ADDRESS}: {', '.join(taken)}; is another benchmark running?")
    argv = [built("upstream"), ADDRESS, *ports, str(place.certificate), str(place.key), SECRET]
    process = subprocess.Popen(
        pinned(core, argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    try:
        if process.stdout.readline() != b"READY\n":
            raise LoadFailed("the upstream did not start")
        yield
    finally:
        stop(process)
        process.stdout.close()


@dataclass(frozen=True, slots=True)
class Load:
    """Runs the generator on ``core`` against ``proxy``; ``pid`` is whose CPU is read, None for no proxy."""

    proxy: str
    core: int
    pid: int | None

    def run(
        self,
        mode: str,
        count: int,
        seconds: float,
        *,
        target: str = TARGET,
        form: str = "-",
        most: int = 0,
        when_open: Callable[[], None] | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> Answer:
        """What the generator printed, with ``cpu_s`` of the proxy during the timed part alone.

        ``when_open`` is called when all tunnels are open and at rest, ``meanwhile`` when they have begun.
        """
        argv = [built("loadgen"), mode, self.proxy, target, str(count), str(seconds), form, str(most)]
        process = subprocess.Popen(
            pinned(self.core, argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        with process:
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                if mode in TWO_STEPS:
                    _expect_ready(mode, process.stdout.readline())
                    if when_open:
                        when_open()
                before = self.cpu_s()
                if mode in TWO_STEPS:
                    process.stdin.write("\n")
                    process.stdin.flush()
                if meanwhile:
                    meanwhile()
                line = process.stdout.readline()
                spent = self.cpu_s() - before
                process.wait(_LIMIT_S)
            finally:
                process.kill()
        return parse_answer(mode, line) | {"cpu_s": spent}

    def cpu_s(self) -> float:
        return 0.0 if self.pid is None else proc_tree.cpu_s(self.pid)


def _expect_ready(mode: str, line: str) -> None:
    if not line.startswith("READY"):
        raise LoadFailed(f"{mode}: the tunnels did not open: {line.strip() or 'no answer'}")


def parse_answer(mode: str, line: str) -> Answer:
    try:
        answer = json.loads(line)
    except ValueError:
        raise LoadFailed(f"{mode}: no answer of the load generator: {line.strip()[:200]!r}") from None
    return {name: value for name, value in answer.items() if name != "mode"}
