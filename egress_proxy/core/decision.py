"""What can come of a request: Allow, Ask or Deny, and the reasons. Values only; a refusal is no exception.

No value here can mean yes by default, none is a bool. Next: policy.py makes them, reply.py words them.
"""

import enum
from dataclasses import dataclass

from egress_proxy.core.access import InjectRoute
from egress_proxy.core.host import Name, Target


class Reason(enum.StrEnum):
    """Why a request was refused: stable codes, shown to clients and written to the audit log."""

    MALFORMED = "malformed"
    HEAD_TOO_LARGE = "head_too_large"
    HEAD_TIMEOUT = "head_timeout"
    NOT_HTTP = "not_http"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    CLIENT_UNKNOWN = "client_unknown"
    NOT_LISTED = "not_listed"
    DENIED_BY_RULE = "denied_by_rule"
    METADATA = "metadata"
    ADDRESS_NOT_PUBLIC = "address_not_public"
    OWN_LISTENER = "own_listener"
    GRANT_EXHAUSTED = "grant_exhausted"
    APPROVAL_DENIED = "approval_denied"
    APPROVAL_TIMEOUT = "approval_timeout"
    INJECT_OTHER_TARGET = "inject_other_target"
    INJECT_METHOD = "inject_method"
    INJECT_PATH = "inject_path"
    CHUNKED_BODY = "chunked_body"
    EXPECTATION = "expectation"
    UPGRADE = "upgrade"
    SNI_MISMATCH = "sni_mismatch"
    SNI_MISSING = "sni_missing"
    NOT_TLS = "not_tls"
    NO_SUCH_NAME = "no_such_name"
    UPSTREAM_REFUSED = "upstream_refused"
    UPSTREAM_TLS = "upstream_tls"
    UPSTREAM_PROTOCOL = "upstream_protocol"
    UPSTREAM_TIMEOUT = "upstream_timeout"
    BODY_NOT_INSPECTABLE = "body_not_inspectable"
    SECRET_UNAVAILABLE = "secret_unavailable"
    TOO_MANY_TUNNELS = "too_many_tunnels"
    DRAINING = "draining"
    AUDIT_UNAVAILABLE = "audit_unavailable"
    INTERNAL = "internal"


class OptIn(enum.Enum):
    """Which addresses the matched entry opts in to, beside public ones."""

    NONE = enum.auto()
    LITERAL = enum.auto()  # exactly the address that is written in the entry
    LOOPBACK = enum.auto()  # the entry is `localhost`
    INWARD = enum.auto()  # a private entry: loopback, private, carrier NAT, link-local
    ONLY_LOOPBACK = enum.auto()  # a rule that speaks plain HTTP: loopback, and not even public addresses


@dataclass(frozen=True, slots=True)
class Allow:
    """Yes. ``rule`` is the entry's text, ``grant_id`` the grant that a use must be taken from.

    ``route``: the inject rule, at the doors where one decides. ``completed``: what the machine's search list
    made of the target's name, once it is known.
    """

    target: Target
    rule: str
    opt_in: OptIn
    grant_id: str | None = None
    route: InjectRoute | None = None
    completed: Name | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """Nobody has said anything about this target: a person may be asked."""

    target: Target


@dataclass(frozen=True, slots=True)
class Deny:
    """No. ``target`` is None when none could be read; ``detail`` is safe to show."""

    reason: Reason
    target: Target | None = None
    rule: str | None = None
    detail: str = ""


Decision = Allow | Ask | Deny
