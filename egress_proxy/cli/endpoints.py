"""Addresses in settings: what is listened on, and which DNS server is asked.

Grammar of hosts and ports: core/host.py. Next: planning.py (who asks).
"""

from dataclasses import dataclass
from ipaddress import IPv4Address

from egress_proxy.core.address import Address
from egress_proxy.core.host import Host, HostError, Name, Target, parse_host, parse_port

_DNS_PORT = 53


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address and a port; port 0, where one is listened on, is any free one."""

    address: Address
    port: int

    def __str__(self) -> str:
        shown = str(self.address) if isinstance(self.address, IPv4Address) else f"[{self.address}]"
        return f"{shown}:{self.port}"

    @property
    def target(self) -> Target | None:
        """As the host lists see it; None while the port is not known."""
        return Target(self.address, self.port) if self.port else None


def parse_bind(text: str) -> Endpoint:
    """Read `ADDRESS:PORT`, where `localhost` is 127.0.0.1 and port 0 is allowed. Raises HostError."""
    host, colon, port = text.rpartition(":")
    if not colon:
        raise HostError("it names no port")
    return Endpoint(_address(parse_host(host)), 0 if port == "0" else parse_port(port))


def parse_server(text: str) -> Endpoint:
    """Read `ADDRESS` or `ADDRESS:PORT`; without a port it is that of DNS. Raises HostError."""
    host, colon, port = text.rpartition(":")
    if text.endswith("]") or not colon:
        return Endpoint(_address(parse_host(text)), _DNS_PORT)
    return Endpoint(_address(parse_host(host)), parse_port(port))


def _address(host: Host) -> Address:
    if not isinstance(host, Name):
        return host
    if host.text == "localhost":
        return IPv4Address("127.0.0.1")
    # A lookup here would make the start depend on the network, and its answer may change.
    raise HostError("it must be an address, not a name")
