"""What must hold for any bytes, one function a parser. Each says whether the bytes were taken.

No atheris here, so that ordinary tests can call them. Next: __main__.py (mutates), test_fuzz.py (seeds).
"""

from collections.abc import Callable

import h11

from egress_proxy.core.host import HostError, Name, parse_authority
from egress_proxy.core.request import Framing, RequestError, body_framing, parse_head
from egress_proxy.core.rules import Ports, RuleError, Suffix, parse_rule


class Broken(AssertionError):
    """A parser did what it never may. The message holds the input."""


def hold(truth: bool, data: bytes) -> None:
    if not truth:
        raise Broken(repr(data))


def authority(data: bytes) -> bool:
    """A target is its own canonical text, or is refused with HostError and nothing else."""
    text = data.decode("latin-1")
    try:
        target = parse_authority(text)
    except HostError:
        return False
    hold(text.isascii() and text.isprintable() and " " not in text, data)
    hold(parse_authority(str(target)) == target and 0 < target.port < 65536, data)
    if isinstance(target.host, Name):
        labels = target.host.text.split(".")
        hold(all(0 < len(label) < 64 for label in labels) and not labels[-1].isdigit(), data)
        hold(text.lower().startswith(target.host.text), data)
    return True


def rule(data: bytes) -> bool:
    """An entry reads back as itself, names no whole top level, and its star stands in front alone."""
    text = data.decode("utf-8", "replace")
    try:
        entry = parse_rule(text, lambda _: Suffix.NONE)
    except RuleError as refusal:
        hold(repr(text) in str(refusal) and str(refusal).isprintable(), data)
        return False
    hold(parse_rule(str(entry), lambda _: Suffix.NONE, bare_ports=Ports.ANY).host == entry.host, data)
    hold(parse_rule(str(entry), lambda _: Suffix.NONE) == entry, data)
    hold("*" not in str(entry.host) and (not entry.scope or "." in str(entry.host)), data)
    return True


def head(data: bytes) -> bool:
    """A head that is taken with its body length is the same request, framed the same, to h11."""
    try:
        parsed = parse_head(data)
        framing = body_framing(parsed)
    except RequestError:
        return False
    hold(
        data.count(b"\r\n\r\n") == 1 and data.count(b"\n") == data.count(b"\r\n") == len(parsed.headers) + 2,
        data,
    )
    event = _read_by_h11(data, lend_host=parsed.version == (1, 1) and not parsed.values(b"host"))
    hold(event is not None, data)
    assert event is not None
    hold((event.method, event.target) == (parsed.method.encode(), parsed.target), data)
    seen = dict(event.headers)
    hold((seen.get(b"transfer-encoding") == b"chunked") is (framing is Framing.CHUNKED), data)
    hold(framing is Framing.CHUNKED or int(seen.get(b"content-length", b"0")) == framing, data)
    return True


def _read_by_h11(data: bytes, lend_host: bool) -> h11.Request | None:
    server = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    server.receive_data(data[:-2] + b"Host: lent\r\n\r\n" if lend_host else data)
    try:
        event = server.next_event()
    except h11.RemoteProtocolError:
        return None
    return event if isinstance(event, h11.Request) else None


TARGETS: dict[str, Callable[[bytes], bool]] = {"authority": authority, "rule": rule, "head": head}
