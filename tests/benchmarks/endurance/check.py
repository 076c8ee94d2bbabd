"""python -m tests.benchmarks --check: counts that must hold over a quarter of an hour. Prints what it saw.

Ends with code 1 when one does not. The short form, with the same bounds: tests/end_to_end/test_endurance.py.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.benchmarks.endurance.chaos import check_chaos, write_settings
from tests.benchmarks.endurance.killing import kill_peers
from tests.benchmarks.endurance.killing_injected import Killing, kill_injected
from tests.benchmarks.endurance.many_connections import Growth, open_many
from tests.benchmarks.endurance.obedient_upstream import SECRET, ObedientUpstream
from tests.benchmarks.endurance.remains import AUDIT_FILE, complaints, held, held_at_rest, shown, unpaired
from tests.benchmarks.endurance.transfer import move
from tests.benchmarks.endurance.visits import HOST
from tests.benchmarks.report import Report
from tests.support import proc_figures
from tests.support.certificates import CertificateAuthority, server_context
from tests.support.service import TOKEN, Service

MIB = 1_048_576
LONG_BYTES, TUNNELS = 4096 * MIB, 16
LONG_CONNECTIONS = 200_000
LONG_KILLING_S = 60
WRONG = "  WRONG: "
_SECRET_VARIABLE = "EGRESS_TEST_INJECTED"
_DRAIN_S = 5.0  # what the service grants those who are busy when it is told to end


@contextmanager
def endured_service(*flags: str, entries: tuple[str, ...] = ("--allow", "127.0.0.1:*")) -> Iterator[Service]:
    """With everything on, and quiet: a log of very many decisions on stderr is not what is tested."""
    args = (*entries, "--quiet", "--audit", AUDIT_FILE, *flags)
    with Service(*args, token=TOKEN) as service:
        yield service


@contextmanager
def injecting_service(*flags: str, tls: bool = False) -> Iterator[tuple[Service, ObedientUpstream]]:
    """The same with an inject rule, and the upstream behind it."""
    with tempfile.TemporaryDirectory(prefix="eg-ca-") as folder:
        ca = CertificateAuthority(Path(folder))
        with ObedientUpstream(server_context(ca.leaf(HOST)) if tls else None) as upstream:
            rule = ("--inject-host", HOST, "--inject-secret-env", _SECRET_VARIABLE)
            way = ("--inject-scheme", "https" if tls else "http", "--inject-port", str(upstream.port))
            args = (*rule, *way, "--allow-private", f"{HOST}:80", "--quiet", "--audit", AUDIT_FILE, *flags)
            env = {_SECRET_VARIABLE: SECRET, "SSL_CERT_FILE": str(ca.pem_path)}
            with Service(*args, token=TOKEN, env=env) as service:
                yield service, upstream


def check_transfer(
    service: Service, total_bytes: int, grant_bytes: int | None = None
) -> tuple[str, list[str]]:
    """Each check: what was seen, and what is wrong with it."""
    moved = move(service, total_bytes, TUNNELS, grant_bytes)
    return f"{moved.moved_bytes / MIB:,.0f} MiB through {moved.tunnels} tunnels", moved.faults(total_bytes)


def check_memory(service: Service, connections: int) -> tuple[str, list[str]]:
    growth = open_many(service, connections)
    return f"{connections:,} connections: {growth}", growth.faults()


def check_killing(service: Service, duration_s: float) -> tuple[str, list[str]]:
    before = held(service)
    done = kill_peers(service, duration_s)
    after = held_at_rest(service, before)
    seen = f"{done.total():,} connections killed in {len(done)} ways: held before {before}, after {after}"
    return seen, [*after.left(before), *complaints(service)]


def check_killing_injected(
    service: Service, upstream: ObedientUpstream, duration_s: float
) -> tuple[str, list[str]]:
    """Ends upstream and service: the one so that no connection to it may be kept, the other to see that
    nothing is busy, which it would wait for."""
    before, done = held(service), Killing()
    kill_injected(service, duration_s / 4, done, seed=1)
    quarter = proc_figures.rss_bytes(service.pid)
    kill_injected(service, duration_s * 3 / 4, done, seed=2)
    growth = Growth(done.requests.total(), quarter, proc_figures.rss_bytes(service.pid))
    upstream.stop()
    after = held_at_rest(service, before, kept_pipe_ends=0)
    faults = [
        *(*shown(done.faults), *shown(upstream.faults), *done.unanswered(), *growth.faults()),
        *(*after.left(before, kept_pipe_ends=0), *complaints(service), *unpaired(service)),
    ]
    if service.terminate_and_time() >= _DRAIN_S:
        faults.append(f"at its end it waited {_DRAIN_S:g} s for somebody")
    return f"{done}; {growth}; held before {before}, after {after}", faults


@contextmanager
def chaotic_service(*flags: str) -> Iterator[tuple[Service, ObedientUpstream, Path]]:
    """One that tunnels and injects, its upstream, and the settings file that it reads again and again."""
    with tempfile.TemporaryDirectory(prefix="eg-settings-") as folder:
        settings = Path(folder, "egress.toml")
        write_settings(settings, "first.test")
        named = ("--allow", "127.0.0.1:*", "--config", str(settings))
        with injecting_service(*named, *flags) as (service, upstream):
            yield service, upstream, settings


def run(chaos_s: float) -> Report:
    lines: list[str] = []

    def note(seen: str, faults: list[str]) -> None:
        lines.extend([seen, *(f"{WRONG}{fault}" for fault in faults)])

    with endured_service() as service:
        note(*check_transfer(service, LONG_BYTES))
        note(*check_memory(service, LONG_CONNECTIONS))
        note(*check_killing(service, LONG_KILLING_S))
    for tls in (False, True):
        with injecting_service(tls=tls) as (service, upstream):
            note(*check_killing_injected(service, upstream, LONG_KILLING_S))
    for relay, share in (("epoll", 0.8), ("loop", 0.2)):
        with chaotic_service("--relay", relay) as (service, upstream, settings):
            note(*check_chaos(service, upstream, settings, chaos_s * share))
    text = "\n".join(lines)
    if WRONG in text:
        raise SystemExit(text)
    return Report(f"{text}\nall counts hold", {"seen": lines})
