"""What a sandbox is asked for, and what it answers: the policy of one command, and which part of it holds.

Values only, nothing is run here. Next: roots.py (checks roots), choose.py (picks a rung), confinement.py.
"""

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from egress_proxy.core.attach import OwnFiles

NO_FILES = OwnFiles()

BACKENDS = ("bwrap", "landlock")
"""The rungs of Linux, the strongest first: bwrap.py, landlock_rung.py."""


class Enforcement(enum.StrEnum):
    """How far a promise holds. PARTIAL always comes with gaps that say what is missing."""

    FULL = "full"
    PARTIAL = "partial"
    NONE = "none"


_RANK = (Enforcement.FULL, Enforcement.PARTIAL, Enforcement.NONE)


def worst(values: Iterable[Enforcement]) -> Enforcement:
    """The weakest of some values; of none it is FULL, since nothing was promised."""
    return max(values, key=_RANK.index, default=Enforcement.FULL)


class Dimension(enum.StrEnum):
    """One thing a sandbox can hold, and be measured by."""

    WRITES = "writes"  # contents and names of files outside the roots
    METADATA = "metadata"  # mode, owner, times, xattr, inode flags of files outside the roots
    EGRESS = "egress"
    INBOUND = "inbound"
    IPC = "ipc"  # socket files, abstract sockets, SysV, message queues
    SIGNALS = "signals"
    VISIBILITY = "visibility"  # other processes in /proc
    LIMITS = "limits"  # limits, priority, affinity of other processes
    TMP = "tmp"
    LIFETIME = "lifetime"  # nothing outlives the command
    TERMINAL = "terminal"
    SECRETS = "secrets"  # masked files
    PROTECTED = "protected"  # what host git, editors and shells obey inside a root
    IDENTITY = "identity"  # the proxy knows which sandbox a connection came from
    CONTROL = "control"  # the control API is out of reach


PROMISED = frozenset({Dimension.WRITES, Dimension.EGRESS})
"""What every policy promises: the overall word is the worst of these."""


@dataclass(frozen=True, slots=True)
class Gap:
    """One dimension below full. ``reason`` is for machines: `rung:what` or `rung.condition:what`."""

    dimension: Dimension
    value: Enforcement
    reason: str

    def as_json(self) -> dict[str, str]:
        return {"dimension": self.dimension, "value": self.value, "reason": self.reason}


def overall(gaps: Sequence[Gap]) -> Enforcement:
    """The one word: the worst of the promised dimensions."""
    return worst(gap.value for gap in gaps if gap.dimension in PROMISED)


class SandboxUnavailable(Exception):
    """The command cannot be confined as asked, and is not run. The message says why and what helps."""

    code = "SANDBOX_UNAVAILABLE"


@dataclass(frozen=True, slots=True)
class NoNetwork:
    """Nothing gets out and nothing gets in."""


@dataclass(frozen=True, slots=True)
class ThroughProxy:
    """The proxy is the only way out. ``attach``: its attach socket, absolute; ``port``: its data port, which
    is the port on 127.0.0.1 that the command finds it at. ``own``: the proxy's own files; None: it is too old
    to tell."""

    attach: str
    port: int
    own: OwnFiles | None = NO_FILES


@dataclass(frozen=True, slots=True)
class PortsOnly:
    """TCP to these ports of any host: what a list without our proxy comes down to."""

    ports: frozenset[int]


@dataclass(frozen=True, slots=True)
class OpenNetwork:
    """The network is left as it is."""


Egress = NoNetwork | ThroughProxy | PortsOnly | OpenNetwork


@dataclass(frozen=True, slots=True)
class Kept:
    """A file of ours, by its absolute path as given. ``what``: for people, with the flag or variable."""

    path: str
    what: str


class KeptRefused(SandboxUnavailable):
    """A root would let the command write what steers the next run. The message names both."""


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """The policy of one command. All paths are absolute.

    ``roots``: as roots.py gives them, canonical. ``homes``: the folders whose secret files are masked, with
    the .env files below them and below ``cwd``. ``masks``: further paths that cannot be read; ``unmasked``:
    paths that can, of what is masked by itself. ``protected``: paths that stay read-only in a root; ``kept``:
    the same, of what steers the next run, so that a rung that cannot do it refuses.
    ``extras``: names of variables that the child may have besides the harmless few. ``interactive``: the
    command gets the caller's terminal and job control.
    """

    roots: tuple[str, ...]
    egress: Egress = field(default_factory=NoNetwork)
    cwd: str | None = None
    homes: tuple[str, ...] = ()
    mask_secrets: bool = True
    masks: tuple[str, ...] = ()
    unmasked: tuple[str, ...] = ()
    protect: bool = True
    protected: tuple[str, ...] = ()
    kept: tuple[Kept, ...] = ()
    extras: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    """Canonical; read-only, also where the sandbox has a folder of its own instead of the host's."""
    interactive: bool = False
