"""All that serve.py needs, as plain values: settings were read, checked and turned into types.

Shapes only. Next: planning.py (makes the plan), serve.py (composes the service from it).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from egress_proxy.cli.endpoints import Endpoint
from egress_proxy.core.attach import OwnFiles
from egress_proxy.core.policy import Policy
from egress_proxy.logs import Verbosity
from egress_proxy.proxy.audit import OnError
from egress_proxy.proxy.client_tokens import ClientTokens
from egress_proxy.vault.injection import Credential
from egress_proxy.vault.secret import Secret


@dataclass(frozen=True, slots=True)
class PolicyParts:
    """What a reload swaps. ``credentials`` by the name of their inject rule; ``own``: files that no sandbox
    may read, or write."""

    policy: Policy
    credentials: Mapping[str, Credential]
    clients: ClientTokens
    own: OwnFiles


@dataclass(frozen=True, slots=True)
class ControlPlan:
    """The control API, always on 127.0.0.1; port 0 is any free one."""

    port: int
    token: Secret


@dataclass(frozen=True, slots=True)
class AttachPlan:
    """Where sandboxes attach. ``is_named``: somebody asked for just this path, so it must be had."""

    path: Path
    is_named: bool


@dataclass(frozen=True, slots=True)
class AuditPlan:
    path: Path
    on_error: OnError


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """The [limits] table: sizes in bytes, times in seconds."""

    head_bytes: int
    head_timeout_s: float
    tunnels: int
    tunnels_per_client: int
    idle_timeout_s: float
    half_close_timeout_s: float
    drain_timeout_s: float
    body_timeout_s: float
    first_byte_timeout_s: float
    tcp_keepalive_s: int


@dataclass(frozen=True, slots=True)
class ServicePlan:
    """``reload`` reads all settings again and raises SettingsError, whose message is one safe line; it
    gives new parts of the same kinds. Everything else holds until the process ends.

    None means: not wanted; without ``bind`` there is no data port, and sandboxes alone are served.
    ``same_user``: the data port asks whose a connection is. ``relay`` None: what drives tunnels best here.
    """

    bind: Endpoint | None
    same_user: bool
    unix_path: Path | None
    attach: AttachPlan | None
    parts: PolicyParts
    reload: Callable[[], PolicyParts]
    limits: ServiceLimits
    connect_timeout_s: float
    hold_timeout_s: float
    resolver: Endpoint | None
    relay: str | None
    control: ControlPlan | None
    audit: AuditPlan | None
    record_path: Path | None
    verbosity: Verbosity
    color: bool
