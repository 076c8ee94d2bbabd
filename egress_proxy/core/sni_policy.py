"""Whether the first client bytes of a port-443 tunnel may go upstream: judge_first_flight().

Against fronting: on a shared edge a client may CONNECT to an allowed name and ask TLS for another. With ECH
the outer name is what is compared. Next: proxy/client_hello.py (reads the hello), policy.py.
"""

import enum
from dataclasses import dataclass

from egress_proxy.core.decision import Deny, Reason
from egress_proxy.core.host import Host, HostError, Target, parse_host

# A name of 16 KiB is no use in a log line.
_SHOWN_LIMIT = 100


@dataclass(frozen=True, slots=True)
class SniPolicy:
    """How the first flight of a tunnel to port 443 is judged."""

    check: bool = True
    require_sni: bool = False
    only_tls: bool = False


@dataclass(frozen=True, slots=True)
class Hello:
    """A complete TLS ClientHello; ``server_name`` as sent, None when it names nobody."""

    server_name: str | None


class OtherFlight(enum.Enum):
    """First bytes that are no readable ClientHello."""

    NOT_TLS = enum.auto()
    UNREADABLE = enum.auto()  # begins as a ClientHello and is none, or never ends


class FlightVerdict(enum.StrEnum):
    """How a first flight passed; the last two are worth a line in the audit log."""

    MATCHES = "matches"
    UNNAMED = "unnamed"
    NOT_TLS = "not_tls"


def judge_first_flight(target: Target, flight: Hello | OtherFlight, sni: SniPolicy) -> FlightVerdict | Deny:
    """Whether the first client bytes of a port-443 tunnel may go upstream."""
    if flight is OtherFlight.UNREADABLE:
        return Deny(Reason.SNI_MISMATCH, target, detail="the ClientHello cannot be read")
    if flight is OtherFlight.NOT_TLS:
        return Deny(Reason.NOT_TLS, target) if sni.only_tls else FlightVerdict.NOT_TLS
    if flight.server_name is None:
        return Deny(Reason.SNI_MISSING, target) if sni.require_sni else FlightVerdict.UNNAMED
    if _names(flight.server_name, target.host):
        return FlightVerdict.MATCHES
    shown = ascii(flight.server_name)[:_SHOWN_LIMIT]
    return Deny(Reason.SNI_MISMATCH, target, detail=f"the ClientHello names {shown}")


def _names(server_name: str, host: Host) -> bool:
    try:
        return parse_host(server_name) == host
    except HostError:
        return False
