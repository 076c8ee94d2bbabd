"""Search for input that breaks a parser: python -m tests.fuzz TARGET [libFuzzer options]

Needs atheris, which is no dependency. Starts from seeds/TARGET; what it finds lands in the working folder.
The target `ways` is another search, without atheris and with options of its own: fuzz_ways.py.
"""

import importlib
import sys
from pathlib import Path
from types import ModuleType

from tests.fuzz import fuzz_ways

SEEDS = Path(__file__).with_name("seeds")


def instrumented_targets() -> tuple[ModuleType, ModuleType]:
    """atheris, and targets.py with the parsers that it imports instrumented."""
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["egress_proxy.core"]):
        from tests.fuzz import targets
    return atheris, targets


def main(argv: list[str]) -> None:
    if argv[1:2] == ["ways"]:
        fuzz_ways.main(argv[2:])
    atheris, targets = instrumented_targets()
    if len(argv) < 2 or argv[1] not in targets.TARGETS:
        sys.exit(f"error: name one of {', '.join(targets.TARGETS)}")
    target = targets.TARGETS[argv[1]]

    def once(data: bytes) -> None:
        target(data)  # atheris wants no result

    folders = [str(folder) for folder in sorted((SEEDS / argv[1]).iterdir())]
    atheris.Setup([argv[0], *argv[2:], *folders], once)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv)
