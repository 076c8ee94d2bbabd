"""Rules of core/events.py: what is recorded is flat, of fixed names, and by type unable to hold a secret.

How records are written and chained is held by ../proxy/test_audit.py.
"""

import dataclasses
import enum
import json
import types
import typing
from collections.abc import Iterator

import pytest

from egress_proxy.core import events
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
    SandboxChanged,
    ServiceChanged,
    record_of,
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
def test_a_record_is_flat_and_one_line_of_json(event: Event) -> None:
    record = record_of(event)
    assert next(iter(record)) == "kind"
    assert all(type(value) in (str, int, float, type(None)) for value in record.values())
    assert json.loads(json.dumps(record)) == record
    assert "\n" not in json.dumps(record)


@pytest.mark.parametrize("event", EXAMPLES)
def test_a_record_has_every_field_of_its_event_under_a_fixed_name(event: Event) -> None:
    names = {part.name for part in dataclasses.fields(event)}
    extra = {"kind"} | ({"verdict"} if isinstance(event, Decided) else set())
    extra |= {"label"} if isinstance(getattr(event, "client", None), Client) else set()
    assert record_of(event).keys() == names | extra


def test_kinds_have_names_of_their_own() -> None:
    kinds = {type(event): record_of(event)["kind"] for event in EXAMPLES}
    assert len(set(kinds.values())) == len(KINDS)
    assert events._KINDS.keys() == set(KINDS)


def test_a_decision_is_recorded_with_target_client_and_verdict() -> None:
    assert record_of(EXAMPLES[0]) == {
        "kind": "decision",
        "verdict": "allow",
        "request_id": "r1",
        "client": "build",
        "label": "laptop",
        "peer": "127.0.0.1:5000",
        "door": "tunnel",
        "method": "CONNECT",
        "target": "ok.example:443",
        "status": 200,
        "reason": None,
        "rule": "ok.example",
        "grant": "g1",
        "address": "1.1.1.1",
        "detail": "",
    }


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_is_recorded_as_a_refusal(reason: Reason) -> None:
    record = record_of(Decided("r", Client(), "", None, None, None, 400, reason))
    assert (record["verdict"], record["reason"]) == ("deny", reason.value)


@pytest.mark.parametrize("event", EXAMPLES)
def test_an_event_cannot_be_changed_once_it_happened(event: Event) -> None:
    name = dataclasses.fields(event)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(event, name, "other")
