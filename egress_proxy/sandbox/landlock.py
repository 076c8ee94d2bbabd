"""Landlock rulesets, as data: what a confined command may read, write and connect to, cut to an ABI.

Applies nothing, that is launcher.py's; asks the kernel one question, its ABI. Numbers: <linux/landlock.h>.
Next: readable.py (reading all but some paths), landlock_gaps.py (what an ABI leaves open).
"""

import ctypes
import enum
import functools
import operator
import sys
from collections.abc import Iterable, Mapping
from typing import TypeVar

from egress_proxy.sandbox.plan import LandlockRules, PathRule, PortRule
from egress_proxy.sandbox.readable import Kind, readable_except
from egress_proxy.sandbox.spec import Egress, NoNetwork, OpenNetwork, PortsOnly, ThroughProxy

Bits = TypeVar("Bits", bound=enum.IntFlag)

NEWEST_ABI = 10
"""The newest that is known here. A kernel that has more is used as this one: it holds no less."""


class Files(enum.IntFlag):
    """LANDLOCK_ACCESS_FS_…"""

    EXECUTE = 1 << 0
    WRITE_FILE = 1 << 1
    READ_FILE = 1 << 2
    READ_DIR = 1 << 3
    REMOVE_DIR = 1 << 4
    REMOVE_FILE = 1 << 5
    MAKE_CHAR = 1 << 6
    MAKE_DIR = 1 << 7
    MAKE_REG = 1 << 8
    MAKE_SOCK = 1 << 9
    MAKE_FIFO = 1 << 10
    MAKE_BLOCK = 1 << 11
    MAKE_SYM = 1 << 12
    REFER = 1 << 13
    TRUNCATE = 1 << 14
    IOCTL_DEV = 1 << 15
    RESOLVE_UNIX = 1 << 16


class Net(enum.IntFlag):
    """LANDLOCK_ACCESS_NET_…"""

    BIND_TCP = 1 << 0
    CONNECT_TCP = 1 << 1
    BIND_UDP = 1 << 2
    CONNECT_SEND_UDP = 1 << 3


class Scope(enum.IntFlag):
    """LANDLOCK_SCOPE_…: what only reaches processes of the same sandbox."""

    ABSTRACT_UNIX_SOCKET = 1 << 0
    SIGNAL = 1 << 1


# Which ABI brought what; a ruleset with a bit from later is refused by the kernel.
_FIRST_FILES = Files(Files.REFER - 1)
_NEW_FILES = {2: Files.REFER, 3: Files.TRUNCATE, 5: Files.IOCTL_DEV, 9: Files.RESOLVE_UNIX}
_NEW_NET = {4: Net.BIND_TCP | Net.CONNECT_TCP, 10: Net.BIND_UDP | Net.CONNECT_SEND_UDP}
_NEW_SCOPES = {6: Scope.ABSTRACT_UNIX_SOCKET | Scope.SIGNAL}
# struct landlock_ruleset_attr grew by one word in each of these.
_NEW_ATTRIBUTES = (4, 6)
_WORD_BYTES = 8

_READ_FILE = Files.EXECUTE | Files.READ_FILE
_READ = _READ_FILE | Files.READ_DIR
# Everything but device files, other devices' ioctls, and socket files made by others.
_WRITE = Files(Files.RESOLVE_UNIX * 2 - 1) & ~(
    Files.MAKE_CHAR | Files.MAKE_BLOCK | Files.IOCTL_DEV | Files.RESOLVE_UNIX
)
_READABLE = {Kind.TREE: _READ, Kind.FILE: _READ_FILE, Kind.NAMES: Files.READ_DIR}
# A rule on what is no folder may hold only these, else EINVAL.
_DEVICE = Files.READ_FILE | Files.WRITE_FILE | Files.TRUNCATE | Files.IOCTL_DEV

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
# Makes a new terminal, and the one that a process has: without ours, it is in a session of its own.
_TERMINAL_DEVICES = ("/dev/ptmx", "/dev/tty")
# bwrap's own: its terminals are no one else's, and so are these folders.
_OWN_DEVICES = ("/dev/tty", "/dev/ptmx", "/dev/console", "/dev/pts")
_OWN_FOLDERS = ("/tmp", "/var/tmp", "/run", "/dev/shm")  # noqa: S108 - fresh ones of the sandbox

