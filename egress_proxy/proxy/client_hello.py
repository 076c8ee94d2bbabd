"""The server name of a tunnel's first flight, read by OpenSSL through a memory BIO. No parser of ours.

Nothing is decided here: sni_policy.py judges what comes out. Next: relay.py, which holds the bytes back.
"""

import contextlib
import ssl
import sys
from collections.abc import Iterator

from egress_proxy.core.sni_policy import Hello, OtherFlight

# A post-quantum hello has 2 KiB, an absurd one 20; TLS allows 2^24, which nobody may make us hold:
# half a hello costs a tunnel what has come of it, and no more than this.
HELLO_LIMIT_BYTES = 24_576
# Record types of TLS (RFC 8446 5.1). Servers skip an alert in front of a hello, and some take any version in
# a record's header: whatever begins as TLS is a hello that we can read, or is refused.
_TLS_RECORDS = range(0x14, 0x19)
_HANDSHAKE = 0x16


class _NameTaker:
    """A server context that reads the hello and answers nothing. Synchronous: one hello at a time."""

    def __init__(self) -> None:
        self.seen: list[str | None] = []
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # Only names are read here, so every hello that some server would take must be readable.
        self.context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        self.context.set_ciphers("ALL:@SECLEVEL=0")
        self.context.sni_callback = self._take

    def _take(self, _tls: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> int:
        self.seen.append(name)
        return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR  # stop here: we are not the server


_TAKER: list[_NameTaker] = []  # made on the first hello: a service without TLS tunnels never pays for it


class FirstFlight:
    """Collects the first client bytes of one tunnel until it is known what they are."""

    __slots__ = ("held",)

    def __init__(self) -> None:
        self.held = b""

    def feed(self, data: bytes) -> Hello | OtherFlight | None:
        """What the flight is; None while more bytes are needed. ``held`` has all bytes so far."""
        self.held += data
        if not self.held:
            return None
        if self.held[0] not in _TLS_RECORDS:
            return OtherFlight.NOT_TLS
        if self.held[0] != _HANDSHAKE:
            return OtherFlight.UNREADABLE
        flight = _handshake(self.held)
        # A whole hello is one, however much came behind it: data that does not wait for an answer (0-RTT).
        is_too_long = flight is None and len(self.held) > HELLO_LIMIT_BYTES
        return OtherFlight.UNREADABLE if is_too_long else flight


def _handshake(held: bytes) -> Hello | OtherFlight | None:
    """Read it from its beginning each time: OpenSSL's own state of half a hello is three times as large."""
    taker = _taker()
    incoming = ssl.MemoryBIO()
    incoming.write(held)
    taker.seen.clear()
    try:
        with _without_traceback():
            taker.context.wrap_bio(incoming, ssl.MemoryBIO(), server_side=True).do_handshake()
    except ssl.SSLWantReadError:
        return None
    except ssl.SSLError:
        pass
    return Hello(taker.seen[0]) if taker.seen else OtherFlight.UNREADABLE


@contextlib.contextmanager
def _without_traceback() -> Iterator[None]:
    """For a name that is not ASCII `ssl` calls no callback, but has a traceback printed for each hello."""
    before = sys.unraisablehook

    def hook(unraisable: "sys.UnraisableHookArgs") -> None:
        is_name = isinstance(unraisable.object, bytes)
        if not (is_name and isinstance(unraisable.exc_value, UnicodeDecodeError)):
            before(unraisable)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before


def _taker() -> _NameTaker:
    if not _TAKER:
        _TAKER.append(_NameTaker())
    return _TAKER[0]
