"""The quick writer says just what the json module would, for every kind of event and whatever is in it."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any, get_args, get_type_hints

from hypothesis import given
from hypothesis import strategies as st

from egress_proxy.core import events
from egress_proxy.core.access import Client
from egress_proxy.core.event_record import record_of
from egress_proxy.core.events import Event
from egress_proxy.core.host import Target, parse_authority
from egress_proxy.proxy.audit_line import line_of

TARGETS = [parse_authority(text) for text in ("ok.example:443", "127.0.0.1:80", "[::1]:8080")]
st.register_type_strategy(Target, st.sampled_from(TARGETS))
st.register_type_strategy(Client, st.builds(Client, st.text(), st.text()))
st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))


def any_event() -> st.SearchStrategy[Event]:
    return st.one_of([st.builds(kind, **arguments(kind)) for kind in get_args(Event)])


def arguments(kind: type[Any]) -> dict[str, st.SearchStrategy[Any]]:
    hints = get_type_hints(kind, vars(events))
    return {part.name: st.from_type(hints[part.name]) for part in fields(kind)}


@given(any_event(), st.integers(0, 10**12))
def test_a_line_is_the_record_between_its_number_and_its_link(event: Event, number: int) -> None:
    line = line_of(event, number, "2026-01-02T03:04:05.678+00:00", "0" * 64)
    expected = {"seq": number, "time": "2026-01-02T03:04:05.678+00:00", **record_of(event), "prev": "0" * 64}
    assert json.loads(line) == expected
    assert list(json.loads(line)) == list(expected)


@given(any_event())
def test_a_line_is_one_line_of_printable_ascii(event: Event) -> None:
    line = line_of(event, 1, "now", "0")
    assert line.isascii()
    assert all(0x20 <= octet < 0x7F for octet in line)
