"""What is recorded. By type nothing here can hold a secret: no headers, no bodies, no query strings.

Events carry no time; whoever writes them down adds it. Next: event_record.py (their fields), proxy/audit.py.
"""

import enum
from dataclasses import dataclass

from egress_proxy.core.access import Client, Door
from egress_proxy.core.decision import Reason
from egress_proxy.core.host import Target


class EndCause(enum.StrEnum):
    """Why a tunnel or an injected request ended."""

    DONE = "done"
    CLIENT_RESET = "client_reset"
    UPSTREAM_RESET = "upstream_reset"
    IDLE = "idle"
    HALF_CLOSED = "half_closed"
    GRANT_ENDED = "grant_ended"
    POLICY_CHANGED = "policy_changed"
    SNI_REFUSED = "sni_refused"
    TRUNCATED = "truncated"
    REFLECTION = "reflection"
    DRAINED = "drained"
    SANDBOX_ENDED = "sandbox_ended"
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Decided:
    """One request was decided. ``status``: what the client got from us; None where an upstream answers, or
    nobody does."""

    request_id: str
    client: Client
    peer: str
    door: Door | None
    method: str | None
    target: Target | None
    status: int | None
    reason: Reason | None = None
    rule: str | None = None
    grant: str | None = None
    address: str | None = None
    detail: str = ""

    @property
    def verdict(self) -> str:
        return "allow" if self.reason is None else "deny"


@dataclass(frozen=True, slots=True)
class Repeated:
    """Refusals that came too fast for a line each: ``times`` of them since the last such line. Without a
    reason they were of several kinds."""

    client: Client
    peer: str
    target: Target | None
    reason: Reason | None
    times: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A tunnel or an injected request is over. Bytes as carried, without what TLS or framing adds."""

    request_id: str
    client: Client
    target: Target
    door: Door
    cause: EndCause
    bytes_out: int
    bytes_in: int
    duration_s: float
    status: int | None = None
    reason: Reason | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Noticed:
    """Something about a live tunnel that is worth a line: a hello without a name, no TLS on 443."""

    request_id: str
    client: Client
    target: Target
    note: str


@dataclass(frozen=True, slots=True)
class Granted:
    """A grant was made through the control API."""

    grant: str
    rule: str
    client: str | None
    expires_at: float | None
    uses_left: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class GrantEnded:
    """A grant is gone; ``tunnels`` rested on it and were closed."""

    grant: str
    rule: str
    cause: str
    tunnels: int


@dataclass(frozen=True, slots=True)
class Reloaded:
    """Settings were read again. ``error`` empty: they hold; ``tunnels`` and ``requests`` were ended."""

    error: str
    tunnels: int
    requests: int = 0


@dataclass(frozen=True, slots=True)
class ControlRefused:
    """The control API turned a call away."""

    peer: str
    method: str
    path: str
    status: int


@dataclass(frozen=True, slots=True)
class SandboxChanged:
    """A sandbox has attached or detached. ``pid``: of the process that asked for it, where known."""

    client: Client
    change: str
    pid: int | None


@dataclass(frozen=True, slots=True)
class Faulted:
    """A fault of ours ended one connection. ``error`` is the exception's type, ``where`` file and line."""

    request_id: str
    error: str
    where: str


@dataclass(frozen=True, slots=True)
class ServiceChanged:
    """The service started or stopped."""

    change: str
    detail: str


Event = (
    Decided
    | Repeated
    | Ended
    | Noticed
    | Granted
    | GrantEnded
    | Reloaded
    | ControlRefused
    | SandboxChanged
    | Faulted
    | ServiceChanged
)
