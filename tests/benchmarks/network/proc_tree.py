"""CPU and memory of a process and all below it, from /proc, and who owns a listening socket. Linux only.

Measures by reading and changes nothing. Next: proxies.py (whose processes these are).
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_LISTEN = "0A"


def _stat_fields(pid: int) -> list[str]:
    """From the state on: a program's name may hold blanks and parentheses (proc(5))."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def family(root: int) -> list[int]:
    """The live processes: ``root`` and all that descend from it, parents first."""
    children: dict[int, list[int]] = defaultdict(list)
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            children[int(_stat_fields(int(name))[1])].append(int(name))
    found = [root]
    for pid in found:
        found += children[pid]
    return found


def cpu_s(root: int) -> float:
    """Processor time of the family so far, that of threads and children which have ended included."""
    total = 0.0
    for pid in family(root):
        with suppress(OSError):
            fields = _stat_fields(pid)
            total += (int(fields[13]) + int(fields[14])) / _TICKS_PER_S  # children that were waited for
            # The process's own clock, as clock_getcpuclockid(3) makes its number: the sum that /proc/PID/stat
            # shows, without being cut to ticks of 10 ms.
            total += time.clock_gettime_ns((~pid << 3) | 2) / 1e9
    return total


def memory_kib(root: int) -> float:
    """Proportional set size of the family; where the kernel does not tell us, the resident one."""
    return sum(map(_memory_kib, family(root)))


def _memory_kib(pid: int) -> float:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return float(line.split()[1])
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES / 1024
    return 0.0


def listens(pids: Iterable[int], port: int) -> bool:
    """Whether one of these processes holds a listening TCP socket on that port."""
    inodes = set(_listening_inodes(port))
    return any(inodes & set(_descriptors(pid)) for pid in pids)


def _listening_inodes(port: int) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                yield f"socket:[{fields[9]}]"


def _descriptors(pid: int) -> Iterator[str]:
    with suppress(OSError):
        for number in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                yield os.readlink(f"/proc/{pid}/fd/{number}")
