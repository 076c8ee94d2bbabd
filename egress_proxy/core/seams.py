"""The Protocols by which the rings take what they need from one another. cli/serve.py passes in the parts.

Shapes only, no code. Implementations: proxy/ (resolver, dialer, grant store, audit), control_api/ (asker).
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from egress_proxy.core.access import Access
from egress_proxy.core.address import Address
from egress_proxy.core.decision import Allow, Deny
from egress_proxy.core.events import EndCause, Event
from egress_proxy.core.grants import Grant, Grants, Limits
from egress_proxy.core.host import Name
from egress_proxy.core.rules import Rule

Now = Callable[[], float]
"""Seconds since the epoch, UTC: for showing."""

Clock = Callable[[], float]
"""Seconds of a clock that nobody sets and that runs while the machine sleeps: for deciding."""

Asker = Callable[[Access], Awaitable[Allow | Deny]]
"""Puts a question to a person and waits for the answer; a timeout is a Deny."""


class Audit(Protocol):
    """Writes events down, all or none. Raises AuditUnavailable where the log may not be lost."""

    def __call__(self, *events: Event) -> None: ...


@dataclass(frozen=True, slots=True)
class ReloadOutcome:
    """How many tunnels and injected requests a reload ended, and whether that could be written down."""

    tunnels: int
    requests: int
    is_recorded: bool = True


Reload = Callable[[], Awaitable[ReloadOutcome]]
"""Reads the settings again and swaps the policy. Raises ReloadRefused."""


class ReloadRefused(Exception):
    """The settings cannot be used and the old ones stay. The message says what is wrong with them."""


class AuditUnavailable(Exception):
    """The audit log cannot be written, and the settings say that nothing may pass unrecorded."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a name resolved to: addresses in the order to try, names of the CNAME chain.

    ``completed``: the whole name that was asked for, where the search list made it of a shorter one.
    """

    addresses: tuple[Address, ...]
    chain: tuple[str, ...] = ()
    completed: Name | None = None


Resolve = Callable[[Name], Awaitable[Answer]]
"""Name to addresses. Raises what proxy/resolver.py defines: NoSuchName, ResolverTimeout."""


class GrantStore(Protocol):
    """Keeps the session's grants. `snapshot` is what decide() reads; the shell spends afterwards."""

    def snapshot(self) -> Grants: ...

    def add(self, rule: Rule, limits: Limits) -> Grant:
        """Make a grant, or find the same one without limits that is there already."""

    def revoke(self, grant_id: str) -> Grant | None:
        """Take a grant away; None when there is none of that id."""

    def drop(self, grant_ids: Collection[str]) -> None:
        """Take many away at once; those that are gone already are no matter."""

    def spend_use(self, grant_id: str) -> bool:
        """Take one use; False when none is left (somebody else was faster)."""

    def give_back_use(self, grant_id: str) -> None:
        """Undo `spend_use` for a connection that never got its 200."""

    def spend_bytes(self, grant_id: str, count: int) -> bool:
        """Take bytes sent out; False when the grant has ended."""

    def drop_ended(self) -> Sequence[Grant]:
        """Forget the grants that have run out, and say which."""


@dataclass(frozen=True, slots=True)
class TunnelCount:
    """How many tunnels are open, and how many may be."""

    open: int
    limit: int


class Tunnels(Protocol):
    """The open tunnels, as the control API and a reload see them."""

    def count(self) -> TunnelCount: ...

    def close_grant(self, grant_id: str, cause: EndCause) -> int:
        """Close the tunnels that rest on a grant; how many there were."""
