"""What goes over the wire, shared by server and client: the request of POST /allow and every answer.

Shapes only: no HTTP, no decisions. Requests are strict; answers may grow, for a client ignores what it does
not know. Next: bodies.py (bytes to a request), routes.py (who answers), client.py (who reads the answers).
"""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

# A reason is one line in a log and in a list on a terminal.
REASON_LIMIT = 200
CLIENT_LIMIT = 128
# Grants die with the process: what is longer than a year is a mistake of units.
TTL_LIMIT_S = 366 * 24 * 3600.0
# The largest whole number that every JSON reader keeps exact (RFC 8259 6).
COUNT_LIMIT = 2**53 - 1


def _printable(text: str) -> str:
    # Line ends and terminal escapes would forge lines wherever the text is shown.
    if not text.isprintable():
        raise ValueError("may hold printable characters only")
    return text


def _not_null(value: object) -> object:
    # JSON.stringify writes null for NaN: a miscounted limit must not become none.
    if value is None:
        raise ValueError("may be left out, but not null")
    return value


_LINE = AfterValidator(_printable)
_NOT_NULL = BeforeValidator(_not_null)


class AllowRequest(BaseModel):
    """The body of POST /allow. ``host`` is an entry as in the settings, nothing of it is trimmed."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    # How long an entry may be is said by the grammar, which names it; a bound keeps lone surrogates out.
    host: Annotated[str, Field(max_length=4096)]
    ttl_s: Annotated[float | None, Field(gt=0, le=TTL_LIMIT_S), _NOT_NULL] = None
    max_uses: Annotated[int | None, Field(ge=1, le=COUNT_LIMIT), _NOT_NULL] = None
    max_bytes_out: Annotated[int | None, Field(ge=1, le=COUNT_LIMIT), _NOT_NULL] = None
    client: Annotated[str | None, Field(max_length=CLIENT_LIMIT), _LINE, _NOT_NULL] = None
    reason: Annotated[str, Field(max_length=REASON_LIMIT), _LINE, _NOT_NULL] = ""


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True)


class AllowAnswer(_Answer):
    """``ports``: `80,443`, one number, or `*`. ``id`` is set when more than ``host`` was asked for.

    ``expires_at``: seconds since the epoch, None when no time was set.
    """

    allowed: str
    ports: str
    id: str | None = None
    expires_at: float | None = None


class GrantView(_Answer):
    """A grant that holds now. Times are seconds since the epoch; None: no such limit."""

    id: str
    allowed: str
    ports: str
    client: str | None
    reason: str
    created_at: float
    expires_at: float | None
    uses_left: int | None
    bytes_left: int | None


class GrantList(_Answer):
    grants: tuple[GrantView, ...]


class RevokeAnswer(_Answer):
    """``tunnels_closed`` rested on the grant. ``recorded``: only where the audit log could not be written."""

    revoked: str
    tunnels_closed: int
    recorded: bool = True


class ReloadAnswer(_Answer):
    """What was not allowed any more. ``requests_closed``: only where injected requests were under way;
    ``recorded``: only where the audit log could not be written."""

    tunnels_closed: int
    requests_closed: int = 0
    recorded: bool = True


class TunnelView(_Answer):
    open: int
    limit: int


class RuleCounts(_Answer):
    """How many entries of the settings hold; grants are counted apart."""

    allow: int
    deny: int
    inject: int


class AuditView(_Answer):
    """Lines that the audit log lacks; ``lost_since``: of the first, in seconds since the epoch.
    ``counting_refusals``: they come so fast that they are counted instead of written one by one."""

    lost_lines: int
    lost_since: float | None
    counting_refusals: bool


class StatusView(_Answer):
    """``phase``: serving or draining. ``on_miss``: deny or hold. ``listeners``: `host:port`."""

    version: str
    phase: str
    started_at: float
    uptime_s: float
    listeners: tuple[str, ...]
    on_miss: str
    rules: RuleCounts
    tunnels: TunnelView
    grants: int
    audit: AuditView


class HealthView(_Answer):
    status: str


class ErrorAnswer(_Answer):
    """``error`` is a stable code, ``detail`` one printable line for a person."""

    error: str
    detail: str
