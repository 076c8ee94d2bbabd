"""A refusal in the words of HTTP: status, reason phrase, headers, JSON body. The one table of codes.

No bytes of a request are quoted but the canonical target. Next: decision.py (the reasons).
"""

import json
from dataclasses import dataclass
from typing import NamedTuple

from egress_proxy.core.decision import Ask, Deny, Reason
from egress_proxy.core.host import host_text

ESTABLISHED = b"HTTP/1.1 200 Connection Established\r\n\r\n"
RETRY_AFTER_S = 1
PROXY_REALM = 'Basic realm="egress"'


class _Answer(NamedTuple):
    status: int
    code: str  # the stable value of X-Proxy-Error
    hint: str  # what to do next; {target} and {rule} are filled in


_ALLOW_HINT = (
    "start with --allow {target} or an [[allow]] entry; where `egress-proxy serve` runs, "
    "`egress-proxy allow {target}` allows it for this session"
)
_CONNECT_HINT = "use CONNECT (set HTTPS_PROXY), or add an inject rule for plain HTTP to this host"
_RULE_HINT = "the inject rule names one host and port by http://; use exactly that"
_WAIT_HINT = "try again in a moment; the limits are in the [limits] table of the settings"

_ANSWERS: dict[Reason, _Answer] = {
    Reason.MALFORMED: _Answer(400, "bad-request", "send a well-formed HTTP/1.1 request"),
    Reason.NOT_HTTP: _Answer(400, "bad-request", "this port speaks HTTP/1.1: use it as an HTTP proxy"),
    Reason.HEAD_TOO_LARGE: _Answer(431, "head-too-large", "send fewer or shorter headers"),
    Reason.HEAD_TIMEOUT: _Answer(
        408, "head-timeout", "send the whole request, head and body, without a pause"
    ),
    Reason.METHOD_NOT_ALLOWED: _Answer(405, "method-not-allowed", _CONNECT_HINT),
    Reason.CLIENT_UNKNOWN: _Answer(
        407, "client-authentication-required", "send Proxy-Authorization with the client token"
    ),
    Reason.NOT_LISTED: _Answer(403, "blocked-by-allowlist", _ALLOW_HINT),
    Reason.GRANT_EXHAUSTED: _Answer(403, "blocked-by-allowlist", "its grant is used up; " + _ALLOW_HINT),
    Reason.DENIED_BY_RULE: _Answer(403, "blocked-by-denylist", "the deny entry {rule} forbids it"),
    Reason.METADATA: _Answer(403, "blocked-by-address", "cloud metadata is never reachable from here"),
    Reason.ADDRESS_NOT_PUBLIC: _Answer(
        403, "blocked-by-address", "if the name may lie inside your network, list it with --allow-private"
    ),
    Reason.OWN_LISTENER: _Answer(403, "blocked-by-address", "the proxy does not connect to itself"),
    Reason.APPROVAL_DENIED: _Answer(403, "approval-denied", "a person said no"),
    Reason.APPROVAL_TIMEOUT: _Answer(403, "approval-timeout", "nobody answered in time; " + _ALLOW_HINT),
    Reason.INJECT_OTHER_TARGET: _Answer(403, "blocked-by-policy", _RULE_HINT),
    Reason.INJECT_METHOD: _Answer(403, "blocked-by-method-policy", "{rule} does not admit this method"),
    Reason.INJECT_PATH: _Answer(403, "blocked-by-method-policy", "{rule} does not admit this path"),
    Reason.CHUNKED_BODY: _Answer(
        501, "chunked-not-supported", "send the body with a Content-Length: chunked is not supported here"
    ),
    Reason.EXPECTATION: _Answer(417, "expectation-failed", "only 100-continue can be expected"),
    Reason.UPGRADE: _Answer(501, "upgrade-not-supported", "websockets are not supported by inject rules"),
    Reason.SNI_MISMATCH: _Answer(403, "blocked-by-policy", "TLS must name the host that CONNECT named"),
    Reason.SNI_MISSING: _Answer(403, "blocked-by-policy", "TLS must name the host (require_sni is on)"),
    Reason.NOT_TLS: _Answer(403, "blocked-by-policy", "only TLS may use port 443 (only_tls_on_443 is on)"),
    Reason.NO_SUCH_NAME: _Answer(502, "upstream-unreachable", "the name has no address; check the spelling"),
    Reason.UPSTREAM_REFUSED: _Answer(502, "upstream-unreachable", "the upstream does not accept connections"),
    Reason.UPSTREAM_TLS: _Answer(502, "upstream-tls", "the upstream's certificate could not be verified"),
    Reason.UPSTREAM_PROTOCOL: _Answer(502, "upstream-protocol", "the upstream did not answer in HTTP/1.1"),
    Reason.UPSTREAM_TIMEOUT: _Answer(504, "upstream-timeout", "the upstream did not answer in time"),
    Reason.BODY_NOT_INSPECTABLE: _Answer(
        502, "body-not-inspectable", "its encoding hides the body; the rule may set opaque_bodies = true"
    ),
    Reason.SECRET_UNAVAILABLE: _Answer(502, "secret-unavailable", "the proxy cannot read the credential"),
    Reason.TOO_MANY_TUNNELS: _Answer(503, "too-many-tunnels", _WAIT_HINT),
    Reason.DRAINING: _Answer(503, "draining", "the proxy is stopping"),
    Reason.AUDIT_UNAVAILABLE: _Answer(503, "audit-unavailable", "the audit log cannot be written"),
    Reason.INTERNAL: _Answer(500, "internal-error", "this is a fault of the proxy; see its log"),
}
_PHRASES = {
    400: "Bad Request",
    403: "Forbidden",
    405: "Method Not Allowed",
    407: "Proxy Authentication Required",
    408: "Request Timeout",
    417: "Expectation Failed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}


@dataclass(frozen=True, slots=True)
class Reply:
    """A refusal, ready to send. After it the connection is closed."""

    status: int
    code: str
    head: bytes
    body: bytes


def refusal_status(reason: Reason) -> int:
    return _ANSWERS[reason].status


def refusal_code(reason: Reason) -> str:
    """The value of X-Proxy-Error."""
    return _ANSWERS[reason].code


def hint_for(deny: Deny) -> str:
    """What the person can do next."""
    text = _ANSWERS[deny.reason].hint
    return text.replace("{target}", str(deny.target or "HOST")).replace("{rule}", deny.rule or "the rule")


def refuse(deny: Deny, request_id: str) -> Reply:
    """Word a refusal. The phrase names the target: all that most clients show of a refused CONNECT."""
    answer = _ANSWERS[deny.reason]
    target = deny.target
    phrase = _PHRASES[answer.status]
    if answer.status == 403 and target is not None:
        phrase += f"; egress denied for {target}"
    fields = json.dumps(
        {
            "error": answer.code,
            "reason": f"{deny.reason}: {deny.detail}" if deny.detail else str(deny.reason),
            "host": host_text(target.host) if target else None,
            "port": target.port if target else None,
            "rule": deny.rule,
            "request_id": request_id,
            "hint": hint_for(deny),
        }
    )
    body = f"{fields}\n".encode()  # on a terminal the prompt starts a line of its own
    headers = [
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        f"X-Proxy-Error: {answer.code}",
        "Connection: close",
        *_EXTRA_HEADERS.get(answer.status, ()),
    ]
    head = "\r\n".join((f"HTTP/1.1 {answer.status} {phrase}", *headers, "", "")).encode()
    return Reply(answer.status, answer.code, head, body)


_EXTRA_HEADERS = {
    405: ("Allow: CONNECT",),
    407: (f"Proxy-Authenticate: {PROXY_REALM}",),
    503: (f"Retry-After: {RETRY_AFTER_S}",),
}


def unanswered(ask: Ask) -> Deny:
    """What a question is when there is nobody to put it to."""
    return Deny(Reason.NOT_LISTED, ask.target)
