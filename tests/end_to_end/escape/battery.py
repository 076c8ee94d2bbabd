"""All attempts and controls: loading this registers them.

Next: attempts.py (ATTEMPTS, CONTROLS), child.py (runs one), bench.py (runs all).
"""

from tests.end_to_end.escape import (
    controls,
    descriptors,
    families,
    files,
    kernel,
    lifetime,
    masked,
    metadata,
    mounts,
    network,
    persistence,
    processes,
    rings,
    runner,
    sockets,
)
from tests.end_to_end.escape.attempts import ATTEMPTS, CONTROLS, Attempt

__all__ = ["BATTERY", "PARTS"]

PARTS = (
    controls, files, metadata, mounts, persistence, masked, processes, runner, kernel, network, families,
    rings, sockets, descriptors, lifetime,
)  # fmt: skip

BATTERY: dict[str, Attempt] = {**CONTROLS, **ATTEMPTS}
