"""Who wants what, by which door: the question that policy.decide() answers, and the routes of inject rules.

Values only. Next: policy.py (the answer), request.py and host.py (where the parts are read).
"""

import enum
from dataclasses import dataclass, field

from egress_proxy.core.host import Host, Target
from egress_proxy.core.request import path_has_dot_segments

ANONYMOUS = "anonymous"
# TRACE would echo the credential to the client; CONNECT inside a request would leave the rule's host.
_NEVER_INJECTED = frozenset({"TRACE", "CONNECT"})


class Door(enum.StrEnum):
    """How a request came in. TUNNEL carries bytes unseen; the inject doors are read and rewritten."""

    TUNNEL = "tunnel"
    ABSOLUTE = "absolute"  # METHOD http://HOST/path
    CONNECT_INJECT = "connect_inject"  # CONNECT HOST:80, then plain HTTP inside
    BASE_URL = "base_url"  # METHOD /inject/NAME/path


class Scheme(enum.StrEnum):
    """How an inject rule's upstream is spoken to. HTTP is for loopback alone."""

    HTTPS = "https"
    HTTP = "http"

    @property
    def default_port(self) -> int:
        return 443 if self is Scheme.HTTPS else 80


@dataclass(frozen=True, slots=True)
class Client:
    """Whose request it is. ``id``: of a token of its own, or of a sandbox; ``label`` is display only."""

    id: str = ANONYMOUS
    label: str = ""


@dataclass(frozen=True, slots=True)
class InjectRoute:
    """An inject rule without its secret: what clients name (``named``), what is dialled (``upstream``), what
    may be asked.

    ``methods`` empty: every method but TRACE and CONNECT. ``paths`` empty: every path; else prefixes that
    end at a slash, at the query, or with the path. ``client``: for that client alone.
    """

    name: str
    host: Host
    port: int = 80
    upstream_port: int = 443
    scheme: Scheme = Scheme.HTTPS
    methods: frozenset[str] = frozenset()
    paths: tuple[bytes, ...] = ()
    client: str | None = None
    opaque_bodies: bool = False
    named: Target = field(init=False)
    upstream: Target = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "named", Target(self.host, self.port))
        object.__setattr__(self, "upstream", Target(self.host, self.upstream_port))

    def serves(self, target: Target, client: Client) -> bool:
        return target == self.named and self.client in (None, client.id)

    def admits_method(self, method: str) -> bool:
        return method not in _NEVER_INJECTED and (not self.methods or method in self.methods)

    def admits_path(self, path: bytes) -> bool:
        """``path`` as sent, with its query. Compared byte for byte: another spelling is another path."""
        bare = path.partition(b"?")[0]
        if path_has_dot_segments(bare):
            return False
        return not self.paths or any(
            bare == prefix or bare.startswith(prefix.removesuffix(b"/") + b"/") for prefix in self.paths
        )


@dataclass(frozen=True, slots=True)
class Access:
    """One question. ``method`` and ``path`` count at the inject doors only."""

    client: Client
    target: Target
    door: Door
    method: str = "CONNECT"
    path: bytes = b""
