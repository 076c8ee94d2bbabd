"""The sandbox as executors know it: an object that rewrites a command, and says how far its promise holds.

Thin views of choose.py for hosts that can take a command line alone; whoever can pass descriptors uses
confinement.py. Next: choose.py (rungs), seatbelt.py (macOS), egress_choice.py (what a list means).
"""

import contextlib
import os
import shlex
import shutil
import sys
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from typing import Protocol

from egress_proxy.core.attach_place import default_path
from egress_proxy.sandbox import bwrap, landlock_rung, seatbelt
from egress_proxy.sandbox.bwrap_binary import find_bwrap
from egress_proxy.sandbox.choose import Chosen, choose
from egress_proxy.sandbox.confinement import portable_argv
from egress_proxy.sandbox.egress_choice import egress_of
from egress_proxy.sandbox.environment import child_environment, host_environment
from egress_proxy.sandbox.host_list import read_host_list
from egress_proxy.sandbox.roots import canonical_roots, homes
from egress_proxy.sandbox.seatbelt_gaps import seatbelt_gaps
from egress_proxy.sandbox.spec import (
    Egress,
    Enforcement,
    Gap,
    NoNetwork,
    OpenNetwork,
    SandboxSpec,
    SandboxUnavailable,
    overall,
)

ATTACH_VARIABLE = "EGRESS_ATTACH"
"""Names the attach socket of the proxy that executors look for."""


class SandboxBackend(Protocol):
    """``gaps`` names every dimension below full; ``enforcement`` is the one word."""

    name: str
    gaps: tuple[Gap, ...]

    @property
    def enforcement(self) -> Enforcement: ...

    def wrap_argv(self, argv: Sequence[str]) -> tuple[str, ...]:
        """A command line that runs ``argv`` confined."""

    def wrap_command(self, command: str, shell: str = "/bin/sh") -> str:
        """A shell command line that runs the line ``command`` confined."""


class _Backend:
    """What the three have in common. A missing root, or one that is refused, raises at construction."""

    name: str
    gaps: tuple[Gap, ...]

    @property
    def enforcement(self) -> Enforcement:
        return overall(self.gaps)

    def wrap_argv(self, argv: Sequence[str]) -> tuple[str, ...]:
        raise NotImplementedError

    def wrap_command(self, command: str, shell: str = "/bin/sh") -> str:
        return shlex.join(self.wrap_argv((shell, "-c", command)))


class _LinuxBackend(_Backend):
    def __init__(
        self,
        writable_roots: Sequence[str] = (),
        *,
        network: bool = False,
        allowed_hosts: Sequence[str] | None = None,
        masks: Sequence[str] = (),
        cwd: str | None = None,
    ) -> None:
        """``allowed_hosts``: None is what ``network`` says, any list closes egress but for its entries; the
        one entry `127.0.0.1:PORT` of a running proxy means that proxy. ``cwd``: None is where the rewritten
        command is started.

        Raises ValueError for a root or an entry, SandboxUnavailable where this rung cannot run.
        """
        environ = host_environment()
        self._search_path = environ.get("PATH", os.defpath)
        self._spec = SandboxSpec(
            canonical_roots(writable_roots, home=environ.get("HOME")),
            _egress(network, allowed_hosts, environ),
            cwd=cwd,
            homes=homes(environ.get("HOME")),
            masks=tuple(map(os.path.abspath, masks)),
        )
        self.gaps = self._chosen().gaps

    def _chosen(self) -> Chosen:
        """Anew for each command: what is protected in a root depends on what is there by then."""
        return choose(self._spec, self._search_path, backend=self.name, portable=True)

    def wrap_argv(self, argv: Sequence[str]) -> tuple[str, ...]:
        return portable_argv(self._chosen(), self._spec, argv, {}, argv[0])


class BwrapExecBackend(_LinuxBackend):
    """Namespaces and mounts by bwrap."""

    name = bwrap.NAME


class LandlockExecBackend(_LinuxBackend):
    """Where bwrap cannot run: files by Landlock, sockets by seccomp, connects by a supervisor."""

    name = landlock_rung.NAME


class SeatbeltExecBackend(_Backend):
    """sandbox-exec of macOS. It knows ports of this machine and no host names."""

    name = seatbelt.NAME

    def __init__(
        self,
        writable_roots: Sequence[str] = (),
        *,
        network: bool = False,
        allowed_hosts: Sequence[str] | None = None,
        masks: Sequence[str] = (),
    ) -> None:
        """As for the others. Raises ValueError. The command's temporary files have a folder of their own,
        as long as this object lives."""
        environ = host_environment()
        scratch = os.path.realpath(tempfile.mkdtemp(prefix="egress-scratch-"))
        weakref.finalize(self, shutil.rmtree, scratch, ignore_errors=True)
        policy = seatbelt.seatbelt_policy(
            writable_roots=canonical_roots(writable_roots, home=environ.get("HOME")),
            allowed_hosts=allowed_hosts,
            network=network or allowed_hosts is not None,
            scratch=[scratch],
            masks=[os.path.realpath(path) for path in masks],
            home=environ.get("HOME"),
        )
        self.gaps = seatbelt_gaps(policy)
        self._profile = seatbelt.profile_text(policy)
        self._variables = {**child_environment(environ, {}), "TMPDIR": scratch}

    def wrap_argv(self, argv: Sequence[str]) -> tuple[str, ...]:
        kept = (f"{name}={value}" for name, value in self._variables.items())
        return ("/usr/bin/env", "-i", *kept, *seatbelt.seatbelt_argv(self._profile, argv))


def _egress(network: bool, allowed_hosts: Sequence[str] | None, environ: Mapping[str, str]) -> Egress:
    if allowed_hosts is None:
        return OpenNetwork() if network else NoNetwork()
    return egress_of(read_host_list(allowed_hosts), environ.get(ATTACH_VARIABLE) or default_path(environ))


def select_exec_backend(
    writable_roots: Sequence[str] = (),
    *,
    network: bool = False,
    allowed_hosts: Sequence[str] | None = None,
    masks: Sequence[str] = (),
) -> SandboxBackend | None:
    """The strongest one that holds here; None where there is none, and then nothing may be run as confined.

    Raises ValueError for a root or an entry.
    """
    if sys.platform == "darwin":
        return SeatbeltExecBackend(writable_roots, network=network, allowed_hosts=allowed_hosts, masks=masks)
    for backend in (BwrapExecBackend, LandlockExecBackend):
        with contextlib.suppress(SandboxUnavailable):
            return backend(writable_roots, network=network, allowed_hosts=allowed_hosts, masks=masks)
    return None


def bwrap_path() -> str | None:
    """The bwrap that was seen to confine here, network included; asked once for the life of the process."""
    return find_bwrap(_search_path(), ()).path if _works(bwrap.NAME) else None


def landlock_available() -> bool:
    """Whether the Landlock rung was seen to confine here."""
    return _works(landlock_rung.NAME)


def _works(backend: str) -> bool:
    try:
        choose(SandboxSpec(()), _search_path(), backend=backend, portable=True)
    except SandboxUnavailable:
        return False
    return True


def _search_path() -> str:
    return host_environment().get("PATH", os.defpath)
