"""What a Seatbelt profile does not hold, for exactly one policy. Said, not enforced.

Beside what is listed, macOS says nothing of limits and priorities of other processes. Next: spec.py (what the
dimensions are), seatbelt.py (the profile).
"""

import re
from collections.abc import Iterator

from egress_proxy.sandbox.seatbelt import SeatbeltPolicy
from egress_proxy.sandbox.seatbelt_paths import is_at_or_below
from egress_proxy.sandbox.spec import Dimension, Enforcement, Gap

# Where the files of other programs of the same user are. A folder made below it is the command's own.
_SHARED = ("/private/tmp", "/private/var/tmp", "/private/var/folders")
_USER_FOLDERS = re.compile(r"/private/var/folders(/[^/]+){1,2}(/[TC0X])?")


def seatbelt_gaps(policy: SeatbeltPolicy) -> tuple[Gap, ...]:
    """Every dimension below full, with its reason; `spec.overall` makes the one word of it."""
    return (*_egress(policy), *_always(), *_conditional(policy))


def _egress(policy: SeatbeltPolicy) -> Iterator[Gap]:
    hosts = policy.hosts
    partial = Enforcement.PARTIAL
    if hosts is None:
        yield Gap(Dimension.EGRESS, partial, "seatbelt:open-egress")
    elif not all(endpoint.loopback for endpoint in hosts):
        yield Gap(Dimension.EGRESS, partial, "seatbelt:port-only")
    if policy.resolver:
        yield Gap(Dimension.EGRESS, partial, "seatbelt:resolver")
    if policy.trust:
        yield Gap(Dimension.EGRESS, partial, "seatbelt:certificate-fetches")
    if hosts is None or any(endpoint.ports is None for endpoint in hosts):
        yield Gap(Dimension.CONTROL, partial, "seatbelt:every-loopback-port")
    if hosts != ():
        # Every sandbox comes to the same port from the same address.
        yield Gap(Dimension.IDENTITY, Enforcement.NONE, "seatbelt:shared-port")


def _always() -> Iterator[Gap]:
    yield Gap(Dimension.IPC, Enforcement.PARTIAL, "seatbelt:mach-services")
    yield Gap(Dimension.VISIBILITY, Enforcement.PARTIAL, "seatbelt:process-table")
    yield Gap(Dimension.LIFETIME, Enforcement.PARTIAL, "seatbelt:process-group")


def _conditional(policy: SeatbeltPolicy) -> Iterator[Gap]:
    if any(map(_is_shared, policy.writable)):
        yield Gap(Dimension.TMP, Enforcement.PARTIAL, "seatbelt:shared-folder")
    if policy.interactive:
        yield Gap(Dimension.TERMINAL, Enforcement.PARTIAL, "seatbelt.interactive:ioctl")
    if not policy.env_files:
        value = Enforcement.PARTIAL if policy.masked else Enforcement.NONE
        yield Gap(Dimension.SECRETS, value, "seatbelt:unmasked")
    if policy.writable and not policy.protect:
        yield Gap(Dimension.PROTECTED, Enforcement.NONE, "seatbelt:unprotected")


def _is_shared(path: str) -> bool:
    """Whether a writable folder is a shared one or holds one."""
    return any(is_at_or_below(shared, path) for shared in _SHARED) or bool(_USER_FOLDERS.fullmatch(path))
