"""One line per decision, whatever stands in it, and never a wait for the reader."""

import io
import json
import logging
import os
import sys
import time
import warnings
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
    SandboxChanged,
    ServiceChanged,
)
from egress_proxy.core.host import parse_authority
from egress_proxy.logs import LINE_LIMIT_BYTES, Verbosity, decision_log, show_faults_of_others

TARGET = parse_authority("api.x.com:443")
ANYBODY = Client()
NOW = 1_700_000_000.25


def decided(reason: Reason | None = None, client: Client = ANYBODY, **more: object) -> Decided:
    values: dict[str, object] = {"target": TARGET, "rule": None, "detail": "", "peer": "127.0.0.1:5", **more}
    status = 200 if reason is None else 403
    return Decided(
        "r-1",
        client,
        door=Door.TUNNEL,
        method="CONNECT",
        status=status,
        reason=reason,
        **values,  # type: ignore[arg-type]
    )


class Terminal(io.StringIO):
    def __init__(self, encoding: str = "utf-8") -> None:
        super().__init__()
        self._encoding = encoding

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def lines(
    *events: Event,
    verbosity: Verbosity = Verbosity.NORMAL,
    stream: io.StringIO | None = None,
    color: bool = False,
) -> list[str]:
    stream = stream if stream is not None else io.StringIO()
    show = decision_log(verbosity, stream, lambda: NOW, color=color)
    for event in events:
        show(event)
    return stream.getvalue().splitlines()


def test_a_refusal_on_a_terminal_is_one_short_line() -> None:
    assert lines(decided(Reason.NOT_LISTED, Client("a1")), stream=Terminal()) == [
        "22:13:20 ✗ api.x.com:443 not_listed  agent=a1"
    ]


def test_an_allowed_one_names_the_entry_where_it_says_more() -> None:
    events = (decided(rule="*.x.com"), decided(rule="api.x.com:443", client=Client(label="bob")))
    assert lines(*events, stream=Terminal()) == [
        "22:13:20 ✓ api.x.com:443 *.x.com",
        "22:13:20 ✓ api.x.com:443  agent=bob",
    ]


def test_a_terminal_without_unicode_gets_ascii() -> None:
    events = (decided(Reason.NOT_LISTED), decided(), Faulted("r", "OSError", "x.py:1"))
    for encoding in ("ascii", "no-such-encoding"):
        assert [line[9] for line in lines(*events, stream=Terminal(encoding))] == ["x", "+", "."]


def test_colours_are_given_only_where_they_are_welcome() -> None:
    event = decided(Reason.NOT_LISTED)
    assert "\x1b[31m✗\x1b[0m" in lines(event, stream=Terminal(), color=True)[0]
    assert "\x1b" not in lines(event, stream=Terminal(), color=False)[0]
    assert "\x1b" not in lines(event, color=True)[0]


def test_elsewhere_it_is_json_with_the_fields_of_the_event() -> None:
    (line,) = lines(decided(Reason.NOT_LISTED, Client("a1", "bob")))
    record = json.loads(line)
    assert list(record)[:2] == ["time", "kind"]
    assert record["time"] == "2023-11-14T22:13:20.250Z"
    assert (record["kind"], record["verdict"], record["reason"]) == ("decision", "deny", "not_listed")
    assert (record["target"], record["client"], record["label"]) == ("api.x.com:443", "a1", "bob")


QUIET_ONES: list[Event] = [Faulted("r", "OSError", "x.py:1"), Reloaded("bad settings", 0)]
USUAL_ONES: list[Event] = [
    decided(),
    decided(Reason.NOT_LISTED),
    Reloaded("", 2),
    SandboxChanged(Client("sandbox-1", "npm test"), "attached", 71),
    ServiceChanged("started", ""),
    Ended("r", ANYBODY, TARGET, Door.ABSOLUTE, EndCause.REFLECTION, 1, 2, 0.5),
]
MORE_ONES: list[Event] = [
    Ended("r", ANYBODY, TARGET, Door.TUNNEL, EndCause.DONE, 1, 2, 0.5),
    Noticed("r", ANYBODY, TARGET, "unnamed"),
    Granted("g-1", "a.example", None, None, None, "why"),
    GrantEnded("g-1", "a.example", "revoked", 1),
    ControlRefused("127.0.0.1:5", "POST", "/allow", 401),
]


