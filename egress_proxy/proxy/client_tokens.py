"""Which client a request comes from: Proxy-Authorization against the tokens of the settings.

A token of its own names a client; the shared token lets in and names nobody. No policy here, and no sandbox:
those need no token. Next: core/access.py (Client), admission.py (asks before policy).
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field

from egress_proxy.core.access import ANONYMOUS, Client
from egress_proxy.core.decision import Deny, Reason
from egress_proxy.core.request import RequestHead
from egress_proxy.vault.secret import Secret

# A label is for people's eyes in a log line.
LABEL_LIMIT = 64


@dataclass(frozen=True, slots=True)
class ClientTokens:
    """``shared``: the token of --client-token-env. Without any token everybody is anonymous."""

    shared: Secret | None = None
    own: Mapping[str, Secret] = field(default_factory=dict)

    def identify(self, head: RequestHead) -> Client | Deny:
        """The client, or why there is none. Every token is compared, so time tells nothing of which."""
        if self.shared is None and not self.own:
            return Client()
        given = head.values(b"proxy-authorization")
        credentials = _credentials(given[0]) if len(given) == 1 else None
        if credentials is None:
            return Deny(Reason.CLIENT_UNKNOWN)
        user, token = credentials
        matched = [name for name, secret in self.own.items() if secret.holds(token)]
        is_shared = self.shared is not None and self.shared.holds(token)
        if matched:
            return Client(matched[0], user)
        return Client(label=user) if is_shared else Deny(Reason.CLIENT_UNKNOWN)

    def knows(self, client: Client) -> bool:
        """Whether a client that was let in before would still be: its token may have gone by a reload."""
        if client.id != ANONYMOUS:
            return client.id in self.own
        return self.shared is not None or not self.own


def _credentials(value: bytes) -> tuple[str, bytes] | None:
    """Label and token of a Basic (RFC 7617, password = token) or Bearer (RFC 6750) credential."""
    scheme, _, rest = value.partition(b" ")
    match scheme.lower():
        case b"bearer":
            return "", rest.strip(b" ")
        case b"basic":
            try:
                user, colon, token = base64.b64decode(rest.strip(b" "), validate=True).partition(b":")
            except binascii.Error:
                return None
            return (_label(user), token) if colon else None
        case _:
            return None


def _label(user: bytes) -> str:
    text = user.decode("ascii", "replace")[:LABEL_LIMIT]
    return "".join(c if c.isprintable() and c.isascii() else "?" for c in text)
