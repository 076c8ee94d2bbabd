"""From what a host asks for (a list of entries, an attach socket) to one of the four kinds of egress.

Next: spec.py (the kinds), host_list.py (the entries), attach_client.py (asks the proxy).
"""

import contextlib
import os
from collections.abc import Iterable, Sequence

from egress_proxy.sandbox.attach_client import Attachment, OldProxy
from egress_proxy.sandbox.host_list import Endpoint
from egress_proxy.sandbox.spec import (
    Egress,
    NoNetwork,
    OpenNetwork,
    PortsOnly,
    SandboxUnavailable,
    ThroughProxy,
)

_LABEL = "asks for the port"


def through_proxy(attach: str) -> ThroughProxy:
    """The proxy behind an attach socket, which is asked for its port. Raises SandboxUnavailable."""
    path = os.path.abspath(attach)
    try:
        with Attachment(path, _LABEL, names=True) as attachment:
            return ThroughProxy(path, attachment.welcome.port, attachment.welcome.own)
    except OldProxy:
        with Attachment(path, _LABEL) as attachment:
            return ThroughProxy(path, attachment.welcome.port, None)


def egress_of(allowed: Sequence[Endpoint] | None, attach: str | None) -> Egress:
    """None is open; any list, even an empty one, is closed but for its entries.

    One loopback entry with the port of the proxy behind ``attach`` means that proxy. Any other list comes
    down to its ports, since a kernel knows no names.
    """
    if allowed is None:
        return OpenNetwork()
    if not allowed:
        return NoNetwork()
    if attach is not None and len(allowed) == 1 and allowed[0].loopback:
        with contextlib.suppress(SandboxUnavailable):  # then the entry is somebody else's port
            proxy = through_proxy(attach)
            if allowed[0].ports == (proxy.port,):
                return proxy
    ports = [endpoint.ports for endpoint in allowed]
    return OpenNetwork() if None in ports else PortsOnly(frozenset(_all(ports)))


def _all(lists: Iterable[tuple[int, ...] | None]) -> Iterable[int]:
    return (port for ports in lists for port in ports or ())
