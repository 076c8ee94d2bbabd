"""How long the classifier takes on long lines of several shapes. Which is best or enough: no matter here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

SIZES = {"1 KB": 1_000, "10 KB": 10_000, "32 KB": 32_000, "100 KB": 100_000}
RUNS = 5
BUDGET_S = 2.0  # one shape in one size: a slow one is not run again and again


def _numbered(piece: str) -> Callable[[int], str]:
    """Pieces that differ, so that nothing can be judged once for all."""

    def make(size: int) -> str:
        width = len(piece.format(0))
        return "".join(piece.format(number) for number in range(size // width + 1))[:size]

    return make


def _repeated(piece: str) -> Callable[[int], str]:
    return lambda size: (piece * (size // len(piece) + 1))[:size]


def _nested(opening: str, inside: str, closing: str) -> Callable[[int], str]:
    def make(size: int) -> str:
        depth = (size - len(inside)) // (len(opening) + len(closing))
        return opening * depth + inside + closing * depth

    return make


SHAPES: Mapping[str, Callable[[int], str]] = {
    "one command again and again": _repeated("git status && "),
    "commands that differ": _numbered("cp src/{0}.py out/{0}.py && "),
    "one long word": _repeated("a"),
    "a here-document": lambda size: "cat > f <<'E'\n" + _repeated("rm -rf / line\n")(size - 20) + "\nE\n",
    "a quoted text": lambda size: f"git commit -m '{_repeated('sudo rm -rf / ')(size - 17)}'",
    "pipes": _repeated("cat x | tr a b | "),
    "nested subshells": _nested("(", "id", ")"),
    "nested substitutions": _nested("$(", "echo x", ")"),
    "assignments": _numbered("a{0}=$a{0}x; "),
    "braces": _repeated("{a,b}"),
    "open quotes": _repeated("\"'"),
    "backslashes": _repeated("\\"),
    "blanks": _repeated(" "),
    "new lines": _repeated("ls\n"),
}


def shortest_ms(call: Callable[[], object]) -> float:
    """The least of a few runs: what the others add is the machine's noise."""
    times: list[float] = []
    while not times or (len(times) < RUNS and sum(times) < BUDGET_S):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return min(times) * 1000


def measure(classify: Callable[[str], object]) -> Iterator[tuple[str, dict[str, float]]]:
    """Each shape with its milliseconds by size."""
    classify("ls")  # what is built at first use is no part of it
    for shape, make in SHAPES.items():
        lines = {name: make(size) for name, size in SIZES.items()}
        yield shape, {name: shortest_ms(lambda line=line: classify(line)) for name, line in lines.items()}  # type: ignore[misc]
