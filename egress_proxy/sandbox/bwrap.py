"""The bwrap rung: the arguments of one sandbox, in the order in which bwrap carries them out.

Looks at the file system and changes nothing. Next: bwrap_binary.py (which bwrap), launcher.py (what runs
inside before the command), choose.py (whether it works here).
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence

from egress_proxy.sandbox import landlock, seccomp
from egress_proxy.sandbox.bwrap_binary import BwrapBinary
from egress_proxy.sandbox.mount_check import Mounts, read_table
from egress_proxy.sandbox.plan import (
    ARGS,
    CHANNEL,
    COMMAND,
    ERRORS,
    FILTER,
    LAUNCH,
    STATUS,
    SYNC,
    LaunchPlan,
    Recipe,
    interpreter,
    isolated_python,
)
from egress_proxy.sandbox.protected import folders_between
from egress_proxy.sandbox.roots import is_in
from egress_proxy.sandbox.spec import (
    BACKENDS,
    Dimension,
    Egress,
    Enforcement,
    Gap,
    NoNetwork,
    OpenNetwork,
    PortsOnly,
    SandboxSpec,
    SandboxUnavailable,
    ThroughProxy,
)
from egress_proxy.sandbox.terrain import Terrain, survey

NAME = BACKENDS[0]
# Empty and the sandbox's own: other people's files, and the sockets of the session's daemons, are not there.
OWN_FOLDERS = ("/tmp", "/var/tmp", "/run")  # noqa: S108  these are what is hidden
# Read by every ssh, and refused unless they belong to root or the caller: distributions ship some.
_SSH_DROP_INS = ("/etc/ssh/ssh_config.d", "/usr/etc/ssh/ssh_config.d")
# A network of its own leads nowhere, and the local servers of test suites work there.
_NETWORKS: Mapping[type[Egress], seccomp.Network] = {
    NoNetwork: seccomp.Network.OWN_NAMESPACE,
    ThroughProxy: seccomp.Network.OWN_NAMESPACE,
    PortsOnly: seccomp.Network.STREAMS,
    OpenNetwork: seccomp.Network.OPEN,
}
_TCP_ABI = 4  # the first whose rules know ports
# What runs inside, and what that imports.
_SCRIPTS = ("launcher.py", "told.py", "mount_check.py")
_LAUNCHER, *_IMPORTED = (os.path.join(os.path.dirname(os.path.abspath(__file__)), name) for name in _SCRIPTS)
# What a hidden file looks like: git can add it, and a shell that may read it can open it.
_NOTHING = os.path.join(os.path.dirname(os.path.abspath(__file__)), "nothing")


def bwrap_recipe(
    spec: SandboxSpec, binary: BwrapBinary, *, portable: bool, terrain: Terrain | None = None
) -> Recipe:
    """How this sandbox is started. ``portable``: by somebody who may hand in any stdin, so that the inner
    launcher is needed in any case: its Landlock rules keep a file from being reopened for writing. With roots
    it is needed too: it compares what was mounted with what was asked for. ``terrain``: None has it searched
    now."""
    terrain = terrain or survey(spec)
    inner = portable or bool(spec.roots) or not isinstance(spec.egress, NoNetwork)
    arguments = _arguments(spec, terrain, binary)
    machine = os.uname().machine
    program = seccomp.program(machine, _surroundings(spec)) if seccomp.supported(machine) else b""
    streams = ("--sync-fd", SYNC) if isinstance(spec.egress, ThroughProxy) else ()
    start, launcher = (binary.path, "--args", ARGS, "--"), _launcher_words(spec)
    status = () if portable else ("--json-status-fd", STATUS)
    # By bwrap and not by the launcher: that is bwrap's own first process too, whose memory the command may
    # write where no Landlock keeps it from that.
    own_filter = ("--seccomp", FILTER) if program else ()
    return Recipe(
        backend=NAME,
        words=(*start, *((*launcher, "--") if inner else ())),
        long_words=(*start, *launcher, COMMAND),
        args=(*arguments, *streams, *status, *own_filter),
        launch=_launch_plan(spec, arguments).encode(),
        program=program,
        roots=spec.roots,
        hidden=tuple(_folders_of_its_own()) if spec.cwd is None else (),
        shown=_shown_again(spec),
        attach=spec.egress.attach if isinstance(spec.egress, ThroughProxy) else None,
    )


def _surroundings(spec: SandboxSpec) -> seccomp.Surroundings:
    return seccomp.Surroundings(_NETWORKS[type(spec.egress)], own_ipc=True, own_pids=True)


def _launcher_words(spec: SandboxSpec) -> tuple[str, ...]:
    channel = CHANNEL if isinstance(spec.egress, ThroughProxy) else "-1"
    return (*isolated_python(_LAUNCHER), "inner", LAUNCH, channel, ERRORS)


def _launch_plan(spec: SandboxSpec, arguments: Sequence[str]) -> LaunchPlan:
    port = spec.egress.port if isinstance(spec.egress, ThroughProxy) else None
    rules = landlock.inside_namespace(landlock.abi(), spec.roots, _ports(spec))
    points, writable = _mounted(arguments)
    mounts = Mounts(read_table())
    inside = (os.fsdecode(mount.point) for mount in mounts.all if is_in(os.fsdecode(mount.point), writable))
    places = {path: os.fsdecode(mounts.place(os.fsencode(path))) for path in (*inside, *writable)}
    return LaunchPlan(port=port, landlock=rules, mount_points=points, writable_places=places)


def _mounted(arguments: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Where the arguments mount something that nothing later covers, and which of that is writable."""
    path_at = {"--tmpfs": 1, "--ro-bind": 2, "--bind": 2}
    words = [(word, arguments[at + path_at[word]]) for at, word in enumerate(arguments) if word in path_at]
    covered: set[str] = set()
    points: dict[str, bool] = {}
    for word, point in reversed(words):
        if point != "/" and covered.isdisjoint((point, *_folders_above(point))):
            points[point] = word == "--bind"
        covered.add(point)
    return tuple(points), tuple(point for point, is_writable in points.items() if is_writable)


