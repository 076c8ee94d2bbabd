"""Text to Target: the only parser of hosts and ports in the product.

No lookups, no lists, no wildcards here: entries of lists are read in rules.py, which calls this file.
Next: rules.py (entries), request.py (where a target's text comes from), address.py (what an IP is).
"""

import functools
import re
from dataclasses import dataclass, field
from ipaddress import AddressValueError, IPv4Address, IPv6Address

# RFC 1035 2.3.4; a name of 254 octets cannot be sent in a query.
NAME_LIMIT = 253
LABEL_LIMIT = 63

# Letters, digits, hyphen inside (RFC 1123 2.1) and the underscore, which real hosts use.
# fullmatch everywhere: `$` also matches before a final line end.
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?")
_IPV4 = re.compile(r"(?:0|[1-9][0-9]{0,2})(?:\.(?:0|[1-9][0-9]{0,2})){3}")
_IPV6 = re.compile(r"[0-9a-f:.]{2,45}")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
# What resolvers of the C library read as a number in any base: 2130706433, 0x7f.1, 127.1
# (WHATWG URL, "ends in a number"). Such text is a strict dotted quad or nothing.
_NUMBER_LIKE = re.compile(r"[0-9]+|0x.*")


class HostError(ValueError):
    """The text is no host, port or target. The message says why and is safe to show."""


@dataclass(frozen=True, slots=True)
class Name:
    """A DNS name: lower-case ASCII, no trailing dot, not an address. Made by `parse_host` only."""

    text: str

    def __str__(self) -> str:
        return self.text


Host = Name | IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class Target:
    """Where a client wants to go. ``port`` is 1..65535."""

    host: Host
    port: int
    # Made once: two lines of the log name the target of every connection, and addresses are slow to print.
    _text: str = field(default="", init=False, repr=False, compare=False)

    def __str__(self) -> str:
        if not self._text:
            object.__setattr__(self, "_text", f"{host_text(self.host)}:{self.port}")
        return self._text


def host_text(host: Host) -> str:
    """The canonical spelling, IPv6 in brackets: `[A-Za-z0-9._-]` or a bracketed literal."""
    return f"[{host}]" if isinstance(host, IPv6Address) else str(host)


# Pure, and asked for every connection of an agent that talks to a dozen hosts: a tenth of a CONNECT.
@functools.lru_cache(maxsize=4096)
def parse_authority(text: str) -> Target:
    """Read `host:port`, `[v6]:port` or `v6:port` (RFC 9112 3.2.3; some clients leave the brackets off).

    Split at the last colon, so an address without a port never passes for one with a port.
    """
    host, colon, port = text.rpartition(":")
    if not colon:
        raise HostError("the target names no port")
    if ":" in host and not host.startswith("["):
        return Target(_parse_ipv6(host), parse_port(port))
    return Target(parse_host(host), parse_port(port))


@functools.lru_cache(maxsize=256)
def parse_web_authority(text: str, default_port: int) -> Target:
    """Read an authority as in a URL or a Host header: like `parse_authority`, but the port may be missing.

    Remembered: twice a request it is the host of one of a few rules, and costs a tenth of all of it.
    """
    if ":" not in text or text.endswith("]"):
        return Target(parse_host(text), default_port)
    return parse_authority(text)


def parse_port(text: str) -> int:
    """1..65535 in ASCII digits without a leading zero."""
    # The pattern comes first: int() takes Arabic digits, blanks, underscores and signs.
    if not _PORT.fullmatch(text) or int(text) > 65535:
        raise HostError("the port is not a number from 1 to 65535")
    return int(text)


def parse_host(text: str) -> Host:
    """Read a name, a dotted quad or a bracketed IPv6 literal; one trailing dot of a name is dropped."""
    if text.startswith("["):
        if not text.endswith("]"):
            raise HostError("a bracket is not closed")
        return _parse_ipv6(text[1:-1])
    name = text.lower() if text.isascii() else ""
    dotted = name.endswith(".")
    name = name.removesuffix(".")
    labels = name.split(".")
    if len(name) > NAME_LIMIT or any(len(label) > LABEL_LIMIT for label in labels):
        raise HostError(f"a name has at most {NAME_LIMIT} characters, a label {LABEL_LIMIT}")
    if not all(_LABEL.fullmatch(label) for label in labels):
        raise HostError("the host is neither a name of ASCII letters, digits, - and _ nor an address")
    if not _NUMBER_LIKE.fullmatch(labels[-1]):
        return Name(name)
    if dotted or not _IPV4.fullmatch(name):
        raise HostError("the host looks like a number but is not a dotted quad")
    try:
        return IPv4Address(name)
    except AddressValueError:
        raise HostError("the host looks like a number but is not a dotted quad") from None


def _parse_ipv6(text: str) -> IPv4Address | IPv6Address:
    """Read a literal without brackets; a mapped one (RFC 4291 2.5.5.2) is the IPv4 host that it reaches."""
    # The pattern comes first: IPv6Address accepts a zone id (CVE-2025-22870).
    folded = text.lower() if text.isascii() else ""
    if not _IPV6.fullmatch(folded):
        raise HostError("brackets may hold an IPv6 address and nothing else")
    try:
        address = IPv6Address(folded)
    except AddressValueError:
        raise HostError("brackets may hold an IPv6 address and nothing else") from None
    # Else a deny entry for 192.0.2.1 would not see [::ffff:192.0.2.1], which the kernel dials as the same.
    return address if address.ipv4_mapped is None else address.ipv4_mapped
