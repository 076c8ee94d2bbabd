"""Rules of core/event_record.py: an event is recorded flat, in one line, under fixed names.

See test_events.py for what an event may be, and for one of each kind.
"""

import dataclasses
import json

import pytest

from egress_proxy.core import event_record
from egress_proxy.core.access import Client
from egress_proxy.core.decision import Reason
from egress_proxy.core.event_record import record_of
from egress_proxy.core.events import Decided, Event
from tests.egress_proxy.core.test_events import EXAMPLES, KINDS


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
    assert event_record._KINDS.keys() == set(KINDS)


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
