"""A fault of ours, as an event: the exception's type and place, never its text, which may quote anything.

Next: listener.py, arrivals.py and tunnel.py, where faults are caught and end one connection.
"""

import traceback
from pathlib import Path

from egress_proxy.core.events import Faulted


def fault_event(request_id: str, error: BaseException) -> Faulted:
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return Faulted(request_id, type(error).__name__, where)
