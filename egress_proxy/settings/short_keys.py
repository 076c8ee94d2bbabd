"""Flags whose setting has a place in a table: `--control-port` is `port` in `[control]`.

The flag's name with underscores is a key too, in the file as on the command line; this file turns
it into the key of the tree. Next: tree.py (the keys), load.py (who asks).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from egress_proxy.settings.origins import Key, SettingsError, Text

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _same(value: object) -> object:
    return value


def _negated(value: object) -> object:
    return not value if isinstance(value, bool) else value


def _from_variable(value: object) -> object:
    return Text(f"env:{value}") if isinstance(value, str) else value


@dataclass(frozen=True, slots=True)
class _Place:
    key: tuple[str, ...]
    convert: Callable[[object], object] = _same


_PLACES = {
    "control_port": _Place(("control", "port")),
    "control_token_env": _Place(("control", "token"), _from_variable),
    "client_token_env": _Place(("client_token",), _from_variable),
    "no_sni_check": _Place(("tls", "sni_check"), _negated),
    "audit": _Place(("audit", "path")),
}


@dataclass(frozen=True, slots=True)
class Expanded:
    """The tree with short keys in their places, and which short key each such place came from."""

    tree: dict[str, object]
    short: dict[Key, str]

    def written(self, key: Key) -> Key:
        """The key as the user wrote it."""
        name = self.short.get(key)
        return key if name is None else (name,)


SHORT_KEYS = tuple(_PLACES)


def expand(table: Mapping[str, object]) -> Expanded:
    """Raises SettingsError when a setting stands under both of its names."""
    expanded = Expanded({}, {})
    for name, value in table.items():
        place = _PLACES.get(name)
        if place is None or isinstance(value, Mapping):
            expanded.tree[name] = {**value} if isinstance(value, Mapping) else value
    for name, place in _PLACES.items():
        if name in table and not isinstance(table[name], Mapping):
            _put(expanded.tree, place, table[name], name)
            expanded.short[place.key] = name
    return expanded


def _put(tree: dict[str, object], place: _Place, value: object, name: str) -> None:
    *tables, last = place.key
    for table in tables:
        inner = tree.setdefault(table, {})
        if not isinstance(inner, dict):  # validation will say what is wrong with it
            return
        tree = inner
    if last in tree:
        raise SettingsError(f"{name} and {'.'.join(place.key)} are one setting: give it once")
    tree[last] = place.convert(value)
