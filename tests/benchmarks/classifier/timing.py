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
    "a variable that doubles": _repeated("x=$x$x;"),
    "a file that grows": lambda size: "echo x > f;" + _repeated("cat f f f > g; cat g g > f;")(size - 11),
    "nested defaults": _nested("${x:-", "y", "}"),
    "nested loops": _nested("for i in a b c; do ", "x=$i; ", "done; "),
    "many variables": lambda size: 'echo "' + _repeated("$a ")(size - 7) + '"',
    "many here-documents": _numbered("cat <<E{0}\n$x\nE{0}\n"),
    "here-documents in one line": lambda size: "cat " + _repeated("<<E ")(size - 4),
    "separators": lambda size: "IFS=" + "x" * (size // 2) + ";" + _repeated("$a ")(size // 2 - 5),
    "redirections": _numbered(">a{0} "),
    "negations": _repeated("! "),
    "functions that are called": lambda size: "f() { $1 x; };" + _numbered("f a{0};")(size - 14),
    "wrappers": _repeated("env "),
    "shells": _numbered("bash -c 'a{0} b';"),
    "a program of Python": lambda size: "python -c '" + _repeated('run("a",')(size - 12) + "'",
    "open strings": lambda size: "perl -e '" + _repeated('open(F,"')(size - 10) + "'",
    "a program of sed": lambda size: "sed '" + _repeated("s/a/b/;")(size - 6) + "'",
    "statements": lambda size: 'psql -c "' + _repeated("drop /* ' -- ")(size - 10) + '"',
    "many commands of find": lambda size: "find a b " + _repeated("-exec x {} + ")(size - 9),
    "arithmetic": _repeated("$((a) ;b) "),
    "cases": _numbered("case $x in {0}) a;; esac\n"),
    "comments": _repeated("# rm -rf /\n"),
    "zeros": _repeated("a\0 "),
    "beyond ASCII": _repeated("\u65e5 "),
    "broken text": _repeated('>[-m-)3"'),
    "never closed": _repeated("$(for & =x "),
    "digits": lambda size: "1" * (size - 1) + "x",
    "words and targets": _repeated("/**/$x<select ?"),
    "programs": _repeated("node -e 'fs.rmSync(\"a\")' "),
    "loops of a program": lambda size: "python -c '" + _repeated('run(r) in ["a","b"] ')(size - 12) + "'",
}
WINDOWS_SHAPES: Mapping[str, Callable[[int], str]] = {
    "commands": _numbered("Remove-Item a{0} -Recurse;"),
    "one long command": lambda size: "gci " + _repeated("a ")(size - 4),
    "shells in shells": _repeated("powershell -c "),
    "loops": _repeated("forfiles /c "),
    "expressions": _repeated("iex x "),
    "quotes": _repeated("\"'"),
    "carets": _repeated("d^e^l "),
    "switches": lambda size: "rd " + _repeated("/s ")(size - 3),
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
