"""python -m tests.benchmarks [network]: ours beside the peers that are installed, A to F, interleaved.

The proxy has one core, the load the other. Peers are shuffled in each round, so that what else the machine
does falls on all of them; medians over the rounds are what counts. Next: cases.py, peers.py, goals.py.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.benchmarks.endurance import check
from tests.benchmarks.network import cases, peers
from tests.benchmarks.network.goals import outcomes
from tests.benchmarks.network.install import install_peers
from tests.benchmarks.network.load import Load, LoadFailed, running_upstream
from tests.benchmarks.network.machine import machine, sentence, versions
from tests.benchmarks.network.peers import NO_PROXY, OURS, Peer, Work
from tests.benchmarks.network.place import ADDRESS, HTTP_PORT, PROXY, TARGET, Place, cache_folder, make_place
from tests.benchmarks.network.proxies import ProxyUnusable, running_proxy
from tests.benchmarks.network.publish import PUBLISHED, README, numbers, section, with_section, write_figures
from tests.benchmarks.network.samples import Medians, Sample
from tests.benchmarks.network.tables import text
from tests.benchmarks.report import Report


def two_cores() -> tuple[int, int]:
    """One for the proxy, one for the load."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        raise SystemExit("error: the proxy and the load need a core each, and this machine gives us one")
    return allowed[0], allowed[1]


def chosen(everyone: Iterable[Peer], only: Sequence[str], letters: Sequence[str]) -> list[Peer]:
    """Ours and no proxy always; of the rest those that are installed, asked for and have a case."""
    wanted = {OURS, NO_PROXY, *only} if only else {peer.name for peer in everyone}
    return [
        peer for peer in everyone if peer.name in wanted and peer.is_installed() and cases_of(peer, letters)
    ]


def cases_of(peer: Peer, letters: Sequence[str]) -> list[cases.Case]:
    table = cases.TUNNEL_CASES if peer.work is Work.TUNNELS else cases.INJECTION_CASES
    return [
        case for letter, case in table.items() if letter in letters and not (letter == "D" and not peer.argv)
    ]


def measure(
    peer: Peer, place: Place, seconds: float, letters: Sequence[str]
) -> Iterator[tuple[str, cases.Figures]]:
    """Start it, give it a moment of work, then case after case."""
    proxy_core, load_core = two_cores()
    with ExitStack() as stack:
        if peer.argv:
            argv, env = peer.prepare(place)
            pid = stack.enter_context(running_proxy(peer.name, argv, env, proxy_core, place.folder))
            load = Load(PROXY, load_core, pid)
        elif peer.work is Work.TUNNELS:
            load = Load(f"direct:{TARGET}", load_core, None)
        else:
            load = Load(f"{ADDRESS}:{HTTP_PORT}", load_core, None)
        if peer.work is Work.TUNNELS:
            load.run("connect", 8, 1.0, most=200)
            load.run("ping", 4, 0.2)
        for case in cases_of(peer, letters):
            yield from case(cases.Run(load, place, seconds, peer.form))


def sampled(number: int, peer: Peer, place: Place, options: argparse.Namespace) -> Iterator[Sample]:
    """One peer in one round. One that fails is told about, and the others go on."""
    try:
        for case, figures in measure(peer, place, options.seconds, options.cases):
            if figures.get("errors"):
                tell(f"  {peer.name} {case}: {figures['errors']:.0f} errors")
            yield Sample(number, peer.name, case, figures)
    except (ProxyUnusable, LoadFailed) as problem:
        tell(f"  {peer.name}: {problem}")
        yield Sample(number, peer.name, "", {}, failed=str(problem))


def tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks network", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.7, help="of each timed part")
    parser.add_argument("--cases", type=names_of(cases.NAMES), default=list(cases.NAMES), metavar="A,B,…")
    known = sorted({peer.name for peer in peers.ALL} - {OURS, NO_PROXY})
    parser.add_argument("--only", type=names_of(known), default=[], metavar="PEERS", help=", ".join(known))
    parser.add_argument("--quick", action="store_true", help="one round of short parts: to see that it works")
    parser.add_argument("--install-peers", action="store_true", help="fetch those that are missing first")
    parser.add_argument(
        "--out", type=Path, default=cache_folder() / "last", help="folder of figures.json, .svg"
    )
    parser.add_argument("--publish", action="store_true", help="write them into the checkout, and the README")
    parser.add_argument(
        "--check", action="store_true", help="instead: endurance, asserting counts (endurance/)"
    )
    parser.add_argument(
        "--chaos",
        type=float,
        default=600.0,
        metavar="SECONDS",
        help="of --check: how long everything at once",
    )
    options = parser.parse_args(argv)
    if options.publish and (options.quick or options.only or set(options.cases) != set(cases.NAMES)):
        parser.error("--publish is for whole runs: not with --quick, --cases or --only")
    if options.quick:
        options.rounds, options.seconds = 1, 0.2
    return options


def names_of(known: Sequence[str]) -> Callable[[str], list[str]]:
    def parse_names(text: str) -> list[str]:
        names = text.split(",")
        unknown = sorted(set(names) - set(known))
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: choose from {', '.join(known)}")
        return names

    return parse_names


def measured(everyone: Sequence[Peer], options: argparse.Namespace) -> list[Sample]:
    """Every peer in every round, in another order each time."""
    samples: list[Sample] = []
    with tempfile.TemporaryDirectory(prefix="egb-") as name:
        place = make_place(Path(name))
        with running_upstream(place, two_cores()[1]):
            for number in range(1, options.rounds + 1):
                for peer in random.Random(number).sample(everyone, len(everyone)):
                    tell(f"round {number}: {peer.name}, {peer.work}")
                    samples += sampled(number, peer, place, options)
    return samples


def run(argv: Sequence[str]) -> Report:
    options = parse(argv)
    if options.check:
        return check.run(options.chaos)
    if options.install_peers:
        install_peers()
    everyone = chosen(peers.ALL, options.only, options.cases)
    names = list(dict.fromkeys(peer.name for peer in everyone))
    about = {
        **machine(),
        "rounds": options.rounds,
        "seconds": options.seconds,
        "versions": versions(names),
        "absent": sorted({peer.name for peer in peers.ALL} - set(names)),
    }
    samples = measured(everyone, options)
    reached = outcomes(Medians(samples))
    found = numbers(samples, reached, about)
    write_figures(PUBLISHED if options.publish else options.out, found, samples)
    if options.publish:
        README.write_text(with_section(README.read_text(), section(reached, about)))
    return Report(f"{text(samples, reached)}\n\n{sentence(about)}", found)
