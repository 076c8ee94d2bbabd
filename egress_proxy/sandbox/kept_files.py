"""What steers the next run is never writable by this one: settings and their folder, audit log, secret files.

Looks at the file system and changes nothing. Next: terrain.py (has them read-only under bwrap), choose.py
(asks before a rung is used), cli/own_files.py (which files they are).
"""

import os
import stat

from egress_proxy.sandbox.real_path import real_path
from egress_proxy.sandbox.roots import is_in, links_to
from egress_proxy.sandbox.spec import Kept, KeptRefused, SandboxSpec, ThroughProxy


def kept_of(spec: SandboxSpec) -> tuple[Kept, ...]:
    """With what the proxy has named."""
    if not isinstance(spec.egress, ThroughProxy) or spec.egress.own is None:
        return spec.kept
    own = spec.egress.own
    return (*spec.kept, *(Kept(path, "a file of the proxy's own") for path in (*own.kept, *own.secret)))


def check_kept(spec: SandboxSpec, *, can_keep: bool) -> None:
    """``can_keep``: whether the rung can have a file in a root that is read-only. Raises KeptRefused."""
    for kept in kept_of(spec):
        reason = _danger(kept.path, spec.roots, can_keep)
        if reason:
            root = next((root for root in spec.roots if is_in(real_path(kept.path), [root])), "")
            where = f"writable root {root!r}" if root else "a writable root"
            what = f"{kept.what} {kept.path!r}, {reason}"
            raise KeptRefused(f"{where} would let the command change {what}; move it out of there")


def _danger(path: str, roots: tuple[str, ...], can_keep: bool) -> str:
    for link in links_to(path):
        if is_in(os.path.dirname(link), roots):
            return f"which the link {link!r} leads to, and that could be replaced"
    real = real_path(path)
    if not is_in(real, roots):
        return ""
    if not can_keep:
        return "which the next run obeys, and this rung (landlock) cannot keep a file in a root from that"
    try:
        status = os.stat(real)
    except OSError:
        return "which is not there yet, so that nothing can keep it"
    several = status.st_nlink > 1 and not stat.S_ISDIR(
        status.st_mode
    )  # a folder has a name in each of its own
    return "which has several names (hard links), so that it could be changed by another" if several else ""
