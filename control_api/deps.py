"""What the control API is given: the seams of core, and what only start-up knows, as callables.

Values only. cli/serve.py fills `ControlDeps` in; nothing here imports the parts behind it. Next: server.py.
"""

import enum
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from egress_proxy.core.host import Target
from egress_proxy.core.policy import OnMiss
from egress_proxy.core.rules import SuffixLookup
from egress_proxy.core.seams import Audit, GrantStore, Now, Reload, Tunnels

# Visible ASCII (RFC 9110 5.5): a blank at an end would be trimmed on the way and never compare equal.
_SENDABLE = re.compile(rb"[\x21-\x7e]+")


class Phase(enum.StrEnum):
    """Where the service stands between its start and its end."""

    SERVING = "serving"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """What GET /status tells of the rest of the service. ``started_at``: seconds since the epoch, UTC."""

    version: str
    started_at: float
    phase: Phase
    listeners: tuple[Target, ...]
    on_miss: OnMiss
    allow_rules: int
    deny_rules: int
    inject_rules: int


@dataclass(frozen=True, slots=True, eq=False)
class ControlDeps:
    """``own_listeners``: where this proxy accepts connections; the control API adds itself.

    ``client_ids``: the clients that a grant can be scoped to. ``suffix_of`` may open a file, once.
    Raises ValueError for a token that no client could send; the message does not hold it.
    """

    token: bytes = field(repr=False)
    grants: GrantStore
    tunnels: Tunnels
    reload: Reload
    audit: Audit
    now: Now
    suffix_of: SuffixLookup
    own_listeners: Callable[[], Collection[Target]]
    client_ids: Callable[[], Collection[str]]
    status: Callable[[], ServiceStatus]

    def __post_init__(self) -> None:
        if not _SENDABLE.fullmatch(self.token):
            raise ValueError("the control token must be visible ASCII without blanks, and not empty")
