"""One allow or deny entry: read it, match a target against it, print it. The only parser of entries.

Nothing here decides: policy.py asks rule_index.py and says yes or no. The public-suffix list opens a file,
so it comes in as a callable. Next: host.py (the grammar of hosts), policy.py (who uses the rules).
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass

from egress_proxy.core.host import Host, HostError, Name, Target, host_text, parse_host, parse_port

WEB_PORTS = frozenset({80, 443})
# The longest entry there is: `**.`, a name of 253 characters with its trailing dot, `:65535`.
ENTRY_LIMIT = 263
_SHOWN = 60  # characters of what is longer: a message that quotes it all says nothing


class RuleError(ValueError):
    """An entry that cannot be used. The message holds the entry and what would be right."""


class Scope(enum.StrEnum):
    """Which names a pattern covers; the value is the prefix it is written with."""

    EXACT = ""
    BELOW = "*."
    APEX_AND_BELOW = "**."


class Ports(enum.Enum):
    """Port sets an entry can have beside a single port."""

    WEB = "80,443"
    ANY = "*"


class Suffix(enum.Enum):
    """What the public-suffix list says of a name. PRIVATE: many tenants share what lies below it."""

    NONE = enum.auto()
    ICANN = enum.auto()
    PRIVATE = enum.auto()


SuffixLookup = Callable[[str], Suffix]


@dataclass(frozen=True, slots=True)
class Rule:
    """An entry. ``private``: names may resolve inward. ``client``: holds for that client alone."""

    scope: Scope
    host: Host
    ports: Ports | int
    private: bool = False
    client: str | None = None
    reason: str = ""

    def __str__(self) -> str:
        text = self.entry_host
        return text if self.ports is Ports.WEB else f"{text}:{self.port_text}"

    @property
    def entry_host(self) -> str:
        """The entry without its ports, as written in canonical form."""
        return self.scope + host_text(self.host)

    @property
    def port_text(self) -> str:
        """The ports, ascending: `80,443`, one number, or `*`."""
        return str(self.ports) if isinstance(self.ports, int) else self.ports.value

    def admits_port(self, port: int) -> bool:
        match self.ports:
            case Ports.ANY:
                return True
            case Ports.WEB:
                return port in WEB_PORTS
            case int() as only:
                return port == only

    def matches(self, target: Target) -> bool:
        """Whether the target is covered. Addresses compare as addresses; wildcards never match them."""
        return self.admits_port(target.port) and self._covers(target.host)

    def _covers(self, host: Host) -> bool:
        if self.scope is Scope.EXACT:
            return host == self.host
        if not isinstance(host, Name) or not isinstance(self.host, Name):
            return False
        # The dot is the boundary: `xwild.example` must not pass for `*.wild.example`.
        below = host.text.endswith("." + self.host.text)
        return below or (self.scope is Scope.APEX_AND_BELOW and host == self.host)

    def covers_hosts_of(self, other: "Rule") -> bool:
        """Whether every host of the other entry is one of this entry's; ports and clients do not count."""
        if other.scope is Scope.EXACT or not isinstance(self.host, Name) or not isinstance(other.host, Name):
            return other.scope is Scope.EXACT and self._covers(other.host)
        if other.host == self.host:
            return self.scope is Scope.APEX_AND_BELOW or self.scope is other.scope
        return self.scope is not Scope.EXACT and other.host.text.endswith("." + self.host.text)


def parse_rule(
    text: str,
    suffix_of: SuffixLookup,
    *,
    bare_ports: Ports = Ports.WEB,
    private: bool = False,
    shared: bool = False,
    client: str | None = None,
    reason: str = "",
) -> Rule:
    """Read `host`, `host:port`, `host:*`, `*.host…` or `**.host…`.

    ``bare_ports`` is what an entry without ports means (allow: 80 and 443; deny: all). ``shared`` admits a
    wildcard under a domain of many tenants. Raises RuleError, whose message names the entry.
    """
    if len(text) > ENTRY_LIMIT:
        raise RuleError(f"invalid entry {text[:_SHOWN]!r}…: with {len(text)} characters longer than any host")
    try:
        rule = _read(text, bare_ports)
    except HostError as error:
        raise RuleError(f"invalid entry {text!r}: {_hint(text) or error}") from None
    if rule.scope is not Scope.EXACT:
        _refuse_broad(text, rule, suffix_of, shared)
    return Rule(rule.scope, rule.host, rule.ports, private, client, reason)


def _read(text: str, bare_ports: Ports) -> Rule:
    scope, rest = _split_scope(text)
    host_part, ports = _split_ports(rest)
    if ":" in host_part and not host_part.startswith("["):
        raise HostError("an IPv6 address is written in brackets, [::1] or [::1]:8080")
    host = parse_host(host_part)
    if scope is not Scope.EXACT and not isinstance(host, Name):
        raise HostError("a wildcard covers names, not addresses")
    return Rule(scope, host, bare_ports if ports is None else _read_ports(ports))


def _split_scope(text: str) -> tuple[Scope, str]:
    for scope in (Scope.APEX_AND_BELOW, Scope.BELOW):
        if text.startswith(scope.value):
            return scope, text.removeprefix(scope.value)
    return Scope.EXACT, text


def _split_ports(text: str) -> tuple[str, str | None]:
    before, colon, after = text.rpartition(":")
    return (text, None) if text.endswith("]") or not colon else (before, after)


def _read_ports(text: str) -> Ports | int:
    return Ports.ANY if text == Ports.ANY.value else parse_port(text)


def _refuse_broad(text: str, rule: Rule, suffix_of: SuffixLookup, shared: bool) -> None:
    name = str(rule.host)
    # `*.kawasaki.jp` covers public suffixes although `kawasaki.jp` is none: ask for a name below, too.
    kinds = {suffix_of(name), suffix_of(f"any.{name}")}
    if "." not in name or Suffix.ICANN in kinds:
        raise RuleError(f"invalid entry {text!r}: it covers a whole public suffix; name a domain below it")
    if Suffix.PRIVATE in kinds and not shared:
        raise RuleError(
            f"invalid entry {text!r}: many tenants share {name}, so anyone could answer; name the host, "
            f"or let the proxy accept that with --allow-shared '{text}' (in its file: shared = true)"
        )


def _hint(text: str) -> str:
    """The better message for what people really write; empty when there is none."""
    if not text:
        return "it is empty"
    if not text.isascii():
        return _punycode_hint(text)
    if "/" in text:
        return "an entry is host or host:port, without scheme or path"
    if "," in text:
        return "one entry holds one host; give several entries"
    if any(c.isspace() for c in text):
        return "an entry holds no blanks"
    if "*" in _split_scope(text)[1].removesuffix(":*"):
        return "a star stands for labels in front (*.host, **.host) or for all ports (host:*), nowhere else"
    return ""


def _punycode_hint(text: str) -> str:
    import idna  # tables of 300 KiB, needed for this message alone

    scope, rest = _split_scope(text)
    name, ports = _split_ports(rest)
    try:
        entry = scope + idna.encode(name.lower()).decode() + ("" if ports is None else f":{ports}")
        _read(entry, Ports.WEB)
    except (idna.IDNAError, HostError):
        return "it is not ASCII"
    return f"it is not ASCII; if you mean it, write {entry}"
