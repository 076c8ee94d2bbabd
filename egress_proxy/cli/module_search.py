"""The warning for `python -m egress_proxy`, which looks for modules in the working folder before all others.

Says it and goes on: existing hosts start it so. `egress-proxy` does not search there. Next: main.py (asks).
"""

import os
import sys
from collections.abc import Iterable, Iterator

from egress_proxy.cli.output import say

_ADVICE = "use `egress-proxy`, or python -P -m"
_SUFFIXES = (".py", ".so", ".pyc")  # what an import takes for a module, whatever stands before it
_NAMED_LIMIT = 3


def warn_of_shadows() -> None:
    """Whatever the verb: for names in the working folder that stand before a module of Python or of ours."""
    found = sorted(_shadows(os.curdir))
    if found:
        more = f" and {len(found) - _NAMED_LIMIT} more" if len(found) > _NAMED_LIMIT else ""
        names = ", ".join(found[:_NAMED_LIMIT])
        say(
            "warning: python -m looks for modules in the working folder first,"
            f" and that holds {names}{more}: {_ADVICE} egress_proxy"
        )


def warn_of_writable_folder(roots: Iterable[str], module: str) -> None:
    """``roots``: those of a sandbox; what is started there next imports what the sandbox put there."""
    here = os.path.realpath(os.curdir)
    if any(os.path.commonpath((root, here)) == root for root in map(os.path.realpath, roots)):
        say(
            "warning: python -m looks for modules in the working folder first, and that is writable in the"
            f" sandbox: {_ADVICE} {module}"
        )


def _shadows(folder: str) -> Iterator[str]:
    try:
        entries = os.listdir(folder)
    except OSError:
        return  # then nothing is imported from it either
    own = [place for place in sys.path if os.path.isdir(place) and not os.path.samefile(place, folder)]
    for entry in entries:
        name = entry.partition(".")[0]
        is_module = entry.endswith(_SUFFIXES) or os.path.exists(os.path.join(folder, entry, "__init__.py"))
        if is_module and (name in sys.stdlib_module_names or any(_has(place, name) for place in own)):
            yield entry


def _has(place: str, name: str) -> bool:
    return any(os.path.exists(os.path.join(place, name + suffix)) for suffix in ("", ".py"))
