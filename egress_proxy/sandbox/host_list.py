"""The lists of hosts that a sandbox is given: entries in the grammar of core/rules.py, and what they come to.

Nothing is enforced here: kernels and Seatbelt know ports and loopback, the proxy knows names. Next:
../core/rules.py (the grammar), seatbelt.py (which rules an entry becomes).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from egress_proxy.core.host import Name
from egress_proxy.core.rules import WEB_PORTS, Ports, Rule, Suffix, SuffixLookup, parse_rule

# This machine and nothing else, whatever a resolver says. Reports differ on whether the word `localhost` of a
# Seatbelt rule covers 127.0.0.2: it counts as any other address.
LOOPBACK = frozenset({Name("localhost"), IPv4Address("127.0.0.1"), IPv6Address("::1")})


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One entry as an operating system can hold it. ``ports``: ascending; None is every port.

    ``entry``: the entry in canonical form, of `[A-Za-z0-9._*:-]` and brackets alone.
    """

    entry: str
    loopback: bool
    ports: tuple[int, ...] | None


def read_host_list(entries: Iterable[str], suffix_of: SuffixLookup | None = None) -> tuple[Endpoint, ...]:
    """The entries in their order. Raises RuleError, a ValueError whose message names the bad one.

    ``suffix_of``: the public-suffix list. Without it `*.co.uk` passes, and comes to the same as any other
    name does where no host is matched: its ports.
    """
    return tuple(_endpoint(parse_rule(entry, suffix_of or _unlisted)) for entry in entries)


def _unlisted(_: str) -> Suffix:
    return Suffix.NONE


def _endpoint(rule: Rule) -> Endpoint:
    # No wildcard can have one of these hosts: the grammar has none over an address or a single label.
    return Endpoint(str(rule), rule.host in LOOPBACK, _ports(rule))


def _ports(rule: Rule) -> tuple[int, ...] | None:
    match rule.ports:
        case Ports.ANY:
            return None
        case Ports.WEB:
            return tuple(sorted(WEB_PORTS))
        case int() as only:
            return (only,)
