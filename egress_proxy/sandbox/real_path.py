"""Where a path really leads, also while somebody swaps what stands there, as a confined command may.

Looks at names only. Next: roots.py, protected.py, masks.py (who ask).
"""

import os

# Each loss of the race needs a swap between two system calls of ours.
_TRIES = 100


def real_path(path: str) -> str:
    """As os.path.realpath, which raises where a link is a folder by the time that it is read. Whoever keeps
    that up gets the path as it is written: what is done with it is compared again where it counts."""
    for _ in range(_TRIES):
        try:
            return os.path.realpath(path)
        except OSError:
            continue
    return os.path.abspath(path)
