"""From a parsed head to what it asks for: the target of a CONNECT, target and path of an injected request.

Framing and form only; whether it may be is policy's. Next: core/request.py, core/host.py, connection.py.
"""

from dataclasses import dataclass

from egress_proxy.core.access import Scheme
from egress_proxy.core.decision import Deny, Reason
from egress_proxy.core.host import HostError, Target, parse_authority, parse_web_authority
from egress_proxy.core.request import (
    Framing,
    RequestError,
    RequestHead,
    body_framing,
    path_has_dot_segments,
    split_absolute,
)

HTTP_PORT = Scheme.HTTP.default_port


def connect_target(head: RequestHead) -> Target | Deny:
    """The authority of a CONNECT. Host and other headers do not count; a body is refused."""
    if set(head.values(b"content-length")) - {b"0"} or head.values(b"transfer-encoding"):
        return Deny(Reason.MALFORMED, detail="a CONNECT has no body")
    try:
        return parse_authority(head.target.decode("ascii"))
    except HostError as error:
        return Deny(Reason.MALFORMED, detail=str(error))


def named_target(method: str, target: bytes) -> Target | None:
    """What a request that is refused wanted to reach, as far as that can be read: for people and the record.

    Nothing is decided by it, so it is milder than what decides: user info is passed over, any method will do.
    """
    try:
        if method == "CONNECT":
            return parse_authority(target.decode("ascii"))
        absolute = split_absolute(target)
        return parse_web_authority(
            absolute.authority.rpartition("@")[2], Scheme(absolute.scheme).default_port
        )
    except (HostError, ValueError):
        return None


def is_probe(head: RequestHead) -> bool:
    """Whether somebody asks for this proxy alone (RFC 9110 7.6.2), as `egress-proxy env` does.

    It is refused like anything else and has no target: there is nothing to write down.
    """
    bodiless = not (head.values(b"content-length") or head.values(b"transfer-encoding"))
    return (head.method, head.target, head.values(b"max-forwards")) == ("OPTIONS", b"*", (b"0",)) and bodiless


@dataclass(frozen=True, slots=True)
class InjectedRequest:
    """What a plain-HTTP request asks for. ``path`` byte for byte, query included."""

    target: Target
    path: bytes
    body_bytes: int


def injected_request(head: RequestHead, inside: Target | None) -> InjectedRequest | Deny:
    """Read a request for an inject rule. ``inside``: the target of the CONNECT it came through."""
    if head.method in ("TRACE", "CONNECT"):
        # TRACE would send the credential back (RFC 9110 9.3.8).
        return Deny(Reason.METHOD_NOT_ALLOWED, inside)
    try:
        located = _locate(head, inside)
        framing = body_framing(head)
    except (RequestError, HostError) as error:
        return Deny(Reason.MALFORMED, inside, detail=str(error))
    if isinstance(located, Deny):
        return located
    target, path = located
    if path_has_dot_segments(path):
        return Deny(Reason.MALFORMED, target, detail="the path has dot segments")
    if framing is Framing.CHUNKED:
        return Deny(Reason.CHUNKED_BODY, target)
    assert isinstance(framing, int)  # noqa: S101  narrows the union for the type checker
    refusal = _unsupported(head, target)
    return refusal or InjectedRequest(target, path, framing)


def _locate(head: RequestHead, inside: Target | None) -> tuple[Target, bytes] | Deny:
    if inside is not None and head.target.startswith(b"/"):
        target, path = inside, head.target
    else:
        absolute = split_absolute(head.target)
        if absolute.scheme not in ("http", "https"):
            raise RequestError("the target's scheme is not http")
        if absolute.scheme == "https":
            return Deny(Reason.INJECT_OTHER_TARGET, detail="https:// goes through CONNECT")
        if "@" in absolute.authority:
            return Deny(Reason.INJECT_OTHER_TARGET, detail="the target holds user info")
        target, path = parse_web_authority(absolute.authority, HTTP_PORT), absolute.path
        if inside is not None and target != inside:
            return Deny(Reason.INJECT_OTHER_TARGET, target, detail="CONNECT named another host")
    for named in head.values(b"host"):
        if parse_web_authority(named.decode("latin-1"), HTTP_PORT) != target:
            raise RequestError("Host names another host than the target")
    return target, path


def _unsupported(head: RequestHead, target: Target) -> Deny | None:
    if any(value.lower() != b"100-continue" for value in head.values(b"expect")):
        return Deny(Reason.EXPECTATION, target)
    if b"websocket" in head.tokens(b"upgrade"):
        return Deny(Reason.UPGRADE, target)
    return None
