"""A moment as every log of ours writes it: UTC, to the millisecond, 2026-01-31T12:00:00.123+00:00.

Pure: whoever calls has asked a clock. Next: proxy/audit.py, proxy/recorder.py, logs.py.
"""

import functools
from datetime import UTC, datetime


def timestamp(now: float) -> str:
    """``now`` is seconds since the epoch."""
    seconds, microseconds = divmod(round(now * 1_000_000), 1_000_000)
    return f"{_second(seconds)}.{microseconds // 1_000:03d}+00:00"


@functools.lru_cache(maxsize=1)
def _second(seconds: int) -> str:
    # Kept, since a busy log has thousands of lines a second, and this was a tenth of an injected request.
    return datetime.fromtimestamp(seconds, UTC).isoformat().removesuffix("+00:00")
