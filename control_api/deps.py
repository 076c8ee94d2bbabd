"""What the control API is given: the seams of core, and what only start-up knows, as callables.

Values only. cli/serve.py fills `ControlDeps` in; nothing here imports the parts behind it. Next: server.py.
"""

import enum
from collections.abc import Callable, Collection
from dataclasses import dataclass

from egress_proxy.core.host import Target
from egress_proxy.core.policy import OnMiss
from egress_proxy.core.rules import Rule, SuffixLookup
from egress_proxy.core.seams import Audit, Clock, GrantStore, Now, Reload, Tunnels


class Phase(enum.StrEnum):
    """Where the service stands between its start and its end."""

    SERVING = "serving"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """What GET /status tells of the rest of the service. ``started_at``: seconds since the epoch, UTC.

    ``lost_lines``: of the audit log, since ``lost_since``. ``is_counting``: refusals come so fast
    that they are counted instead of written one by one.
    """

    version: str
    started_at: float
    phase: Phase
    listeners: tuple[Target, ...]
    on_miss: OnMiss
    allow_rules: int
    deny_rules: int
    inject_rules: int
    lost_lines: int = 0
    lost_since: float | None = None
    is_counting: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ControlDeps:
    """``own_listeners``: where this proxy accepts connections; the control API adds itself.

    ``is_token`` compares in constant time, so that no secret comes in here. ``client_ids``: the clients that
    a grant can be scoped to. ``denial_of``: the deny entry that covers an entry. ``suffix_of`` may open a
    file, once.
    """

    is_token: Callable[[bytes], bool]
    grants: GrantStore
    tunnels: Tunnels
    reload: Reload
    audit: Audit
    now: Now
    clock: Clock
    suffix_of: SuffixLookup
    own_listeners: Callable[[], Collection[Target]]
    client_ids: Callable[[], Collection[str]]
    denial_of: Callable[[Rule], str | None]
    status: Callable[[], ServiceStatus]
    health: Callable[[], str]
