"""Measure something and print it: python -m tests.benchmarks [NAME] [--json FILE] [options of that one]

Without a name it is the network one.

A benchmark is a module with ``run`` (report.py says what it returns), named in BENCHMARKS below and
imported only when it is asked for, so that what one of them needs is no need of the others.
"""

import argparse
import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from tests.benchmarks.report import Benchmark

BENCHMARKS = {
    "classifier": "tests.benchmarks.classifier.benchmark",
    "network": "tests.benchmarks.network.benchmark",
    "sandbox": "tests.benchmarks.sandbox.benchmark",
}
USUAL = "network"


def main(argv: Sequence[str]) -> None:
    named = argv[:1] and not argv[0].startswith("-")
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", add_help=False)
    parser.add_argument("name", choices=sorted(BENCHMARKS))
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers to FILE")
    options, rest = parser.parse_known_args(argv if named else [USUAL, *argv])
    benchmark = imported(BENCHMARKS[options.name])
    report = benchmark.run(rest)
    print(report.text)
    if options.json:
        options.json.write_text(json.dumps(report.numbers, indent=2) + "\n", encoding="utf-8")


def imported(name: str) -> Benchmark:
    """Ends the program with what to install where something is missing."""
    try:
        return cast(Benchmark, importlib.import_module(name))
    except ModuleNotFoundError as missing:
        sys.exit(
            f"error: {missing.name} is not installed here. sh tests/run.sh makes an environment with what "
            f"tests and benchmarks need; then: .venv-test/bin/python -m tests.benchmarks. Or add it to this "
            f"one: {sys.executable} -m pip install '.[test]'"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
