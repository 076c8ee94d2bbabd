"""What people see on stderr while the service runs: one line per decision, and the faults of others.

Never waits: a reader that has stopped costs lines, not service. Shows nothing that core/events.py
cannot hold. Imported by cli/ only. Next: core/events.py (what is shown), proxy/audit.py (the record).
"""

import contextlib
import enum
import functools
import json
import logging
import os
import select
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, TextIO

import structlog

from egress_proxy.core.event_record import record_of
from egress_proxy.core.events import (
    ControlRefused,
    EndCause,
    Ended,
    Event,
    Faulted,
    Granted,
    GrantEnded,
    Noticed,
    Reloaded,
    ServiceChanged,
)
from egress_proxy.core.seams import Now
from egress_proxy.core.timestamp import timestamp

# Up to this length (PIPE_BUF) lines of several writers do not mix in a pipe, and no write waits.
LINE_LIMIT_BYTES = 4_000
_FIELD_LIMITS = (400, 100, 20)
_TERMINAL_FIELD_LIMIT = 200

_GREEN, _RED, _PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[0m"


class Verbosity(enum.IntEnum):
    """Which events are shown; the values are levels of `logging`."""

    QUIET = logging.ERROR
    NORMAL = logging.INFO
    VERBOSE = logging.DEBUG


_LEVELS: dict[type[Event], int] = {
    Faulted: logging.ERROR,
    Ended: logging.DEBUG,
    Noticed: logging.DEBUG,
    Granted: logging.DEBUG,
    GrantEnded: logging.DEBUG,
    ControlRefused: logging.DEBUG,
}


def _level(event: Event) -> int:
    if isinstance(event, Reloaded):
        return logging.ERROR if event.error else logging.INFO
    if isinstance(event, ServiceChanged) and event.change.startswith("audit_"):
        return logging.ERROR
    if isinstance(event, Ended) and event.reason is not None:
        return logging.INFO  # it was refused after all: by what TLS named, or by what the upstream did
    if isinstance(event, Ended) and event.cause is EndCause.REFLECTION:
        return logging.INFO  # the client sees no more than a reset
    return _LEVELS.get(type(event), logging.INFO)


def decision_log(
    verbosity: Verbosity, stream: TextIO, now: Now, *, color: bool = False
) -> Callable[[Event], None]:
    """A sink that shows events. ``color``: colours on a terminal are welcome. Raises nothing."""
    logger = _logger(verbosity, stream, now, color)

    def show(event: Event) -> None:
        level = _level(event)
        if level >= verbosity:
            record = record_of(event)
            logger.log(level, record.pop("kind"), **record)

    return show


def show_faults_of_others(verbosity: Verbosity, stream: TextIO, now: Now) -> None:
    """Lines of libraries, too, become one line each, without values and without tracebacks."""
    others = _Others(_logger(verbosity, stream, now, color=False))
    others.setLevel(max(verbosity, logging.WARNING))
    logging.root.handlers[:] = [others]
    logging.captureWarnings(True)
    sys.unraisablehook = lambda fault: others.show(
        "python", "an exception nobody could catch", fault.exc_value
    )


class _Others(logging.Handler):
    """Shows the template of a message and the kind of an exception. What stands in them may be
    anything: asyncio writes the arguments of callbacks, and with them bytes of requests."""

    def __init__(self, logger: Any) -> None:
        super().__init__()
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self.show(record.name, str(record.msg).partition("\n")[0], error)

    def show(self, source: str, message: str, error: BaseException | None) -> None:
        fault = type(error).__name__ if error is not None else None
        where = _place(error.__traceback__) if error is not None else None
        self._logger.error("log", source=source, message=message, error=fault, where=where)


def _place(trace: TracebackType | None) -> str | None:
    frames = traceback.extract_tb(trace)
    return f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else None


Render = Callable[[Any, str, Mapping[str, Any]], str]
"""A structlog renderer: logger, method, event dictionary."""


def _logger(verbosity: Verbosity, stream: TextIO, now: Now, color: bool) -> Any:
    render: Render = _Json(now)
    if stream.isatty():
        render = _Terminal(now, color, _can_encode(stream))
    return structlog.wrap_logger(
        _Lines(stream),
        processors=[render],
        wrapper_class=structlog.make_filtering_bound_logger(verbosity),
        cache_logger_on_first_use=True,
    ).bind()


def _can_encode(stream: TextIO) -> bool:
    try:
        "✓✗·".encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


class _Json:
    """One object per line; escapes keep it ASCII and in one line."""

    def __init__(self, now: Now) -> None:
        self._now = now

    def __call__(self, _: Any, __: str, event: Mapping[str, Any]) -> str:
        when = timestamp(self._now())
        record = {"time": when.replace("+00:00", "Z"), "kind": event["event"], **event}
        del record["event"]
        line = ""
        for limit in _FIELD_LIMITS:
            line = json.dumps({name: _capped(value, limit) for name, value in record.items()})
            if len(line) <= LINE_LIMIT_BYTES:
                break
        return line.replace("\x7f", "\\u007f")


class _Terminal:
    """`12:03:04 ✗ api.x.com:443 not_listed  agent=a1`."""

    def __init__(self, now: Now, color: bool, symbols: bool) -> None:
        self._now = now
        yes, no, self._other = "✓✗·" if symbols else "+x."
        self._marks = {"allow": yes, "deny": no}
        if color:
            self._marks = {"allow": f"{_GREEN}{yes}{_PLAIN}", "deny": f"{_RED}{no}{_PLAIN}"}

    def __call__(self, _: Any, __: str, event: Mapping[str, Any]) -> str:
        clock = _clock(int(self._now()))
        if event["event"] != "decision":
            return f"{clock} {self._other} {event['event']}{_pairs(event)}"
        target, agent = event["target"], event["client"]
        if agent == "anonymous":
            agent = event["label"]
        # The entry that matched is worth a word only where it is not the target itself.
        why = event["reason"] or ("" if event["rule"] == target else event["rule"])
        words = [_shown(target or "(no target)"), _shown(why or "")]
        line = f"{clock} {self._marks[event['verdict']]} {' '.join(filter(None, words))}"
        return f"{line}  agent={_shown(agent)}" if agent else line


def _pairs(event: Mapping[str, Any]) -> str:
    return "".join(
        f" {name}={_shown(str(value))}"
        for name, value in event.items()
        if name != "event" and value not in (None, "")
    )


@functools.lru_cache(maxsize=2)
def _clock(second: int) -> str:
    return time.strftime("%H:%M:%S", time.localtime(second))


def _capped(value: object, limit: int) -> object:
    return value[:limit] if isinstance(value, str) else value


def _shown(text: str) -> str:
    """Printable ASCII: escapes of a terminal and line ends would forge what a person reads."""
    if not (text.isascii() and text.isprintable()):
        text = text.encode("unicode_escape").decode()
    return text[:_TERMINAL_FIELD_LIMIT]


class _Lines:
    """Whole lines to a stream, never waiting for its reader."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._rest = b""
        self._lost = 0
        try:
            self._descriptor = stream.fileno()
        except (OSError, ValueError):
            self._descriptor = -1

    def log(self, line: str) -> None:
        text = line + "\n"
        with contextlib.suppress(OSError, ValueError):  # a closed stderr ends no connection
            if self._descriptor < 0:
                self._stream.write(text)
            else:
                self._send(text.encode("utf-8", "backslashreplace"))

    debug = info = warning = error = critical = log

    def _send(self, line: bytes) -> None:
        lost, self._lost = self._lost, self._lost + 1  # until it is out
        if not select.select((), (self._descriptor,), (), 0)[1]:
            return
        notice = b"(%d lines were lost here)\n" % lost if lost else b""
        data = self._rest + notice + line
        self._rest = data[os.write(self._descriptor, data) :]
        self._lost = 0
