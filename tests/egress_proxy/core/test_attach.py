"""The codec of the attach socket: what is printed is read back, and nothing else is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress_proxy.core.attach import (
    HOSTS_LIMIT,
    LABEL_LIMIT,
    LINE_LIMIT,
    REPORT_LIMIT,
    AttachError,
    Hello,
    HostDenial,
    HostUse,
    OwnFiles,
    Refused,
    Report,
    Welcome,
    clean_label,
    encode_answer,
    encode_hello,
    encode_report,
    parse_answer,
    parse_hello,
    parse_report,
)
from egress_proxy.core.decision import Reason

PARSERS: list[Callable[[bytes], object]] = [parse_hello, parse_answer, parse_report]
COUNTS = st.integers(0, 2**63)
PORTS = st.integers(1, 65535)
WELCOMES = st.builds(Welcome, st.text(min_size=1, max_size=80), PORTS)
USES = st.builds(HostUse, st.text(max_size=253), PORTS, COUNTS, COUNTS, COUNTS)
DENIALS = st.builds(HostDenial, st.text(max_size=253), PORTS, COUNTS, st.sampled_from(Reason).map(str))
REPORTS = st.builds(
    Report, st.lists(USES, max_size=5).map(tuple), st.lists(DENIALS, max_size=5).map(tuple), COUNTS
)
SCALARS = st.none() | st.booleans() | st.integers(-1, 2) | st.floats() | st.text(max_size=5)
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner))


@given(st.text(max_size=200))
def test_a_hello_is_read_as_it_was_printed_with_its_label_cleaned(label: str) -> None:
    assert parse_hello(encode_hello(Hello(label))) == Hello(clean_label(label))


@given(WELCOMES | st.builds(Refused, st.text(max_size=80)))
def test_an_answer_is_read_as_it_was_printed(answer: Welcome | Refused) -> None:
    assert parse_answer(encode_answer(answer)) == answer


@given(REPORTS)
def test_a_report_is_read_as_it_was_printed(report: Report) -> None:
    assert parse_report(encode_report(report)) == report


@given(REPORTS, WELCOMES)
def test_every_message_is_one_line_of_ascii(report: Report, welcome: Welcome) -> None:
    for line in (encode_report(report), encode_answer(welcome)):
        assert line.isascii()
        assert line.index(b"\n") == len(line) - 1


@pytest.mark.parametrize("parse", PARSERS)
@given(octets=st.binary(max_size=64))
def test_bytes_at_random_are_no_message(parse: Callable[[bytes], object], octets: bytes) -> None:
    with pytest.raises(AttachError):
        parse(octets)


@pytest.mark.parametrize("parse", PARSERS)
@given(found=JSON)
def test_json_at_random_is_no_message(parse: Callable[[bytes], object], found: Any) -> None:
    for message in (found, {"attach": 1, "other": found}):
        with pytest.raises(AttachError):
            parse(json.dumps(message).encode() + b"\n")


HELLO: dict[str, Any] = {"attach": 1, "label": "x"}
WELCOME: dict[str, Any] = {"attach": 1, "client": "sandbox-1", "port": 8899}
USE: dict[str, Any] = {"host": "a.example", "port": 443, "connections": 1, "bytes_out": 2, "bytes_in": 3}
REPORT: dict[str, Any] = {"attach": 1, "reached": [USE], "denied": [], "dropped": 0}


def with_use(**changed: Any) -> dict[str, Any]:
    return {**REPORT, "reached": [{**USE, **changed}]}


@pytest.mark.parametrize(
    ("parse", "message"),
    [
        (parse_hello, {"label": "x"}),
        (parse_hello, {**HELLO, "attach": 3}),
        (parse_hello, {**HELLO, "attach": True}),
        (parse_hello, {**HELLO, "attach": 1.0}),
        (parse_hello, {"attach": 1}),
        (parse_hello, {**HELLO, "label": 7}),
        (parse_hello, {**HELLO, "label": None}),
        (parse_hello, {**HELLO, "more": "x"}),
        (parse_hello, [HELLO]),
        (parse_answer, {**WELCOME, "port": 0}),
        (parse_answer, {**WELCOME, "port": 65536}),
        (parse_answer, {**WELCOME, "port": -1}),
        (parse_answer, {**WELCOME, "port": "8899"}),
        (parse_answer, {**WELCOME, "port": True}),
        (parse_answer, {**WELCOME, "client": ""}),
        (parse_answer, {**WELCOME, "error": "both"}),
        (parse_answer, {"attach": 1, "error": None}),
        (parse_report, {**REPORT, "dropped": -1}),
        (parse_report, {**REPORT, "dropped": True}),
        (parse_report, {**REPORT, "more": 1}),
        (parse_report, {**REPORT, "reached": {}}),
        (parse_report, {**REPORT, "denied": [USE]}),
        (parse_report, with_use(bytes_in=-1)),
        (parse_report, with_use(connections=1.5)),
        (parse_report, with_use(host=None)),
        (parse_report, with_use(more=1)),
    ],
)
def test_one_wrong_field_and_it_is_no_message(parse: Callable[[bytes], object], message: Any) -> None:
    with pytest.raises(AttachError):
        parse(json.dumps(message).encode() + b"\n")


def test_the_messages_that_the_wrong_ones_were_made_of_are_right() -> None:
    assert parse_hello(json.dumps(HELLO).encode() + b"\n") == Hello("x")
    assert parse_answer(json.dumps(WELCOME).encode() + b"\n") == Welcome("sandbox-1", 8899)
    assert parse_report(json.dumps(REPORT).encode() + b"\n") == Report((HostUse("a.example", 443, 1, 2, 3),))


@pytest.mark.parametrize(
    "line",
    [
        b'{"attach":1,"label":"x"}',
        b'{"attach":1,"label":"x"}\n\n',
        b'{"attach":1,\n"label":"x"}\n',
        b'{"attach":1,"label":"x"}\n{"attach":1,"label":"x"}\n',
        b'{"attach":1,"label":"' + b"x" * LINE_LIMIT + b'"}\n',
        b'{"attach":1,"label":"\xff"}\n',
        b'{"attach":' + b"1" * 4000 + b',"label":"x"}\n',
        b"[" * (LINE_LIMIT - 1) + b"\n",
        b"\n",
        b"",
    ],
)
def test_what_is_not_one_whole_line_of_json_is_no_message(line: bytes) -> None:
    with pytest.raises(AttachError):
        parse_hello(line)


@pytest.mark.parametrize(
    ("label", "seen"),
    [
        ("npm test", "npm test"),
        ("a\x1b[31m\r\nb\x7f", "a?[31m??b?"),
        ("läuft", "l?uft"),
        ("x" * 100, "x" * LABEL_LIMIT),
    ],
)
def test_a_label_is_printable_ascii_and_short(label: str, seen: str) -> None:
    assert parse_hello(json.dumps({"attach": 1, "label": label}).encode() + b"\n").label == seen
    assert parse_hello(encode_hello(Hello(label))).label == seen


def test_the_longest_report_there_is_stays_below_its_limit() -> None:
    host, most = "x" * 253, 2**63
    longest = max(Reason, key=len)
    uses = (HostUse(host, 65535, most, most, most),) * HOSTS_LIMIT
    report = Report(uses, (HostDenial(host, 65535, most, longest),) * HOSTS_LIMIT, most)
    assert len(encode_report(report)) <= REPORT_LIMIT
    assert parse_report(encode_report(report)) == report


def test_an_answer_that_names_the_proxys_own_files_is_another_version() -> None:
    """So that a caller and a proxy of the first version understand one another as before."""
    welcome = Welcome("sandbox-1", 8899, OwnFiles(("/run/key", "/a\udcff"), ("/etc/egress.toml",)))
    line = encode_answer(welcome)
    assert json.loads(line)["attach"] == 2
    assert parse_answer(line) == welcome
    assert json.loads(encode_answer(Welcome("sandbox-1", 8899)))["attach"] == 1
    assert parse_hello(encode_hello(Hello("x", names=True))) == Hello("x", names=True)
    assert json.loads(encode_hello(Hello("x")))["attach"] == 1


@pytest.mark.parametrize("secret", [None, "/a", ["a"], [1], [["/a"]]])
def test_files_that_are_no_absolute_paths_are_no_answer(secret: object) -> None:
    line = json.dumps({"attach": 2, "client": "c", "port": 1, "secret": secret, "kept": []}).encode() + b"\n"
    with pytest.raises(AttachError):
        parse_answer(line)
