"""What is asked of one exchange, how long it may take, and how it ended.

Values only. Next: exchange.py (makes it), forward.py (who orders it).
"""

from dataclasses import dataclass

from egress_proxy.core.access import InjectRoute
from egress_proxy.core.decision import Allow, Deny
from egress_proxy.core.events import EndCause
from egress_proxy.core.request import RequestHead


@dataclass(frozen=True, slots=True)
class ForwardLimits:
    """Seconds until the upstream's first byte, and between bytes before and after it.

    ``body_s``: how long a client may send nothing of the body that it has announced. Its request holds an
    upstream meanwhile, which others wait for.
    """

    first_byte_s: float
    idle_s: float
    body_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Order:
    """One request to forward, decided and framed: ``body_bytes`` is its Content-Length."""

    request_id: str
    head: RequestHead
    path: bytes
    body_bytes: int
    route: InjectRoute
    allow: Allow


@dataclass(frozen=True, slots=True)
class ExchangeEnd:
    """``is_answered``: the client has a complete answer. ``is_whole``: the upstream side ended well, too.

    ``deny``: nothing was sent to the client yet, and this is to be. ``fault``: an error of ours ended it.
    """

    cause: EndCause
    is_answered: bool = False
    is_whole: bool = False
    deny: Deny | None = None
    fault: Exception | None = None
