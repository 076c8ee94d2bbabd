"""Names that the machine itself settles: the hosts file, and localhost (RFC 6761 6.3).

No network here. Next: resolver.py, which asks this first.
"""

import functools
import os
from dataclasses import dataclass, field
from ipaddress import AddressValueError, IPv4Address, IPv6Address, ip_address
from pathlib import Path

from egress_proxy.core.address import Address
from egress_proxy.core.host import Name

HOSTS_PATH = Path("/etc/hosts")
_LOCAL = (IPv4Address("127.0.0.1"), IPv6Address("::1"))
# A hosts file used as a block list has 100,000 lines and 4 MiB; more is no hosts file.
_LIMIT_BYTES = 16 * 1024 * 1024

_Stamp = tuple[int, int, int]


@dataclass(slots=True)
class HostsFile:
    """Reads the file again when it has changed. One `stat` per look-up."""

    path: Path = HOSTS_PATH
    _stamp: _Stamp | None = None
    _names: dict[str, tuple[Address, ...]] = field(default_factory=dict)

    def addresses(self, name: Name) -> tuple[Address, ...]:
        """The addresses the machine gives the name; empty when it says nothing."""
        self._refresh()
        listed = self._names.get(name.text, ())
        if not listed and (name.text == "localhost" or name.text.endswith(".localhost")):
            return _LOCAL
        return listed

    def _refresh(self) -> None:
        try:
            facts = os.stat(self.path)
        except OSError:
            self._stamp, self._names = None, {}
            return
        stamp = (facts.st_mtime_ns, facts.st_ino, facts.st_size)
        if stamp != self._stamp:
            self._stamp = stamp
            self._names = _read(self.path) if facts.st_size <= _LIMIT_BYTES else {}


def _read(path: Path) -> dict[str, tuple[Address, ...]]:
    try:
        text = path.read_bytes().decode("utf-8", "replace")
    except OSError:
        return {}
    names: dict[str, dict[Address, None]] = {}
    for line in text.split("\n"):  # nothing else ends a line: a comment must not become an entry half-way
        address, *listed = line.partition("#")[0].split() or [""]
        parsed = _address(address) if listed else None
        if parsed is not None:
            for name in listed:
                names.setdefault(name.lower().removesuffix("."), {})[parsed] = None
    return {name: tuple(addresses) for name, addresses in names.items()}


@functools.lru_cache(maxsize=1024)  # a block list names one address 100,000 times
def _address(text: str) -> Address | None:
    # A zone id is of no use to a proxy: its scope is this machine.
    try:
        return None if "%" in text else ip_address(text)
    except (AddressValueError, ValueError):
        return None