@pytest.mark.parametrize(
    ("verbosity", "shown"),
    [
        (Verbosity.QUIET, QUIET_ONES),
        (Verbosity.NORMAL, [*QUIET_ONES, *USUAL_ONES]),
        (Verbosity.VERBOSE, [*QUIET_ONES, *USUAL_ONES, *MORE_ONES]),
    ],
)
def test_q_silences_and_v_adds(verbosity: Verbosity, shown: list[Event]) -> None:
    everything: list[Event] = [*QUIET_ONES, *USUAL_ONES, *MORE_ONES]
    for stream in (io.StringIO(), Terminal()):
        assert len(lines(*everything, verbosity=verbosity, stream=stream)) == len(shown)


NASTY = "a\nb\r\x1b[2J\u2028\x85\x00\x7f\udcff" + "é" * 8192


@pytest.mark.parametrize("terminal", [True, False])
def test_nothing_in_an_event_makes_a_second_line_or_moves_a_cursor(terminal: bool) -> None:
    events = (
        decided(Reason.MALFORMED, Client(label=NASTY), detail=NASTY, rule=NASTY, peer=NASTY, target=None),
        Noticed("r", ANYBODY, TARGET, NASTY),
        ControlRefused(NASTY, NASTY, NASTY, 401),
    )
    stream = Terminal() if terminal else io.StringIO()
    shown = lines(*events, verbosity=Verbosity.VERBOSE, stream=stream)
    assert stream.getvalue().count("\n") == len(shown) == len(events)
    for line in shown:
        assert len(line.encode()) <= LINE_LIMIT_BYTES
        assert line.isprintable()
        if not terminal:
            assert line.isascii()
            json.loads(line)


def test_a_reader_that_has_stopped_costs_lines_and_no_time() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        show = decision_log(Verbosity.NORMAL, stream, lambda: NOW)
        for _ in range(2_000):  # far more than a pipe holds
            show(decided(Reason.NOT_LISTED))
        kept = os.read(reading, 1 << 20)
        show(decided())
        after = os.read(reading, 1 << 20).decode().splitlines()
    os.close(reading)
    assert all(json.loads(line)["kind"] == "decision" for line in kept.decode().splitlines())
    lost = 2_000 - kept.count(b"\n")
    assert after[0] == f"({lost} lines were lost here)"
    assert json.loads(after[1])["verdict"] == "allow"


def test_a_closed_stderr_ends_nothing() -> None:
    reading, writing = os.pipe()
    stream = os.fdopen(writing, "w")
    show = decision_log(Verbosity.NORMAL, stream, lambda: NOW)
    os.close(reading)
    show(decided())
    stream.close()
    show(decided())


@pytest.fixture
def others() -> Iterator[io.StringIO]:
    """What libraries log, and what Python itself complains of, through our stream."""
    handlers, hook = logging.root.handlers[:], sys.unraisablehook
    stream = io.StringIO()
    show_faults_of_others(Verbosity.NORMAL, stream, lambda: NOW)
    yield stream
    logging.captureWarnings(False)
    logging.root.handlers[:], sys.unraisablehook = handlers, hook


def test_lines_of_libraries_hold_no_values_and_no_tracebacks(others: io.StringIO) -> None:
    logger = logging.getLogger("asyncio")
    try:
        raise ValueError("CANARY")
    except ValueError:
        logger.exception("Task exception was never retrieved\nfuture: <Task exception=ValueError('CANARY')>")
    logger.error("sending %r failed", b"CANARY")
    logger.info("not worth a line")
    first, second = (json.loads(line) for line in others.getvalue().splitlines())
    assert first["message"] == "Task exception was never retrieved"
    assert (first["error"], first["where"].partition(":")[0]) == ("ValueError", "test_logs.py")
    assert (second["source"], second["message"]) == ("asyncio", "sending %r failed")
    assert "CANARY" not in others.getvalue()


def test_python_s_own_complaints_are_one_line_too(others: io.StringIO) -> None:
    class Fault:
        exc_value = ValueError("CANARY")

    sys.unraisablehook(Fault())  # type: ignore[arg-type]
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old\nand CANARY", DeprecationWarning, stacklevel=1)
    assert len(others.getvalue().splitlines()) == 2
    assert "CANARY" not in others.getvalue()
