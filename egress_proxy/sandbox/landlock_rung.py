"""The Landlock rung, for machines without user namespaces: files by Landlock, sockets by seccomp, and each
connect made by a supervisor.

Next: landlock.py (rules), landlock_gaps.py (what is left open), supervisor.py (what runs), choose.py.
"""

import os
import secrets
from collections.abc import Mapping

from egress_proxy.sandbox import landlock, seccomp
from egress_proxy.sandbox.landlock_gaps import Rung, gaps
from egress_proxy.sandbox.plan import CHANNEL, COMMAND, ERRORS, LAUNCH, LaunchPlan, Recipe, isolated_python
from egress_proxy.sandbox.readable import masks_inside
from egress_proxy.sandbox.seccomp import Network
from egress_proxy.sandbox.spec import (
    BACKENDS,
    Egress,
    Gap,
    NoNetwork,
    OpenNetwork,
    PortsOnly,
    SandboxSpec,
    SandboxUnavailable,
    ThroughProxy,
)
from egress_proxy.sandbox.terrain import Terrain, survey

NAME = BACKENDS[1]
_NETWORKS: Mapping[type[Egress], Network] = {
    NoNetwork: Network.NONE,
    ThroughProxy: Network.SUPERVISED,
    PortsOnly: Network.STREAMS,
    OpenNetwork: Network.OPEN,
}
_SUPERVISOR = os.path.join(os.path.dirname(os.path.abspath(__file__)), "supervisor.py")


class NoLandlock(Exception):
    """The kernel cannot or may not do it."""


def find_landlock() -> Rung:
    """What this kernel offers. Raises NoLandlock."""
    abi = landlock.abi()
    if not abi:
        raise NoLandlock("the kernel has no Landlock, or a container's seccomp profile refuses its calls")
    filtered = seccomp.supported(os.uname().machine)
    return Rung(abi, filtered=filtered, supervised=filtered)


def landlock_gaps(spec: SandboxSpec, rung: Rung, terrain: Terrain | None = None) -> tuple[Gap, ...]:
    """Every dimension below full, for this policy."""
    inside = masks_inside((terrain or survey(spec)).masked.paths, spec.roots)
    return gaps(rung, spec.egress, masks_in_roots=bool(inside))


def landlock_recipe(spec: SandboxSpec, rung: Rung, terrain: Terrain | None = None) -> Recipe:
    """How this sandbox is started. Raises SandboxUnavailable where the proxy would be by-passed."""
    through_proxy = isinstance(spec.egress, ThroughProxy)
    if through_proxy and not rung.supervised:
        raise SandboxUnavailable("per-host egress needs the seccomp filter, which this machine has none of")
    words = (*isolated_python(_SUPERVISOR), LAUNCH, CHANNEL if through_proxy else "-1", ERRORS)
    return Recipe(
        backend=NAME,
        words=(*words, "--"),
        long_words=(*words, COMMAND),
        launch=_plan(spec, terrain or survey(spec), rung).encode(),
        roots=spec.roots,
        attach=spec.egress.attach if isinstance(spec.egress, ThroughProxy) else None,
    )


def _plan(spec: SandboxSpec, terrain: Terrain, rung: Rung) -> LaunchPlan:
    # A name that nobody can guess, in a folder that others may write in; Landlock wants its real path.
    folder = f"{os.path.realpath('/tmp')}/egress-sandbox-{secrets.token_hex(8)}"  # noqa: S108
    terminal = own_terminal() if spec.interactive else None
    rules = landlock.ruleset(rung.abi, spec.roots, folder, spec.egress, terrain.masked.paths, terminal)
    around = seccomp.Surroundings(_NETWORKS[type(spec.egress)], own_ipc=False, own_pids=False)
    return LaunchPlan(
        port=spec.egress.port if isinstance(spec.egress, ThroughProxy) else None,
        landlock=rules,
        program=seccomp.program(os.uname().machine, around) if rung.filtered else b"",
        cwd=spec.cwd,
        new_session=not spec.interactive,
        private_tmp=folder,
    )


def own_terminal() -> str | None:
    """The path of the terminal that stdin is, if it is one."""
    try:
        return os.ttyname(0)
    except OSError:
        return None
