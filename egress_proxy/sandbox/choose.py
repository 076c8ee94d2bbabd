"""Which rung confines this policy here: bwrap, then Landlock, then none. What was promised is never weakened.

A rung counts only after its probe has run and held; verdicts are kept for the life of the process. Next:
probe.py (the test), bwrap.py and landlock_rung.py (the rungs), confinement.py (starts the command).
"""

import contextlib
import os
import pwd
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from egress_proxy.sandbox import bwrap, landlock_rung
from egress_proxy.sandbox.bwrap_binary import BwrapBinary, NoBwrap, find_bwrap
from egress_proxy.sandbox.kept_files import check_kept
from egress_proxy.sandbox.landlock_rung import NoLandlock
from egress_proxy.sandbox.plan import Recipe
from egress_proxy.sandbox.probe import fault_of
from egress_proxy.sandbox.spec import Enforcement, Gap, SandboxSpec, SandboxUnavailable, overall
from egress_proxy.sandbox.terrain import NOTHING_FOUND, Terrain, survey

# What tools say where they may not work, and what helps there.
_REMEDIES = (
    (
        r"setting up uid map|RTM_NEW(ADDR|LINK)",
        "AppArmor keeps user namespaces from bwrap (Ubuntu 23.10 and later): give it a profile with `userns,`"
        " such as bwrap-userns-restrict; inside a container allow user namespaces",
    ),
    (r"mount proc", "/proc is masked, as in a container: run it with an unmasked /proc"),
    (
        r"No permissions to create new namespace|Operation not permitted",
        "user namespaces are refused here: by the container's seccomp profile, or by a sysctl such as"
        " kernel.unprivileged_userns_clone=0",
    ),
    (r"nesting depth|max_.*_namespaces|ENOSPC", "raise user.max_user_namespaces"),
    (r"pidfd_getfd", "the container's seccomp profile refuses pidfd_getfd: allow it"),
)


@dataclass(frozen=True, slots=True)
class Chosen:
    """A rung that has been seen to hold. ``gaps``: every dimension below full, for this policy.
    ``passed_over``: why it is not the rung before, with what helps; "" where it is the first or was named."""

    backend: str
    gaps: tuple[Gap, ...]
    recipe: Recipe
    passed_over: str = ""
    terrain: Terrain = NOTHING_FOUND

    @property
    def enforcement(self) -> Enforcement:
        return overall(self.gaps)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """``identity``: what a verdict depends on besides the shape of the policy."""

    backend: str
    identity: tuple[object, ...]
    make: Callable[[SandboxSpec, Terrain], Recipe]
    gaps: Callable[[SandboxSpec, Terrain], tuple[Gap, ...]]


_verdicts: dict[tuple[object, ...], str] = {}


def choose(
    spec: SandboxSpec, search_path: str, *, backend: str | None = None, portable: bool = False
) -> Chosen:
    """The first rung that holds, or the one named by ``backend``. ``search_path``: PATH, for bwrap.

    Raises SandboxUnavailable, whose message has each rung's own first line and the likely remedy.
    """
    _check_roots(spec.roots)
    faults: dict[str, str] = {}
    terrain = survey(spec)
    for candidate in _candidates(spec, search_path, backend, portable, faults):
        gaps = (*candidate.gaps(spec, terrain), *terrain.gaps())
        fault = _fault(candidate, spec, gaps, terrain, portable)
        if not fault:
            check_kept(spec, can_keep=candidate.backend == bwrap.NAME)
            passed_over = _reasons(faults) + _remedy(faults)
            recipe = candidate.make(spec, terrain)
            return Chosen(candidate.backend, gaps, recipe, passed_over, terrain)
        faults[candidate.backend] = fault
    raise SandboxUnavailable(_message(faults))


def _check_roots(roots: Sequence[str]) -> None:
    """A root was judged by its real path; a link that has come to stand there leads elsewhere."""
    for root in roots:
        if _real(root) != root or not os.path.isdir(root):
            raise SandboxUnavailable(f"writable root {root!r} is no longer the folder that was named")


def _real(path: str) -> str | None:
    try:
        return os.path.realpath(path)
    except OSError:  # what stands there changes while it is looked at
        return None


def forget_verdicts() -> None:
    """After a runner has failed: what held before may not hold any more."""
    _verdicts.clear()


def _candidates(
    spec: SandboxSpec, search_path: str, wanted: str | None, portable: bool, faults: dict[str, str]
) -> Iterator[_Candidate]:
    if wanted in (None, bwrap.NAME):
        try:
            yield _bwrap(find_bwrap(search_path, spec.roots, _own_folders(spec)), portable)
        except NoBwrap as error:
            faults[bwrap.NAME] = str(error)
    if wanted in (None, landlock_rung.NAME):
        try:
            yield _landlock()
        except NoLandlock as error:
            faults[landlock_rung.NAME] = str(error)


def _bwrap(binary: BwrapBinary, portable: bool) -> _Candidate:
    return _Candidate(
        bwrap.NAME,
        (binary,),
        lambda spec, terrain: bwrap.bwrap_recipe(spec, binary, portable=portable, terrain=terrain),
        bwrap.bwrap_gaps,
    )


def _landlock() -> _Candidate:
    rung = landlock_rung.find_landlock()
    return _Candidate(
        landlock_rung.NAME,
        (rung,),
        lambda spec, terrain: landlock_rung.landlock_recipe(spec, rung, terrain),
        lambda spec, terrain: landlock_rung.landlock_gaps(spec, rung, terrain),
    )


def _fault(
    candidate: _Candidate, spec: SandboxSpec, gaps: tuple[Gap, ...], terrain: Terrain, portable: bool
) -> str:
    masks = replace(terrain, scans=())  # the same are in force, in a root of its own
    shape = (type(spec.egress), spec.interactive, portable)
    key = (candidate.backend, candidate.identity, shape)
    if key not in _verdicts:
        _verdicts[key] = fault_of(lambda stand_in: candidate.make(stand_in, masks), spec, gaps)
    return _verdicts[key]


def _own_folders(spec: SandboxSpec) -> tuple[str, ...]:
    """Where commands of this user work: here, and in the home, by the environment and by the records."""
    folders = [spec.cwd, *spec.homes]
    with contextlib.suppress(KeyError):  # a user who is a number alone, as in containers
        folders.append(pwd.getpwuid(os.getuid()).pw_dir)
    return tuple(folder for folder in folders if folder and os.path.isabs(folder))


def _message(faults: Mapping[str, str]) -> str:
    return f"the command cannot be confined here and is not run: {_reasons(faults)}{_remedy(faults)}"


def _reasons(faults: Mapping[str, str]) -> str:
    return "; ".join(
        fault if fault.startswith(f"{backend}: ") else f"{backend}: {fault}"
        for backend, fault in faults.items()
    )


def _remedy(faults: Mapping[str, str]) -> str:
    """The likely one, in brackets; a runner's own line is where it is read from."""
    reasons = _reasons(faults)
    remedies = [remedy for pattern, remedy in _REMEDIES if re.search(pattern, reasons)]
    return f" ({remedies[0]})" if remedies else ""
