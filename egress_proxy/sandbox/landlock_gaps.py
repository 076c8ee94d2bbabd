"""What the Landlock rung does not hold, for one ABI and one egress: the truth of its columns of the table.

Pure. A reason says what is missing, before the colon, and what is open for it, behind. Next: landlock.py
(the rules), syscall_rules.py (what the filter adds), choose.py (weighs the gaps).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from egress_proxy.sandbox.spec import (
    Dimension,
    Egress,
    Enforcement,
    Gap,
    NoNetwork,
    OpenNetwork,
    PortsOnly,
    ThroughProxy,
)

_TRUNCATE, _TCP, _SCOPES, _UNIX, _UDP = 3, 4, 6, 9, 10  # the first ABI with it, see landlock.py


@dataclass(frozen=True, slots=True)
class Rung:
    """What there is: the kernel's ABI, the seccomp filter, the supervisor (which needs the filter)."""

    abi: int
    filtered: bool = True
    supervised: bool = True


def gaps(rung: Rung, egress: Egress, *, masks_in_roots: bool = False) -> tuple[Gap, ...]:
    """Every dimension below full. ``masks_in_roots``: a path that should be masked lies inside a root."""
    return (*_files(rung, masks_in_roots), *_network(rung, egress), *_processes(rung))


def _gap(dimension: Dimension, reason: str, value: Enforcement = Enforcement.PARTIAL) -> Gap:
    return Gap(dimension, value, reason)


def _files(rung: Rung, masks_in_roots: bool) -> Iterator[Gap]:
    if rung.abi < _TRUNCATE:
        yield _gap(Dimension.WRITES, "landlock.abi<3:truncate")
    yield _gap(Dimension.METADATA, "landlock:metadata")
    yield _gap(Dimension.PROTECTED, "landlock:names-in-roots", Enforcement.NONE)
    if masks_in_roots:
        yield _gap(Dimension.SECRETS, "landlock:masks-in-roots")


def _network(rung: Rung, egress: Egress) -> Iterator[Gap]:
    match egress:
        case OpenNetwork():
            yield _gap(Dimension.EGRESS, "egress.open:every-host")
            yield _gap(Dimension.INBOUND, "egress.open:listen")
            yield _gap(Dimension.CONTROL, "egress.open:control-port")
            return
        case PortsOnly():
            yield _gap(Dimension.EGRESS, "egress.ports:any-host-on-a-listed-port")
            if rung.abi < _TCP:
                yield _gap(Dimension.EGRESS, "landlock.abi<4:tcp")
                yield _gap(Dimension.CONTROL, "landlock.abi<4:tcp")
        case ThroughProxy():
            if not rung.supervised:
                yield _gap(Dimension.EGRESS, "landlock.unsupervised:hosts")
                yield _gap(Dimension.IDENTITY, "landlock.unsupervised:identity")
        case NoNetwork():
            pass
    if not rung.filtered:
        yield from _unfiltered_network(rung.abi)


def _unfiltered_network(abi: int) -> Iterator[Gap]:
    if abi < _TCP:
        yield _gap(Dimension.EGRESS, "landlock.abi<4:tcp")
    if abi < _UDP:
        yield _gap(Dimension.EGRESS, "landlock.abi<10:udp")
    # Fast open, MPTCP, raw and vsock, at every ABI.
    yield _gap(Dimension.EGRESS, "seccomp.missing:sockets")
    yield _gap(Dimension.CONTROL, "seccomp.missing:sockets")
    yield _gap(Dimension.INBOUND, "seccomp.missing:listen")


def _processes(rung: Rung) -> Iterator[Gap]:
    if rung.abi < _SCOPES:
        yield _gap(Dimension.SIGNALS, "landlock.abi<6:signals")
    yield _gap(Dimension.VISIBILITY, "landlock:proc")
    if not rung.supervised:
        yield _gap(Dimension.LIFETIME, "landlock.unsupervised:daemons")
    if rung.filtered:
        return
    yield _gap(Dimension.IPC, "seccomp.missing:system-v")
    if rung.abi < _SCOPES:
        yield _gap(Dimension.IPC, "landlock.abi<6:abstract-sockets")
    if rung.abi < _UNIX:
        yield _gap(Dimension.IPC, "landlock.abi<9:socket-files")
    yield _gap(Dimension.LIMITS, "seccomp.missing:limits")
    yield _gap(Dimension.TERMINAL, "seccomp.missing:terminal")
