"""Figures of a running process from /proc (Linux): memory, descriptors, processor time.

They also work for a process that is not dumpable, where the kernel lets anyone see a figure at all.
service.py offers these for the service that it started.
"""

from __future__ import annotations

import os
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def rss_bytes(pid: int) -> int:
    """Resident memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES


def open_descriptors(pid: int) -> int:
    folder = f"/proc/{pid}/fd"
    try:
        return len(os.listdir(folder))
    except PermissionError:
        # Not dumpable, and we are not root. Since Linux 6.2 the folder's size is the number.
        size = os.stat(folder).st_size
        if size == 0:
            raise
        return size


def cpu_s(pid: int) -> float:
    """User and system time so far, of all threads, in steps of the kernel's clock tick."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S  # proc(5): utime, stime
