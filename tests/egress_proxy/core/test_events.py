"""Rules of core/events.py: what is recorded is by type unable to hold a secret, and cannot be changed.

How it becomes fields: test_event_record.py; how it is written and chained: ../proxy/test_audit.py.
"""

import dataclasses
import enum
import types
import typing
from collections.abc import Iterator

import pytest

from egress_proxy.core.access import Client, Door
from egress_proxy.core.decision import Reason
from egress_proxy.core.events import (
    ControlRefused,
    Decided,
    EndCause,
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
from egress_proxy.core.host import Target, parse_authority

CLIENT = Client("build", "laptop")
TARGET = parse_authority("OK.example:443")
EXAMPLES: list[Event] = [
    Decided(
        "r1",
        CLIENT,
        "127.0.0.1:5000",
        Door.TUNNEL,
        "CONNECT",
        TARGET,
        200,
        None,
        "ok.example",
        "g1",
        "1.1.1.1",
    ),
    Decided("r2", Client(), "", None, None, None, 400, Reason.MALFORMED),
    Repeated(CLIENT, "127.0.0.1", TARGET, Reason.NOT_LISTED, 12),
    Ended("r1", CLIENT, TARGET, Door.ABSOLUTE, EndCause.DONE, 10, 20, 1.5, 200),
    Noticed("r1", CLIENT, TARGET, "unnamed"),
    Granted("g1", "ok.example", None, 5.5, 3, "because"),
    GrantEnded("g1", "ok.example", "expired", 2),
    Reloaded("", 1),
    ControlRefused("127.0.0.1", "POST", "/allow", 401),
    SandboxChanged(CLIENT, "attached", 71),
    Faulted("r1", "ValueError", "relay.py:12"),
    ServiceChanged("started", "0.1.0"),
]
KINDS = typing.get_args(Event)


def test_every_kind_of_event_is_an_example_here() -> None:
    assert {type(event) for event in EXAMPLES} == set(KINDS)


def leaves(hint: object) -> Iterator[object]:
    """The types a field can hold, values of ours taken apart."""
    if isinstance(hint, types.UnionType):
        for part in typing.get_args(hint):
            yield from leaves(part)
    elif hint is Client:
        for part in typing.get_type_hints(Client).values():
            yield from leaves(part)
    else:
        yield hint


@pytest.mark.parametrize("kind", KINDS)
def test_no_field_can_hold_headers_bodies_or_secrets(kind: type[Event]) -> None:
    held = [leaf for hint in typing.get_type_hints(kind).values() for leaf in leaves(hint)]
    plain = {str, int, float, type(None), Target}
    assert [
        leaf for leaf in held if leaf not in plain and not issubclass(typing.cast(type, leaf), enum.StrEnum)
    ] == []


@pytest.mark.parametrize("kind", KINDS)
def test_no_field_is_named_for_what_must_not_be_recorded(kind: type[Event]) -> None:
    banned = ("header", "body", "query", "secret", "token", "credential", "cookie", "value")
    assert not [part.name for part in dataclasses.fields(kind) if any(word in part.name for word in banned)]


@pytest.mark.parametrize("event", EXAMPLES)
def test_an_event_cannot_be_changed_once_it_happened(event: Event) -> None:
    name = dataclasses.fields(event)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(event, name, "other")
