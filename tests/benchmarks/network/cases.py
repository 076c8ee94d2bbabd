"""What is measured, A to F: each case is one or more runs of the load generator against one running proxy.

A set-up, B bulk, C round trips, D idle tunnels, E injected requests and event streams, F a round trip beside
downloads. CPU is the proxy's own and the main figure: times at one in flight are mostly the price of waking
the other core. Next: load.py (how it is run), samples.py (what comes out).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tests.benchmarks.network import proc_tree
from tests.benchmarks.network.load import Answer, Load
from tests.benchmarks.network.place import ADDRESS, Place

Figures = Mapping[str, float]
IDLE_TUNNELS = (1000, 5000)
DOWNLOADS = 32
STREAMS = (1, 32)
EVENTS = 200  # of each stream, as loadgen.c asks for
# More in one run, and the ports that wait in TIME_WAIT run out.
_MOST_CONNECTS = 3000
_SETTLE_S = 0.3  # after opening many: timers and the allocator come to rest


@dataclass(frozen=True, slots=True)
class Run:
    """One running proxy under test. ``form``: how its clients write injected requests."""

    load: Load
    place: Place
    seconds: float
    form: str


def _per_operation(answer: Answer) -> Figures:
    """A slow peer may get nothing done in a short part: then there is no figure, which is not a nought."""
    done = answer["ops"]
    if not done:
        return {"errors": answer["errs"]}
    return {
        "cpu_us": answer["cpu_s"] / done * 1e6,
        "per_s": done / answer["secs"],
        "p50_us": answer["p50_us"],
        "p99_us": answer["p99_us"],
        "errors": answer["errs"],
    }


def set_up(run: Run) -> Iterator[tuple[str, Figures]]:
    """A: connect, CONNECT, one byte there and back, close. The third with a ClientHello as first flight."""
    for case, count, form in (("A1", 1, "-"), ("A64", 64, "-"), ("A64tls", 64, str(run.place.hello))):
        answer = run.load.run("connect", count, 3 * run.seconds, form=form, most=_MOST_CONNECTS)
        yield case, _per_operation(answer)


def bulk(run: Run) -> Iterator[tuple[str, Figures]]:
    """B: one or sixteen tunnels, one way at a time, as fast as it goes."""
    for way in ("down", "up"):
        for count in (1, 16):
            answer = run.load.run(way, count, run.seconds)
            gigabytes = answer["bytes"] / 1e9
            figures = {
                "cpu_s_per_gb": answer["cpu_s"] / gigabytes,
                "mb_per_s": 1e3 * gigabytes / answer["secs"],
            }
            yield f"B{way}{count}", {**figures, "errors": answer["errs"]}


def round_trips(run: Run) -> Iterator[tuple[str, Figures]]:
    """C: 100 bytes each way, one outstanding in each tunnel, as tokens of a model come."""
    for count in (1, 64):
        yield f"C{count}", _per_operation(run.load.run("ping", count, run.seconds))


def idle(run: Run) -> Iterator[tuple[str, Figures]]:
    """D: memory of each open tunnel that carries nothing, and new CONNECTs while they are open."""
    assert run.load.pid is not None
    pid = run.load.pid
    run.load.run("connect", 8, 1.0, most=100)
    before = proc_tree.memory_kib(pid)
    for count in IDLE_TUNNELS:
        figures: dict[str, float] = {}

        def measure(count: int = count, figures: dict[str, float] = figures) -> None:
            time.sleep(_SETTLE_S)
            figures["kib"] = (proc_tree.memory_kib(pid) - before) / count
            figures["start_mib"] = before / 1024
            figures |= _per_operation(run.load.run("connect", 1, 2.0, most=300))

        opened = run.load.run("idle", count, 0, when_open=measure)
        yield f"D{count}", {**figures, "errors": count - opened["ops"]}


def injected(run: Run) -> Iterator[tuple[str, Figures]]:
    """E: a POST of 1,024 bytes and an answer of 1,024, over TLS, with the credential added; event streams."""
    run.load.run("http", 2, run.seconds / 2, target=ADDRESS, form=run.form)
    for count in (1, 16):
        yield (
            f"E{count}",
            _per_operation(run.load.run("http", count, run.seconds, target=ADDRESS, form=run.form)),
        )
    for count in STREAMS:
        answer = run.load.run("sse", count, 0, target=ADDRESS, form=run.form)
        yield (
            f"Estream{count}",
            {
                "cpu_us": answer["cpu_s"] / max(answer["events"], 1) * 1e6,
                "p50_us": answer["p50_us"],
                "p99_us": answer["p99_us"],
                "held": answer["late"],
                "missing": count * EVENTS - answer["events"],
                "errors": answer["errs"],
            },
        )


def beside_downloads(run: Run) -> Iterator[tuple[str, Figures]]:
    """F: 100 bytes there and back in one tunnel, while 32 others download as fast as it goes."""
    taken: Answer = {}

    def measure() -> None:
        taken.update(run.load.run("ping", 1, 2 * run.seconds))

    run.load.run("down", DOWNLOADS, 2 * run.seconds + 0.5, meanwhile=measure)
    yield "F32", {"p50_ms": taken["p50_us"] / 1e3, "p99_ms": taken["p99_us"] / 1e3, "errors": taken["errs"]}


Case = Callable[[Run], Iterator[tuple[str, Figures]]]
TUNNEL_CASES: Mapping[str, Case] = {
    "A": set_up,
    "B": bulk,
    "C": round_trips,
    "F": beside_downloads,
    "D": idle,  # last: what it opened is not given back to the system
}
INJECTION_CASES: Mapping[str, Case] = {"E": injected}
NAMES = tuple(sorted((*TUNNEL_CASES, *INJECTION_CASES)))
