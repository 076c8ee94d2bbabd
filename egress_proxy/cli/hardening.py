"""What a process that holds secrets does first: no core dumps, no tracing, an environment without them.

The only user of os.environ: it is copied here for settings, and wiped here. Next: main.py (calls it
before anything else), planning.py (says which variables).
"""

import contextlib
import ctypes
import os
import resource
import sys
from collections.abc import Collection, Iterator, Mapping

from egress_proxy.cli.exit_codes import ExitCode, VerbFailed

_PR_SET_DUMPABLE = 4  # <linux/prctl.h>
# The kernel's own default for fs.nr_open. More gives nothing, and programs that close every possible
# descriptor by number take minutes where the limit is 2^30.
_DESCRIPTORS_LIMIT = 1 << 20
# How bin/egress-proxy hands on what it was loaded with itself, and has kept from us.
_STARTED_WITH = "EGRESS_STARTED_"


def environment_copy() -> Mapping[str, str]:
    """The environment as the user gave it; stays as it is when the real one is wiped. The loader's variables
    stand in it again under their own names: a root that they lead into has to be known for one."""
    copy = dict(os.environ)
    for name in [name for name in copy if name.startswith(_STARTED_WITH)]:
        copy[name.removeprefix(_STARTED_WITH)] = copy.pop(name)
    return copy


def harden_process() -> None:
    """Call before a secret is read. Raises VerbFailed where Linux lets others look in."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        # From now on only root may open our entries in /proc, attach a debugger, or take descriptors.
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
            reason = os.strerror(ctypes.get_errno())
            raise VerbFailed(ExitCode.FAILURE, f"the process cannot be made non-dumpable: {reason}")


def wipe_environment(names: Collection[str]) -> None:
    """Overwrite the values where the kernel put them, then unset the variables.

    unsetenv alone drops the pointer: the bytes would stay readable in /proc/PID/environ.
    """
    wanted = {os.fsencode(name) for name in names}
    for address in _entries():
        name, equals, value = ctypes.string_at(address).partition(b"=")
        if equals and name in wanted:
            ctypes.memset(address + len(name) + 1, 0, len(value))
    for variable in names:
        os.environ.pop(variable, None)


def raise_descriptor_limit() -> None:
    """For a service, with its thousands of tunnels. `run` does without: its command would inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = hard if hard != resource.RLIM_INFINITY else _DESCRIPTORS_LIMIT
    wanted = min(most, _DESCRIPTORS_LIMIT)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    # macOS takes no more than its own constant; then the old limit stays and the listener minds it.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _entries() -> Iterator[int]:
    """The addresses of the strings `NAME=value` of this process; a name may be there twice."""
    block = _environ_address()
    if block is None:
        return
    pointers = ctypes.cast(block, ctypes.POINTER(ctypes.c_void_p))
    index = 0
    while (address := pointers[index]) is not None:
        yield address
        index += 1


def _environ_address() -> int | None:
    libc = ctypes.CDLL(None)
    try:
        if sys.platform == "darwin":  # libraries there have no symbol for it (environ(7))
            libc._NSGetEnviron.restype = ctypes.c_void_p
            return ctypes.c_void_p.from_address(libc._NSGetEnviron()).value
        return ctypes.c_void_p.in_dll(libc, "environ").value
    except (AttributeError, ValueError):
        return None
