"""Where the code of this program comes from besides its own tree: a file planted there runs with the next
start, outside of every sandbox.

Names the folders; roots.py refuses roots that are one, hold one or lie in one. Next: roots.py.
"""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from egress_proxy.sandbox.roots import Guarded, links_to


@dataclass(frozen=True, slots=True)
class _Searched:
    """What a variable has ``who`` load. ``separators``: characters, any of which ends an entry of its list.

    ``empty_is_here``: an empty entry is the working folder. ``bare_is_elsewhere``: an entry without a slash
    is looked for in folders that something else names."""

    who: str
    separators: str = ""
    empty_is_here: bool = False
    bare_is_elsewhere: bool = False


# Python's of python(1), the loader's of ld.so(8), iconv's of iconv(1), OpenSSL's of openssl-env(7).
_SEARCHED = {
    "PYTHONPATH": _Searched("Python", ":", empty_is_here=True),
    "PYTHONHOME": _Searched("Python", ":"),
    "PYTHONUSERBASE": _Searched("Python"),
    "PYTHONPYCACHEPREFIX": _Searched("Python"),
    "LD_LIBRARY_PATH": _Searched("the loader", ":;", empty_is_here=True),
    "LD_PRELOAD": _Searched("the loader", ": ", bare_is_elsewhere=True),
    "LD_AUDIT": _Searched("the loader", ":", bare_is_elsewhere=True),
    "GCONV_PATH": _Searched("iconv", ":"),
    "OPENSSL_CONF": _Searched("OpenSSL"),
    "OPENSSL_CONF_INCLUDE": _Searched("OpenSSL"),
    "OPENSSL_ENGINES": _Searched("OpenSSL"),
    "OPENSSL_MODULES": _Searched("OpenSSL"),
}
_POINTER_LIMIT_BYTES = 65_536


def started_from(environ: Mapping[str, str]) -> Iterator[Guarded]:
    """A variable that is set and empty says nothing to any of them."""
    for variable, searched in _SEARCHED.items():
        for entry in _entries(environ.get(variable, ""), searched):
            yield from _guarded(entry, f"{variable} has {searched.who} load code from it")
    for folder in dict.fromkeys(path for path in sys.path if os.path.basename(path).endswith("-packages")):
        yield from _guarded(folder, "Python loads code from it")
        yield from _pointed_to(folder)


def _entries(value: str, searched: _Searched) -> Iterator[str]:
    if not value:
        return
    for entry in re.split(f"[{searched.separators}]", value) if searched.separators else [value]:
        if "/" in entry or (entry and not searched.bare_is_elsewhere):
            yield entry
        elif not entry and searched.empty_is_here:
            yield os.curdir


def _guarded(path: str, why: str) -> Iterator[Guarded]:
    """Where it lies, and where a link on the way to it does, since another one could be put there."""
    absolute = os.path.abspath(path)
    what = "the file" if os.path.isfile(absolute) else "the folder"
    yield Guarded(absolute, what, whole=True, why=why)
    for link in links_to(absolute):
        yield Guarded(
            os.path.dirname(link),
            "the folder",
            why=f"its link {os.path.basename(link)!r} could be replaced: {why}",
        )


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
                yield from _guarded(path, f"{name} has Python load code from it")
