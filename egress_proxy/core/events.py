"""What is recorded. By type nothing here can hold a secret: no headers, no bodies, no query strings.

Events carry no time; whoever writes them down adds it. Next: proxy/audit.py (the log), seams.py (AuditSink).
"""

import enum
from dataclasses import dataclass, fields

from egress_proxy.core.access import Client, Door
from egress_proxy.core.decision import Reason
from egress_proxy.core.host import Target

Field = str | int | float | None


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

_KINDS: dict[type[Event], str] = {
    Decided: "decision",
    Ended: "end",
    Noticed: "notice",
    Granted: "grant",
    GrantEnded: "grant_end",
    Reloaded: "reload",
    ControlRefused: "control_refused",
    SandboxChanged: "sandbox",
    Faulted: "fault",
    ServiceChanged: "service",
}
_NAMES = {kind: tuple(part.name for part in fields(kind)) for kind in _KINDS}


def kind_of(event: Event) -> str:
    """The event's kind as the log names it."""
    return _KINDS[type(event)]


def record_of(event: Event) -> dict[str, Field]:
    """The event as flat fields of fixed names, ``kind`` first."""
    kind = type(event)
    record: dict[str, Field] = {"kind": _KINDS[kind]}
    if isinstance(event, Decided):
        record["verdict"] = event.verdict
    for name in _NAMES[kind]:
        value = getattr(event, name)
        match value:
            case Client():
                record["client"], record["label"] = value.id, value.label
            case Target() | enum.StrEnum():
                record[name] = str(value)
            case _:
                record[name] = value
    return record