_CREATE_RULESET = 444  # on every machine
_GIVE_VERSION = 1 << 0  # LANDLOCK_CREATE_RULESET_VERSION


def abi() -> int:
    """The kernel's, capped at what is known here; 0: it has none, or is told not to give it.

    Asked by the call itself: the list of security modules is not there in every container.
    """
    if sys.platform != "linux":
        return 0
    version = int(ctypes.CDLL(None).syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _GIVE_VERSION))
    return min(max(version, 0), NEWEST_ABI)


def inside_namespace(
    abi: int, roots: Iterable[str], ports: Iterable[int] | None = None
) -> LandlockRules | None:
    """The ruleset inside bwrap, whose mounts and namespaces hold the most; None for ABI 0.

    The paths are those inside. ``ports``: the TCP ports that are left where the network is the host's; None:
    the network is not Landlock's matter. No grant to write in /proc, where root owns the kernel's settings.
    """
    if not abi:
        return None
    grants = [
        PathRule(_READ, "/"),
        *(PathRule(_READ | _WRITE, root) for root in roots),
        *(PathRule(_READ | _WRITE, folder, required=False) for folder in _OWN_FOLDERS),
        *(PathRule(_DEVICE, device, required=False) for device in (*_DEVICES, *_OWN_DEVICES)),
    ]
    return _cut(abi, grants, ports)


def ruleset(
    abi: int,
    roots: Iterable[str],
    private_tmp: str,
    egress: Egress,
    masks: Iterable[str] = (),
    terminal: str | None = None,
) -> LandlockRules:
    """The ruleset of the Landlock rung, on the host's own files and network, for ABI 1 and up.

    ``masks``: what cannot be read, but for masks inside a root (readable.masks_inside). ``terminal``: the
    command's own, by its path; other people's are in the same folder.
    """
    writable = [*roots, private_tmp]
    devices = (*_DEVICES, *_TERMINAL_DEVICES, *((terminal,) if terminal else ()))
    # A disk or the console's screen shows what masks hide, to whoever may open it: root may.
    hidden = (*masks, "/dev")
    grants = [
        *(PathRule(_READABLE[entry.kind], entry.path, False) for entry in readable_except(hidden, writable)),
        *(PathRule(_READ | _WRITE, root) for root in writable),
        *(PathRule(_DEVICE, device, required=False) for device in devices),
    ]
    return _cut(abi, grants, _ports(egress))


def _ports(egress: Egress) -> Iterable[int] | None:
    """With the proxy it is none: the supervisor connects, and it is outside of the command's rules."""
    match egress:
        case NoNetwork() | ThroughProxy():
            return ()
        case PortsOnly(ports):
            return ports
        case OpenNetwork():
            return None


def _cut(abi: int, grants: Iterable[PathRule], ports: Iterable[int] | None) -> LandlockRules:
    """Without the bits that this ABI does not know. Without TCP there are no rules for ports."""
    files = _known(abi, _NEW_FILES, _FIRST_FILES)
    net = Net(0) if ports is None else _known(abi, _NEW_NET, Net(0))
    connect = net & Net.CONNECT_TCP
    return LandlockRules(
        attribute_bytes=_WORD_BYTES * (1 + sum(first <= abi for first in _NEW_ATTRIBUTES)),
        handled_fs=int(files),
        handled_net=int(net),
        scoped=int(_known(abi, _NEW_SCOPES, Scope(0))),
        paths=tuple(PathRule(int(grant.access & files), grant.path, grant.required) for grant in grants),
        ports=tuple(PortRule(int(connect), port) for port in sorted(ports or ()) if connect),
    )


def _known(abi: int, new: Mapping[int, Bits], bits: Bits) -> Bits:
    return functools.reduce(operator.or_, (more for first, more in new.items() if first <= abi), bits)
