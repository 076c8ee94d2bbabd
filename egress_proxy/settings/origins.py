"""Where a value came from, and how values of several sources become one tree.

Layers stand in order, the first wins; lists add up, so that a flag takes no deny entry of the file
away. No reading and no keys here. Next: load.py; toml_file.py and variables.py make layers.
"""

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

Key = tuple[str | int, ...]
"""A place in the tree: `("limits", "tunnels")`, `("allow", 2, "host")`."""

MESSAGE_LIMIT = 400


class Text(str):
    """A value from a flag or a variable. Only there are numbers and switches read out of text."""

    __slots__ = ()


class SettingsError(Exception):
    """The settings cannot be used. The message is one line, safe to show, without any secret."""

    def __init__(self, message: str) -> None:
        shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in message)
        super().__init__(shown[:MESSAGE_LIMIT])


class Source(enum.StrEnum):
    """The kinds of sources, the strongest first."""

    FLAG = "flag"
    VARIABLE = "variable"
    FILE = "file"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Origin:
    """``text`` is a flag, a variable's name, or `file:line`."""

    source: Source
    text: str

    def error(self, key: Key, predicate: str) -> SettingsError:
        """``predicate`` follows the name that the user gave: `--bind must be …`."""
        if self.source is Source.FILE:
            return SettingsError(f"{key_text(key)} {predicate} ({self.text})")
        if self.source is Source.VARIABLE and len(key) > 1 and "__" not in self.text:
            return SettingsError(f"{self.text}: {key_text(key)} {predicate}")
        return SettingsError(f"{self.text} {predicate}")


DEFAULT = Origin(Source.DEFAULT, "default")


def key_text(key: Key) -> str:
    """`limits.tunnels`, `allow[2].host`."""
    text = ""
    for part in key:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


@dataclass(frozen=True, slots=True)
class Layer:
    """What one source says. ``locate`` names the origin of a place in this layer's own tree."""

    tree: Mapping[str, object]
    locate: Callable[[Key], Origin]


@dataclass(frozen=True, slots=True)
class Merged:
    """One tree of all layers, and for every value the layer that it came from."""

    tree: dict[str, object] = field(default_factory=dict)
    _places: dict[Key, tuple[Layer, Key]] = field(default_factory=dict)

    def origin(self, key: Key) -> Origin:
        """The origin of a value, else of what is nearest above it; DEFAULT when none said it."""
        for length in range(len(key), 0, -1):
            place = self._places.get(key[:length])
            if place is not None:
                layer, there = place
                return layer.locate((*there, *key[length:]))
        return DEFAULT

    def add(self, layer: Layer) -> None:
        """Lay a layer under those that are there. It must be valid by itself."""
        self._add_table(self.tree, layer.tree, layer, ())

    def _add_table(
        self, into: dict[str, object], table: Mapping[str, object], layer: Layer, above: Key
    ) -> None:
        for name, value in table.items():
            key = (*above, name)
            there = into.get(name)
            if isinstance(value, Mapping):
                inner = there if isinstance(there, dict) else {}
                self._add_table(inner, value, layer, key)
                into[name] = inner
            elif isinstance(value, list):
                into[name] = self._added(there, value, layer, key)
            elif name not in into:
                into[name] = value
                self._places[key] = (layer, key)

    def _added(self, there: object, more: list[object], layer: Layer, key: Key) -> list[object]:
        items = there if isinstance(there, list) else []
        for index, _ in enumerate(more):
            self._places[(*key, len(items) + index)] = (layer, (*key, index))
        return [*items, *more]


def merge(layers: Iterable[Layer]) -> Merged:
    """``layers``: the strongest first."""
    merged = Merged()
    for layer in layers:
        merged.add(layer)
    return merged