def _folders_above(path: str) -> Iterator[str]:
    while path != "/":
        path = os.path.dirname(path)
        yield path


def _ports(spec: SandboxSpec) -> frozenset[int] | None:
    return spec.egress.ports if isinstance(spec.egress, PortsOnly) else None


def _arguments(spec: SandboxSpec, terrain: Terrain, binary: BwrapBinary) -> tuple[str, ...]:
    return (
        *_system(),
        *_namespaces(spec, binary),
        *_own_folders(),
        *_hidden_settings(),
        *_kept_visible(spec),
        *_roots(spec, terrain),
        *_masks(spec, terrain),
        *_working_folder(spec),
    )


def _system() -> Iterator[str]:
    yield from ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
    # Its files belong to uid 0 and stay writable to root otherwise: core_pattern is code on the host.
    yield from ("--ro-bind", "/proc/sys", "/proc/sys")


def _namespaces(spec: SandboxSpec, binary: BwrapBinary) -> Iterator[str]:
    yield from ("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try")
    if isinstance(spec.egress, NoNetwork | ThroughProxy):
        yield "--unshare-net"
    if binary.disables_userns:
        yield "--disable-userns"
    yield from ("--cap-drop", "ALL", "--die-with-parent")
    if not spec.interactive:
        yield "--new-session"


def _own_folders() -> Iterator[str]:
    for folder in _folders_of_its_own():
        yield from ("--tmpfs", folder)
    # Where the name servers stand is often a file in /run; of use only where the network is the host's.
    resolver = os.path.realpath("/etc/resolv.conf")
    if is_hidden(resolver) and os.path.isfile(resolver):
        yield from ("--ro-bind", resolver, resolver)


def _hidden_settings() -> Iterator[str]:
    """In an ordinary user's namespace what is root's is nobody's, and ssh ends over such a file."""
    if os.geteuid() == 0:
        return
    for folder in _SSH_DROP_INS:
        if os.path.isdir(folder) and not os.path.islink(folder) and os.listdir(folder):
            yield from ("--tmpfs", folder, "--remount-ro", folder)


