"""What every connection works with, built once by cli/serve.py, and what a reload swaps.

Shapes only. Next: connection.py (uses them), cli/serve.py (builds them).
"""

import itertools
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from egress_proxy.core.attach import OwnFiles
from egress_proxy.core.policy import Policy
from egress_proxy.core.seams import Asker, Audit, Clock, GrantStore
from egress_proxy.proxy.client_tokens import ClientTokens
from egress_proxy.proxy.forward import Forwarder
from egress_proxy.proxy.outbound import Outbound
from egress_proxy.proxy.sandbox_ledger import SandboxLedgers
from egress_proxy.proxy.tunnel_table import TunnelTable
from egress_proxy.vault.injection import Credential

NO_FILES = OwnFiles()


@dataclass(slots=True)
class InForce:
    """Read anew for each request; a reload assigns the fields between two of them. ``own``: files that no
    sandbox may have."""

    policy: Policy
    clients: ClientTokens
    credentials: Mapping[str, Credential]
    own: OwnFiles = NO_FILES


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """``head_s`` counts from accept to the end of the head; ``keep_alive_s`` from one request to the next."""

    head_bytes: int
    head_s: float
    keep_alive_s: float


class RequestIds:
    """Ids that are unique across restarts and cost nothing to make."""

    def __init__(self) -> None:
        self._prefix = secrets.token_hex(4)
        self._count = itertools.count(1)

    def __call__(self) -> str:
        return f"{self._prefix}-{next(self._count)}"


@dataclass(frozen=True, slots=True)
class Parts:
    """``asker`` is None where nobody can be asked: a question is a refusal then."""

    in_force: InForce
    grants: GrantStore
    outbound: Outbound
    tunnels: TunnelTable
    forwarder: Forwarder
    audit: Audit
    clock: Clock
    limits: ConnectionLimits
    asker: Asker | None = None
    sandboxes: SandboxLedgers = field(default_factory=SandboxLedgers)
    new_id: RequestIds = field(default_factory=RequestIds)
