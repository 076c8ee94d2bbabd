"""Where the code of this program comes from besides its own tree: a file planted there runs with the next
start, outside of every sandbox.

Names the folders; roots.py refuses roots that are one, hold one or lie in one. Next: roots.py.
"""

import os
import sys
from collections.abc import Iterator, Mapping

from egress_proxy.sandbox.roots import Guarded

_SEARCHED = {"PYTHONPATH": "Python", "LD_LIBRARY_PATH": "the loader", "LD_PRELOAD": "the loader"}
_POINTER_LIMIT_BYTES = 65_536


def started_from(environ: Mapping[str, str]) -> Iterator[Guarded]:
    """An empty entry of a list is the working folder."""
    for variable, who in _SEARCHED.items():
        if variable not in environ:
            continue
        for entry in environ[variable].replace(";", ":").split(":"):
            if not entry and variable == "LD_PRELOAD":
                continue
            shown = f"{variable} has {who} load code from it"
            yield Guarded(os.path.abspath(entry or os.curdir), "the folder", whole=True, why=shown)
    for folder in dict.fromkeys(path for path in sys.path if os.path.basename(path).endswith("-packages")):
        yield Guarded(folder, "the folder", whole=True, why="Python loads code from it")
        yield from _pointed_to(folder)


def _pointed_to(folder: str) -> Iterator[Guarded]:
    """Folders that `.pth` files add, as site.py reads them; lines that are code lie in the folder itself."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".pth"))
    except OSError:
        return
    for name in names:
        try:
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as stream:
                lines = stream.read(_POINTER_LIMIT_BYTES).splitlines()
        except OSError:
            continue
        for line in filter(None, map(str.strip, lines)):
            path = os.path.join(folder, line)
            if not line.startswith(("#", "import ", "import\t")) and os.path.isdir(path):
                why = f"{name} has Python load code from it"
                yield Guarded(os.path.abspath(path), "the folder", whole=True, why=why)
