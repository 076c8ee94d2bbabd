"""Which clients there are, and whether an entry that is meant for one of them names it.

Next: policy_source.py (entries and routes), secret_source.py (the clients' tokens).
"""

import difflib
from collections.abc import Collection

from egress_proxy.core.access import ANONYMOUS
from egress_proxy.core.attach import SANDBOX_PREFIX
from egress_proxy.settings.load import Loaded
from egress_proxy.settings.origins import Key


def client_names(loaded: Loaded) -> frozenset[str]:
    """The names of all [[client]] tables. Raises SettingsError for one that cannot be told apart."""
    names: set[str] = set()
    for index, client in enumerate(loaded.settings.client):
        key = ("client", index, "name")
        if client.name == ANONYMOUS:
            raise loaded.error(key, f"cannot be {ANONYMOUS}: that is everybody without a token")
        number = client.name.removeprefix(SANDBOX_PREFIX)
        if number != client.name and number.isdigit():
            raise loaded.error(key, f"cannot be {client.name!r}: sandboxes get such names when they attach")
        if client.name in names:
            raise loaded.error(key, f"is taken: there is another [[client]] {client.name!r}")
        names.add(client.name)
    return frozenset(names)


def check_client(loaded: Loaded, key: Key, name: str | None, clients: Collection[str]) -> None:
    """A deny entry for a client that does not exist would look like protection and be none."""
    if name is None or name == ANONYMOUS or name in clients:
        return
    near = difflib.get_close_matches(name, clients, 1)
    hint = f", did you mean {near[0]!r}?" if near else ""
    raise loaded.error(key, f"names no [[client]]{hint}")