def _folders_of_its_own() -> Iterator[str]:
    return (folder for folder in OWN_FOLDERS if os.path.isdir(folder) and not os.path.islink(folder))


def is_hidden(path: str) -> bool:
    """Whether a path lies below a folder that the sandbox has its own of."""
    return any(path.startswith(f"{folder}/") for folder in OWN_FOLDERS)


def _kept_visible(spec: SandboxSpec) -> Iterator[str]:
    for path in _shown_again(spec):
        yield from ("--ro-bind", path, path)


def _shown_again(spec: SandboxSpec) -> tuple[str, ...]:
    """What is needed for the start and would be hidden: interpreter, launcher, the folder to start in."""
    needed = [sys.base_prefix, interpreter(), _LAUNCHER, *_IMPORTED, *spec.shown]
    if spec.cwd is not None and not spec.cwd.startswith("/run/"):
        needed.append(spec.cwd)
    return tuple(path for path in needed if is_hidden(path) and not is_in(path, spec.roots))


def _roots(spec: SandboxSpec, terrain: Terrain) -> Iterator[str]:
    for root in spec.roots:
        yield from ("--bind", root, root)
    protections = terrain.protections(spec)
    # A folder that is a mount point cannot be renamed away with what is protected or hidden in it.
    pinned = {folder for protection in protections for folder in protection.mount_points}
    for path in terrain.masked.paths:
        pinned.update(folder for root in spec.roots for folder in folders_between(root, path))
    for folder in sorted(pinned):
        yield from ("--bind", folder, folder)
    for protection in protections:
        for path in protection.read_only:
            yield from ("--ro-bind", path, path)


def _masks(spec: SandboxSpec, terrain: Terrain) -> Iterator[str]:
    shown = (*spec.roots, *_shown_again(spec))
    for path in terrain.masked.paths:
        if is_hidden(path) and not is_in(path, shown):
            continue  # not there anyway
        if os.path.isdir(path):
            yield from ("--tmpfs", path, "--remount-ro", path)
        elif os.path.exists(path):
            yield from ("--ro-bind", _NOTHING, path)


def _working_folder(spec: SandboxSpec) -> Iterator[str]:
    """Unless one is named it is the caller's, or else what bwrap finds: the home folder, then `/`.

    Raises SandboxUnavailable for a folder that the sandbox does not show.
    """
    if spec.cwd is None:
        return
    if spec.cwd.startswith("/run/") and not is_in(spec.cwd, spec.roots):
        raise SandboxUnavailable(
            f"the working folder {spec.cwd} is not shown in the sandbox; start elsewhere"
        )
    yield from ("--chdir", spec.cwd)


def bwrap_gaps(spec: SandboxSpec, terrain: Terrain | None = None) -> tuple[Gap, ...]:
    """Every dimension below full, for this policy (the bwrap column of the enforcement table)."""
    partial = Enforcement.PARTIAL
    gaps = []
    if isinstance(spec.egress, PortsOnly | OpenNetwork):
        what = (
            "open:every-host" if isinstance(spec.egress, OpenNetwork) else "ports:any-host-on-a-listed-port"
        )
        gaps.append(Gap(Dimension.EGRESS, partial, f"egress.{what}"))
        gaps.append(Gap(Dimension.INBOUND, partial, "bwrap.shared-network:listen"))
    if isinstance(spec.egress, PortsOnly) and landlock.abi() < _TCP_ABI:
        gaps.append(Gap(Dimension.EGRESS, partial, "landlock.abi<4:tcp"))
    protections = (terrain or survey(spec)).protections(spec)
    if any(protection.links for protection in protections):
        gaps.append(Gap(Dimension.PROTECTED, partial, "bwrap.links:protected-names"))
    if not all(protection.complete for protection in protections):
        gaps.append(Gap(Dimension.PROTECTED, partial, "bwrap.large-root:protected-names"))
    if not seccomp.supported(os.uname().machine):
        gaps += (
            Gap(dimension, partial, "seccomp.unsupported-machine")
            for dimension in (Dimension.EGRESS, Dimension.IPC, Dimension.TERMINAL)
        )
    return tuple(gaps)
