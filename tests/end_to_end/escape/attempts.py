"""What an attempt to get out is: a function that runs confined, and the evidence that the host looks for.

Both sides load this, so it is the standard library alone. Next: files.py and the others (the attempts),
evidence.py (what counts), child.py (runs one inside), bench.py (runs them all, outside).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass


class Kind(enum.StrEnum):
    """What would be lost."""

    EFFECT = "effect"  # something outside is changed
    READ = "read"
    PERSIST = "persist"  # something is left that is run later, outside
    NET = "net"
    IPC = "ipc"
    TTY = "tty"
    LIFE = "life"
    SURFACE = "surface"  # a part of the kernel that a command never needs
    CONTROL = "control"  # no attempt: what every sandbox must allow


class Setting(enum.Enum):
    """How the command is started, where that matters."""

    PLAIN = enum.auto()
    TERMINAL = enum.auto()  # stdin is its controlling terminal
    DESCRIPTORS = enum.auto()  # the caller leaves descriptors open
    KNOCKED = enum.auto()  # it prints `PORT N`, the host tries to connect there, and closes its stdin
    FILE_ON_STDIN = enum.auto()  # the victim, for reading
    PLANTED = enum.auto()  # the root holds modules and a bwrap, and PATH begins in it
    KILLED = enum.auto()  # it prints `READY`, and then its runner is killed


class Blocked(Exception):
    """The attempt has seen for itself that it leads nowhere."""


class Escaped(Exception):
    """It got through, where no effect on the host could show it."""


class Missing(Exception):
    """What it takes is not there: another machine, no IPv6."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What the attempts aim at: all of it the host's own, made for them. Paths are absolute.

    ``root``: the one folder that may be written; ``out``: beside it, with ``victim``, a file, in it.
    ``victim_pid``: a process that has ``victim_descriptor`` open on that file and the token in its
    environment. ``ports``, ``sockets``: who listens, by name.
    """

    tag: str
    out: str
    root: str
    home: str
    victim: str
    victim_inode: int
    victim_pid: int
    victim_descriptor: int
    token: str
    host_name_space: str
    network_space: str
    segment_key: int
    queue: str
    other_terminal: str
    through_proxy: bool
    ports: dict[str, int]
    sockets: dict[str, str]


@dataclass(frozen=True, slots=True)
class Witness:
    """What the host has after an attempt: the ground, and what it saw.

    ``outcomes``: by the attempt's name, how it ended and in what words. ``arrived``: names of ports and
    sockets that something came in on. ``typed``: bytes of a terminal that nobody typed. ``lock_held``:
    a process of the command still holds the lock file. ``signal``: what ended the runner, 0 for nothing.
    """

    ground: Ground
    outcomes: Mapping[str, tuple[str, str]]
    out_names: frozenset[str]
    arrived: frozenset[str]
    victim_gone: bool
    typed: int
    lock_held: bool
    signal: int


Tries = Callable[[Ground], None]
Evidence = Callable[[Witness, str], str]
"""What shows that the attempt of this name got out, in a few words; "" is nothing."""


def said_so(witness: Witness, name: str) -> str:
    outcome, words = witness.outcomes.get(name, ("", ""))
    return f"it says so: {words}" if outcome == Escaped.__name__ else ""


@dataclass(frozen=True, slots=True)
class Attempt:
    """``only_confined``: not to be tried without a sandbox, where it would hit the host's own."""

    name: str
    kind: Kind
    tries: Tries
    evidence: Evidence
    setting: Setting
    only_confined: bool


ATTEMPTS: dict[str, Attempt] = {}
CONTROLS: dict[str, Attempt] = {}


def attempt(
    kind: Kind,
    evidence: Evidence = said_so,
    setting: Setting = Setting.PLAIN,
    *,
    only_confined: bool = False,
) -> Callable[[Tries], Tries]:
    """Register a function as an attempt of its own name."""

    def register(tries: Tries) -> Tries:
        name = tries.__name__
        assert name not in ATTEMPTS, name
        ATTEMPTS[name] = Attempt(name, kind, tries, evidence, setting, only_confined)
        return tries

    return register


def control(tries: Tries) -> Tries:
    """Register what must work: a sandbox that breaks everything proves nothing."""
    name = f"control_{tries.__name__}"
    CONTROLS[name] = Attempt(name, Kind.CONTROL, tries, said_so, Setting.PLAIN, only_confined=False)
    return tries
