"""How much may be under way at once, in all and by client: a place for each tunnel, dial and request.

No socket and no policy here. Next: admission.py and kept.py (who take places), tunnel_table.py (whose tunnels
have one each), listener.py (how many may be connected at all).
"""

from collections import Counter

from egress_proxy.core.access import ANONYMOUS, Access, Client
from egress_proxy.core.decision import Deny, Reason

# However few tunnels are wanted, so many clients may be about to ask.
_WAITING_LEAST = 256


class Places:
    """A place is taken before anything is dialled: a silent upstream costs descriptors long before its tunnel
    would be counted. Whoever takes one leaves it, however that ends."""

    def __init__(self, in_all: int, per_client: int) -> None:
        """``per_client``: for clients with their own token, and for sandboxes; others share ``in_all``."""
        self._in_all = in_all
        self._per_client = per_client
        self._taken = 0
        self._by_client: Counter[str] = Counter()

    @property
    def waiting_limit(self) -> int:
        """How many clients may be connected without a place: those that say nothing, or half a head."""
        return max(self._in_all, _WAITING_LEAST)

    def __len__(self) -> int:
        return self._taken

    def refusal(self, access: Access) -> Deny | None:
        """Why there is no place for one more; None where there is."""
        if self._taken >= self._in_all:
            return _full(access, f"{self._in_all} tunnels and requests are under way", "tunnels")
        client = access.client.id
        if client != ANONYMOUS and self._by_client[client] >= self._per_client:
            whose = f"{self._per_client} tunnels and requests of this client are under way"
            return _full(access, whose, "tunnels_per_client")
        return None

    def take(self, access: Access) -> Deny | None:
        """Take a place, or say why there is none."""
        deny = self.refusal(access)
        if deny is None:
            self.occupy(access.client)
        return deny

    def occupy(self, client: Client) -> None:
        """Take a place without a question: something that has one already turns into something else."""
        self._taken += 1
        self._by_client[client.id] += 1

    def leave(self, client: Client) -> None:
        self._taken -= 1
        self._by_client[client.id] -= 1
        if not self._by_client[client.id]:
            del self._by_client[client.id]


def _full(access: Access, what: str, setting: str) -> Deny:
    detail = f"{what}, which is the limit that limits.{setting} sets"
    return Deny(Reason.TOO_MANY_TUNNELS, access.target, detail=detail)
