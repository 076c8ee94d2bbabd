"""Search for input on which the ways differ: python -m tests.fuzz ways [--seconds N] [--seed N] [--token]

Needs nothing but the tests' own libraries. Prints the shortest input of each kind; a find becomes a seed.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import random
import time
from collections.abc import Iterable, Iterator, Sequence

from tests.fuzz.differences import difference, shortened
from tests.fuzz.request_inputs import drawn_input
from tests.fuzz.ways import Ways


def kind_of(ways: Ways, data: bytes) -> str | None:
    """None where all ways agree, and on what they may."""
    return difference(ways.play(data))


def found(ways: Ways, inputs: Iterable[bytes]) -> dict[str, bytes]:
    """One input for each kind of difference."""
    finds: dict[str, bytes] = {}
    for data in inputs:
        kind = kind_of(ways, data)
        if kind is not None:
            finds.setdefault(kind, data)
    return finds


def drawn_inputs(seed: int) -> Iterator[bytes]:
    rng = random.Random(seed)
    while True:
        yield drawn_input(rng)


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz ways")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to search (default: 60)")
    parser.add_argument("--seed", type=int, default=1, help="what the inputs are drawn from (default: 1)")
    parser.add_argument("--token", action="store_true", help="a proxy whose clients need a token")
    options = parser.parse_args(argv)
    until = time.monotonic() + options.seconds
    inputs = itertools.takewhile(lambda _: time.monotonic() < until, drawn_inputs(options.seed))
    with Ways(needs_token=options.token) as ways:
        finds = found(ways, inputs)
        for kind, data in finds.items():
            print(f"{shortened(data, functools.partial(kind_of, ways))!r}\n    {kind}")
    print(f"{len(finds)} kinds of difference")
    raise SystemExit(bool(finds))
