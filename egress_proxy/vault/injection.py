"""A client's request head to the upstream's: what must not travel is taken out, one credential set.

Pure: no I/O, no clock. The value stands in the returned headers and forms, nowhere else.
Next: proxy/forward.py (sends the head), proxy/reflection.py (looks for the forms in answers).
"""

import base64
import hmac
import re
from dataclasses import dataclass, field

from egress_proxy.core.access import InjectRoute
from egress_proxy.core.host import host_text
from egress_proxy.core.request import RequestHead
from egress_proxy.vault.placeholder import guessable
from egress_proxy.vault.secret import Secret, flaw
from egress_proxy.vault.sources import SecretSource

Header = tuple[bytes, bytes]

# Behind CGI and WSGI X_Api_Key and X-Api-Key are one variable, with some servers X.Api.Key as well:
# names are compared in lower case, with everything but letters and digits as a hyphen.
_FOLDED = bytes(
    ord(chr(code).lower()) if code < 128 and chr(code).isalnum() else ord("-") for code in range(256)
)
_CREDENTIALS = frozenset({b"authorization", b"cookie", b"x-api-key", b"api-key", b"x-goog-api-key"})
_CONTENT_LENGTH = b"content-length"
_ACCEPT_ENCODING = b"accept-encoding"
# RFC 9110 7.6.1, whether or not Connection names them; Host and Expect are ours to answer for.
_NEVER_PASS = frozenset(
    {b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade"} | {b"host", b"expect"}
)
# Frameworks take the method or the path from these instead: a rule that limits either would limit nothing.
_OVERRIDES = frozenset(
    {b"x-http-method-override", b"x-http-method", b"x-method-override"}
    | {b"x-original-url", b"x-original-uri", b"x-original-path", b"x-original-method"}
    | {b"x-rewrite-url", b"x-rewrite-uri", b"x-envoy-original-path", b"x-script-name"}
    | {b"x-forwarded-uri", b"x-forwarded-path", b"x-forwarded-prefix", b"x-forwarded-method"}
)

_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_WEIGHTED = re.compile(
    rb"[ \t]*(?P<coding>gzip|x-gzip|\*)[ \t]*(?:;[ \t]*q=(?P<weight>[01](?:\.[0-9]{0,3})?)[ \t]*)?",
    re.IGNORECASE,
)

_PLACE = "{secret}"


@dataclass(frozen=True, slots=True)
class HeldCredential:
    """A credential for one request, taken once: the guard must look for what was really sent."""

    header: bytes
    format: str
    secret: Secret

    def is_same(self, other: "HeldCredential") -> bool:
        """Whether both would send the same header, in a time that tells nothing of the secret."""
        return self.header == other.header and hmac.compare_digest(self.value(), other.value())

    def value(self) -> bytes:
        """The whole header value. Fit for a header, since its two parts are (`flaw`)."""
        return self.format.replace(_PLACE, self.secret.reveal()).encode("ascii")


@dataclass(frozen=True, slots=True)
class Credential:
    """Which header a rule sets, how its value is written, where the secret comes from.

    ``format`` holds `{secret}` once. Raises ValueError, quoting nothing: keys get pasted there.
    """

    header: bytes
    format: str
    source: SecretSource

    def __post_init__(self) -> None:
        folded = _fold(self.header)
        framing = folded in _NEVER_PASS or folded in (_CONTENT_LENGTH, _ACCEPT_ENCODING)
        framing = framing or folded.startswith(b"proxy-")
        if framing or not _TOKEN.fullmatch(self.header):
            raise ValueError("the credential's header cannot carry one")
        # Never str.format: `{secret.__class__}` would be evaluated.
        if self.format.count(_PLACE) != 1 or flaw(self.format.replace(_PLACE, "x")) is not None:
            raise ValueError(f"the credential's format is not printable ASCII with one {_PLACE}")
        if set("{}") & set(self.format.replace(_PLACE, "")):
            raise ValueError(f"the credential's format holds braces other than those of {_PLACE}")

    def current(self) -> HeldCredential:
        """Raises SecretUnavailable."""
        return HeldCredential(self.header, self.format, self.source.current())


@dataclass(frozen=True, slots=True)
class UpstreamHead:
    """What goes upstream. ``headers`` hold the credential and are not shown."""

    method: str
    target: bytes
    headers: tuple[Header, ...] = field(repr=False)


class Rewriter:
    """Writes the heads for the upstream of ``route``. Make it once per rule and credential.

    Host, the client's headers in their order, Accept-Encoding, the credential. Content-Length is
    among the client's: `core.request.body_framing` has judged it.
    """

    __slots__ = ("_credential", "_dropped", "_host", "_is_opaque")

    def __init__(self, route: InjectRoute, credential: HeldCredential | None) -> None:
        self._is_opaque = route.opaque_bodies
        self._host: Header = (b"Host", _host_value(route))
        self._credential: tuple[Header, ...] = ()
        self._dropped = _NEVER_PASS | _CREDENTIALS
        if route.methods or route.paths:
            self._dropped |= _OVERRIDES
        if not self._is_opaque:
            self._dropped |= {_ACCEPT_ENCODING}
        if credential is not None:
            self._dropped |= {_fold(credential.header)}
            self._credential = ((credential.header, credential.value()),)

    def rewrite(self, head: RequestHead, path: bytes) -> UpstreamHead:
        """``path``, query included, goes out byte for byte."""
        # Ours are added behind the removal, so that `Connection: authorization` cannot take them out.
        named = {_fold(name) for name in head.tokens(b"connection")}
        dropped = self._dropped | named if named else self._dropped
        kept = [header for header in head.headers if _passes(header[0], dropped)]
        codings = () if self._is_opaque else ((b"Accept-Encoding", _readable_codings(head)),)
        return UpstreamHead(head.method, path, (self._host, *kept, *codings, *self._credential))


def _fold(name: bytes) -> bytes:
    return name.translate(_FOLDED)


def _passes(name: bytes, dropped: frozenset[bytes]) -> bool:
    folded = name.translate(_FOLDED)
    if folded == _CONTENT_LENGTH:
        # `Connection: content-length` would make a second request of the body, and so would a
        # Content_Length that says something else.
        return name.lower() == folded
    return folded not in dropped and not folded.startswith(b"proxy-")


def _host_value(route: InjectRoute) -> bytes:
    is_default = route.upstream_port == route.scheme.default_port
    return (host_text(route.host) if is_default else str(route.upstream)).encode("ascii")


def _readable_codings(head: RequestHead) -> bytes:
    """What the client offers and the reflection guard can read; without the header any coding is
    welcome (RFC 9110 12.5.3). gzip goes by its own weight, else by that of `*`."""
    values = head.values(_ACCEPT_ENCODING)
    if not values:
        return b"identity"
    offers = b",".join(values).split(b",")
    matches = filter(None, map(_WEIGHTED.fullmatch, offers))
    weights = {match["coding"].lower(): float(match["weight"] or 1) for match in matches}
    weight = weights.get(b"gzip", weights.get(b"x-gzip", weights.get(b"*", 0.0)))
    return b"identity, gzip" if weight > 0 else b"identity"


def secret_texts(credential: HeldCredential) -> tuple[bytes, ...]:
    """What an answer must not hold, in any spelling: the whole value, and its secret parts alone.

    A secret part is what stands for `{secret}`, and of a value given whole what follows its scheme; of
    Basic also the pair and the password that it decodes to (RFC 7617 2). What is `guessable` is left out:
    it would be starred out of innocent text.
    """
    parts = _secret_parts(credential)
    texts = [part for part in parts if guessable(part.decode("latin-1")) is None]
    whole = [credential.value()] if parts[0] in texts else []
    return tuple(dict.fromkeys((*whole, *texts)))


def unsearched(credential: HeldCredential) -> str | None:
    """Why a part of the credential is not looked for in answers, in words that hold nothing of it."""
    reasons = (guessable(part.decode("latin-1")) for part in _secret_parts(credential))
    return next(filter(None, reasons), None)


def _secret_parts(credential: HeldCredential) -> tuple[bytes, ...]:
    scheme, _, rest = credential.value().partition(b" ")
    is_whole = credential.format == _PLACE and rest
    secret = rest.lstrip(b" ") if is_whole else credential.secret.reveal().encode("ascii")
    if scheme.lower() != b"basic":
        return (secret,)
    try:
        pair = base64.b64decode(rest + b"=" * (-len(rest) % 4), validate=True)
    except ValueError:
        return (secret,)
    return tuple(filter(None, (secret, pair, pair.partition(b":")[2])))
