"""An event as flat fields of fixed names: what a line of the audit log and of stderr is made of.

Pure. Next: events.py (the events), proxy/audit_line.py and logs.py (who write lines).
"""

import enum
from dataclasses import fields

from egress_proxy.core.access import Client
from egress_proxy.core.events import (
    ControlRefused,
    Decided,
    Ended,
    Event,
    Faulted,
    Granted,
    GrantEnded,
    Noticed,
    Reloaded,
    Repeated,
    SandboxChanged,
    ServiceChanged,
)
from egress_proxy.core.host import Target

Field = str | int | float | None

_KINDS: dict[type[Event], str] = {
    Decided: "decision",
    Repeated: "repeats",
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
