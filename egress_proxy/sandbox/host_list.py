"""The lists of hosts that a sandbox is given: entries in the grammar of core/rules.py, and what they come to.

Nothing is enforced here: kernels and Seatbelt know ports and loopback, the proxy knows names. Next:
../core/rules.py (the grammar), seatbelt.py (which rules an entry becomes).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from egress_proxy.core.host import Host, Name
from egress_proxy.core.rules import WEB_PORTS, Ports, Rule, parse_rule
from egress_proxy.suffixes import suffix_of


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One entry as an operating system can hold it. ``ports``: ascending; None is every port.

    ``loopback``: this machine and nothing else, whatever a resolver says. Reports differ on whether the word
    `localhost` of a Seatbelt rule covers 127.0.0.2; where it does not, that entry opens less than it says.

    ``entry``: the entry in canonical form, of `[A-Za-z0-9._*:-]` and brackets alone.
    """

    entry: str
    loopback: bool
    ports: tuple[int, ...] | None


def read_host_list(entries: Iterable[str]) -> tuple[Endpoint, ...]:
    """The entries in their order. Raises RuleError, a ValueError whose message names the bad one."""
    return tuple(_endpoint(parse_rule(entry, suffix_of)) for entry in entries)


def _endpoint(rule: Rule) -> Endpoint:
    return Endpoint(str(rule), _is_loopback(rule.host), _ports(rule))


def _is_loopback(host: Host) -> bool:
    # No wildcard can have one of these hosts: the grammar has none over an address or a single label.
    # 64:ff9b::7f00:1 and its like are not meant: what they lead to is decided by strangers.
    return host.text == "localhost" if isinstance(host, Name) else host.is_loopback


def _ports(rule: Rule) -> tuple[int, ...] | None:
    match rule.ports:
        case Ports.ANY:
            return None
        case Ports.WEB:
            return tuple(sorted(WEB_PORTS))
        case int() as only:
            return (only,)
