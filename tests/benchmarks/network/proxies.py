"""Runs one proxy on its core, and makes sure that it is the one that answers. Measures nothing itself.

A proxy left over from something else would be measured under a wrong name: so the port must be free before,
and must be held by a process of ours after. Next: peers.py (what is run), cases.py (what is done with it).
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.benchmarks.network import proc_tree
from tests.benchmarks.network.place import PROXY_PORT, is_free
from tests.support.deadline import eventually

_START_S = 15.0
_STOP_S = 5.0


class ProxyUnusable(Exception):
    """It did not start, or its port belongs to somebody else."""


def pinned(core: int, argv: Sequence[str]) -> list[str]:
    """From its first instruction on: threads inherit the core."""
    return ["taskset", "-c", str(core), *argv]


@contextmanager
def running_proxy(
    name: str, argv: Sequence[str], env: Mapping[str, str], core: int, folder: Path
) -> Iterator[int]:
    """The process id, once it listens. Ends it, and what it started, at the end of the block."""
    if not is_free(PROXY_PORT):
        raise ProxyUnusable(f"{name}: port {PROXY_PORT} is taken")
    log = folder / f"{name}.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            pinned(core, argv),
            env={**os.environ, **env},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        _await_listener(name, process, log)
        yield process.pid
    finally:
        stop(process)
        eventually(lambda: is_free(PROXY_PORT), _STOP_S, f"port {PROXY_PORT} to be free again")


def _await_listener(name: str, process: subprocess.Popen[bytes], log: Path) -> None:
    def settled() -> bool:
        return process.poll() is not None or proc_tree.listens(proc_tree.family(process.pid), PROXY_PORT)

    try:
        eventually(settled, _START_S, f"{name} to listen")
    except TimeoutError as late:
        raise ProxyUnusable(str(late)) from None
    if process.poll() is not None:
        last = log.read_text(errors="replace").strip().splitlines()[-1:]
        raise ProxyUnusable(f"{name}: ended with code {process.returncode}: {' '.join(last)[-300:]}")


def stop(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM to it and all below it; SIGKILL to what of its own session is still there after a while."""
    for pid in proc_tree.family(process.pid) if process.poll() is None else ():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(_STOP_S)
