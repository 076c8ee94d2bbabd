"""Everything at once: tunnels and injected requests whose peers misbehave, and a reload every few seconds.

Every byte and every answer is compared, every allowed decision has one end line, and at the end the service
holds what it held before. Next: exact_tunnels.py, killing_injected.py, remains.py, check.py.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tests.benchmarks.endurance.exact_tunnels import FarEnd, Tunnels, play_tunnels
from tests.benchmarks.endurance.killing_injected import Killing, kill_injected
from tests.benchmarks.endurance.many_connections import Growth
from tests.benchmarks.endurance.obedient_upstream import ObedientUpstream
from tests.benchmarks.endurance.remains import audit_faults, complaints, held, held_at_rest, shown
from tests.support import proc_figures
from tests.support.service import Service

_RELOAD_EVERY_S = 3.0
_DRAIN_S = 5.0  # what the service grants those who are busy when it is told to end


class Reloads:
    """``count``: how many were asked for; by a signal and by the control API in turn."""

    def __init__(self, service: Service, settings: Path) -> None:
        self.count = 0
        self.faults: list[str] = []
        self._service = service
        self._settings = settings
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(_RELOAD_EVERY_S):
            self.count += 1
            # Another policy each time; what is under way is allowed by each.
            write_settings(self._settings, f"{self.count}.test")
            if self.count % 2:
                self._service.signal(signal.SIGHUP)
                continue
            answer = self._service.control("POST", "/reload", timeout_s=_DRAIN_S)
            if answer.status != 200:
                self.faults.append(f"a reload was answered {answer.status} {answer.body!r}")

    @contextmanager
    def under_way(self) -> Iterator[None]:
        thread = threading.Thread(target=self.run, name="chaos-reloads")
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()


def write_settings(path: Path, host: str) -> None:
    """Whole or not at all: it may be read at any time."""
    fresh = path.with_suffix(".new")
    fresh.write_text(f'[[allow]]\nhost = "{host}"\n')
    fresh.chmod(0o600)
    fresh.replace(path)


def check_chaos(
    service: Service, upstream: ObedientUpstream, settings: Path, duration_s: float
) -> tuple[str, list[str]]:
    """Ends upstream and service, as check_killing_injected does. ``settings``: the file of the service."""
    before, tunnels, killing = held(service), Tunnels(), Killing()
    reloads = Reloads(service, settings)
    with FarEnd() as far, reloads.under_way():
        _both(service, far, duration_s / 4, tunnels, killing, seed=1)
        quarter = proc_figures.rss_bytes(service.pid)
        _both(service, far, duration_s * 3 / 4, tunnels, killing, seed=2)
        whole = proc_figures.rss_bytes(service.pid)
    growth = Growth(tunnels.kinds.total() + killing.requests.total(), quarter, whole)
    upstream.stop()
    after = held_at_rest(service, before)
    faults = [
        *(*shown(tunnels.faults), *shown(killing.faults), *shown(far.faults), *shown(upstream.faults)),
        *(*killing.unanswered(), *reloads.faults, *growth.faults(), *after.left(before)),
        *(*complaints(service), *audit_faults(service, reloads.count)),
    ]
    if service.terminate_and_time() >= _DRAIN_S:
        faults.append(f"at its end it waited {_DRAIN_S:g} s for somebody")
    seen = f"{tunnels}; {killing}; {reloads.count} reloads; {growth}; held before {before}, after {after}"
    return seen, faults


def _both(
    service: Service, far: FarEnd, duration_s: float, tunnels: Tunnels, killing: Killing, seed: int
) -> None:
    with ThreadPoolExecutor(2) as pool:
        playing = [
            pool.submit(play_tunnels, service, far, duration_s, tunnels, seed),
            pool.submit(kill_injected, service, duration_s, killing, seed),
        ]
        for played in playing:
            played.result()
