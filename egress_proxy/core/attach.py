"""What a sandbox and the proxy say to each other over the attach socket: message types and their codec.

One connection is one sandbox; its end is the sandbox's end. Next: proxy/attachments.py (the proxy's side),
sandbox/attach_client.py (the caller's side), sandbox/launcher.py (hands the listener out).
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TypeVar

VERSION = 1
NAMING_VERSION = 2
"""Of a hello that asks which files are the proxy's own, and of its answer; all else is as in the first."""
HAND_OUT = b"L"
"""The one byte that carries the listener's descriptor, from inside the sandbox to the proxy."""
TAKEN = b"K"
"""The one byte that says that the proxy accepts on it."""
LINE_LIMIT = 4096
"""Bytes of a hello or welcome line, with its line end. Nobody who may speak here needs more."""
REPORT_LIMIT = 1 << 20
"""Bytes of the report with its line end: both lists full of the longest hosts, with room to spare."""
HOSTS_LIMIT = 1000
"""Destinations in each list of a report. A command that reaches more is told how many more."""
LABEL_LIMIT = 64
SANDBOX_PREFIX = "sandbox-"
"""What ids of sandboxes begin with, a number follows. No client of the settings may have such a name."""


class AttachError(ValueError):
    """What came is no message of this protocol."""


@dataclass(frozen=True, slots=True)
class Hello:
    """The caller's first line. ``label`` is for people: which command this is. ``names``: whether the answer
    shall name the proxy's own files, which a proxy of the first version refuses to be asked."""

    label: str = ""
    names: bool = False


@dataclass(frozen=True, slots=True)
class OwnFiles:
    """Absolute paths that no sandbox may have. ``secret``: not to be read; ``kept``: not to be
    written, as the settings file and the audit log."""

    secret: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Welcome:
    """The proxy's answer. ``client``: the id that grants can be scoped to; ``port``: the data port's;
    ``own``: told to whom asked for it."""

    client: str
    port: int
    own: OwnFiles | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """The proxy's other answer: it takes no sandbox now, and why."""

    error: str


@dataclass(frozen=True, slots=True)
class HostUse:
    """One destination of a sandbox: connections and bytes, as the command sent and received them."""

    host: str
    port: int
    connections: int
    bytes_out: int = 0
    bytes_in: int = 0


@dataclass(frozen=True, slots=True)
class HostDenial:
    """One destination that was refused: how often, and the reason's code of the last time."""

    host: str
    port: int
    times: int
    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    """The proxy's last line, after the caller has ended its direction. ``dropped``: how many connections and
    denials were of destinations beyond the limit, which are not listed."""

    reached: tuple[HostUse, ...] = ()
    denied: tuple[HostDenial, ...] = ()
    dropped: int = 0


_Flat = TypeVar("_Flat", Refused, HostUse, HostDenial)


def clean_label(text: str) -> str:
    """A label as people may see it: printable ASCII, and not long."""
    return "".join(c if c.isascii() and c.isprintable() else "?" for c in text[:LABEL_LIMIT])


def encode_hello(hello: Hello) -> bytes:
    return _line({"label": clean_label(hello.label)}, NAMING_VERSION if hello.names else VERSION)


def parse_hello(line: bytes) -> Hello:
    """``line`` with its end. Raises AttachError, as all of these do for what is no such message."""
    version, message = _versioned(line, LINE_LIMIT)
    match message:
        case {"label": str(label), **rest} if not rest:
            return Hello(clean_label(label), version == NAMING_VERSION)
        case _:
            raise AttachError("a Hello has the field label")


def encode_answer(answer: Welcome | Refused) -> bytes:
    if isinstance(answer, Refused):
        return _line(asdict(answer))
    welcome: dict[str, object] = {"client": answer.client, "port": answer.port}
    if answer.own is None:
        return _line(welcome)
    return _line({**welcome, **asdict(answer.own)}, NAMING_VERSION)


def parse_answer(line: bytes) -> Welcome | Refused:
    version, message = _versioned(line, REPORT_LIMIT)
    if "error" in message:
        return _flat(Refused, message)
    own = OwnFiles(*(_paths(message, name) for name in ("secret", "kept"))) if version > VERSION else None
    match message:
        case {"client": str(client), "port": int(port), **rest} if not rest and type(port) is int:
            if not client or not 1 <= port <= 65535:
                raise AttachError("the answer names no client or no port")
            return Welcome(client, port, own)
        case _:
            raise AttachError("a Welcome has the fields client, port")


def _paths(message: dict[str, object], name: str) -> tuple[str, ...]:
    paths = message.pop(name, None)
    if not isinstance(paths, list) or not all(isinstance(path, str) and path[:1] == "/" for path in paths):
        raise AttachError(f"{name} is no list of absolute paths")
    return tuple(paths)


def encode_report(report: Report) -> bytes:
    return _line(asdict(report))


def parse_report(line: bytes) -> Report:
    _, message = _versioned(line, REPORT_LIMIT)
    match message:
        case {"reached": list(reached), "denied": list(denied), "dropped": int(dropped), **rest}:
            if rest or type(dropped) is not int or dropped < 0:
                raise AttachError("the report has other parts than it should")
            uses = tuple(_flat(HostUse, one) for one in reached)
            return Report(uses, tuple(_flat(HostDenial, one) for one in denied), dropped)
        case _:
            raise AttachError("the report lacks a part")


def _line(message: Mapping[str, object], version: int = VERSION) -> bytes:
    return json.dumps({"attach": version, **message}, separators=(",", ":")).encode("ascii") + b"\n"


def _versioned(line: bytes, limit: int) -> tuple[int, dict[str, object]]:
    """The version of one line of the protocol, and the rest of its table."""
    if len(line) > limit or line.find(b"\n") != len(line) - 1:
        raise AttachError("that is not one line, or it is too long")
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):  # not UTF-8, no JSON, 5,000 digits; a thousand brackets
        raise AttachError("that is no JSON") from None
    if not isinstance(message, dict):
        raise AttachError("that is no table")
    version = message.pop("attach", None)
    if type(version) is not int or version not in (VERSION, NAMING_VERSION):
        raise AttachError(f"the attach version must be {VERSION} or {NAMING_VERSION}")
    return version, message


def _flat(kind: type[_Flat], table: object) -> _Flat:
    """A message of texts and counts: exactly its fields, of exactly their types."""
    wanted = {part.name: part.type for part in fields(kind)}
    if not isinstance(table, dict) or table.keys() != wanted.keys():
        raise AttachError(f"a {kind.__name__} has the fields {', '.join(wanted)}")
    for name, value in table.items():
        # `true` is an int to isinstance, and no count is below zero.
        if type(value) is not wanted[name] or (isinstance(value, int) and value < 0):
            raise AttachError(f"{name} is no such text or count as it should be")
    return kind(**table)
