"""Every setting there is: its key, its type, its default. A key that is not here is an error.

No sources and no meaning here: entries are parsed by cli/policy_source.py, secret references by
cli/secret_source.py. Next: scalars.py (the types), load.py (where values come from).
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from egress_proxy.settings.scalars import (
    Count,
    Entry,
    KeepAlive,
    Label,
    Line,
    NotYet,
    Port,
    PortOrAny,
    Seconds,
    SecretReference,
    Switch,
    SwitchNotYet,
    UnixPath,
)


def _bare(value: object) -> object:
    """An entry written as text alone: `allow = ["api.example.com"]`, or a flag."""
    return {"host": value} if isinstance(value, str) else value


def _only_deny(value: str) -> str:
    if value == "hold":
        raise ValueError("cannot be hold: that is not available in this version")
    return value


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AllowEntry(_Table):
    host: Entry
    private: Switch = False
    shared: Switch = False
    client: Label | None = None
    reason: Line = ""


class DenyEntry(_Table):
    host: Entry
    client: Label | None = None
    reason: Line = ""


class InjectEntry(_Table):
    """One credential rule. ``port`` is what clients name, ``upstream_port`` what is dialled."""

    name: Label
    host: Entry
    port: Port = 80
    upstream_port: Port | None = None
    scheme: Annotated[Literal["https", "http"], Field(description="https or http")] = "https"
    header: Line = "Authorization"
    format: Line = "{secret}"
    secret: SecretReference | None = None
    methods: tuple[Line, ...] = Field((), description='a list such as ["GET", "POST"]')
    paths: tuple[Line, ...] = Field((), description='a list such as ["/v1/"]')
    client: Label | None = None
    opaque_bodies: Switch = False
    placeholder: NotYet = None
    requests_per_minute: NotYet = None


class ClientEntry(_Table):
    name: Label
    token: SecretReference


class ControlTable(_Table):
    """Without a token there is no control API."""

    port: PortOrAny = 0
    token: SecretReference | None = None


class LimitsTable(_Table):
    """Sizes in bytes, times in seconds."""

    head_bytes: Count = 16_384
    head_timeout_s: Seconds = 10
    tunnels: Count = 4_096
    tunnels_per_client: Count = 1_024
    idle_timeout_s: Seconds = 3_600
    half_close_timeout_s: Seconds = 60
    drain_timeout_s: Seconds = 5
    # A client that is alive sends on at once; one that stalls holds an upstream that others wait for.
    body_timeout_s: Seconds = 60
    first_byte_timeout_s: Seconds = 600
    tcp_keepalive_s: KeepAlive = 45


class TlsTable(_Table):
    intercept: SwitchNotYet = False
    require_sni: Switch = False
    only_tls_on_443: Switch = False
    sni_check: Switch = True


class AuditTable(_Table):
    path: Line = ""
    on_error: Annotated[Literal["refuse", "continue"], Field(description="refuse or continue")] = "refuse"


_ENTRY = Field(description="a host, or a table with one")
_ENTRIES = 'a list of hosts, such as ["api.example.com"]'


class Settings(_Table):
    """The whole tree, in the order in which `config show` prints it."""

    bind: Line = "127.0.0.1:8899"
    dangerously_bind_any: Switch = False
    listen_unix: UnixPath = ""
    same_user: Switch = False
    on_miss: Annotated[
        Literal["deny", "hold"], AfterValidator(_only_deny), Field(description="deny or hold")
    ] = "deny"
    hold_timeout: Seconds = 120
    connect_timeout: Seconds = 10
    resolver: Line = ""
    upstream_proxy: NotYet = None
    attach: UnixPath | None = None
    relay: Annotated[Literal["epoll", "loop"] | None, Field(description="epoll or loop")] = None
    client_token: SecretReference | None = None
    record_requests: Line = ""
    allow_none: Switch = False
    allow: tuple[Annotated[AllowEntry, _ENTRY, BeforeValidator(_bare)], ...] = Field((), description=_ENTRIES)
    allow_private: tuple[Entry, ...] = Field((), description=_ENTRIES)
    allow_shared: tuple[Entry, ...] = Field((), description=_ENTRIES)
    deny: tuple[Annotated[DenyEntry, _ENTRY, BeforeValidator(_bare)], ...] = Field((), description=_ENTRIES)
    inject: tuple[InjectEntry, ...] = Field((), description="a list of tables, [[inject]]")
    # The flags' single rule; kept apart because one flag may stand in the file and another not.
    inject_host: Entry | None = None
    inject_secret_env: Line | None = None
    inject_header: Line | None = None
    inject_scheme: Annotated[Literal["https", "http"] | None, Field(description="https or http")] = None
    inject_port: Port | None = None
    client: tuple[ClientEntry, ...] = Field((), description="a list of tables, [[client]]")
    control: ControlTable = Field(ControlTable(), description="a table, [control]")
    limits: LimitsTable = Field(LimitsTable(), description="a table, [limits]")
    tls: TlsTable = Field(TlsTable(), description="a table, [tls]")
    audit: AuditTable = Field(AuditTable(), description="a table, [audit]")
