"""Flags over EGRESS_* variables over the file over the defaults: one checked tree and its origins.

Each source is checked by itself first, so that a wrong value is found even where a stronger source
hides it. Next: tree.py (the keys), toml_file.py and variables.py (two of the sources).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ValidationError

from egress_proxy.settings.complaints import OriginOf, complaint
from egress_proxy.settings.origins import (
    Key,
    Layer,
    Merged,
    Origin,
    SettingsError,
    Source,
    merge,
)
from egress_proxy.settings.short_keys import expand
from egress_proxy.settings.toml_file import choose_file, file_layer
from egress_proxy.settings.tree import Settings
from egress_proxy.settings.variables import overlooked_variables, variables_layer

Flags = Mapping[str, object]
"""The flags that were given, by their names with underscores; text as `origins.Text`."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """``file``: the one that was read. ``warnings``: lines for the person who starts it."""

    settings: Settings
    merged: Merged
    file: str | None
    warnings: tuple[str, ...]

    def origin(self, *key: str | int) -> Origin:
        return self.merged.origin(key)

    def error(self, key: Key, predicate: str) -> SettingsError:
        """``predicate`` follows the name of the setting, as the user gave it."""
        return self.merged.origin(key).error(key, predicate)


@dataclass(frozen=True, slots=True)
class Value:
    """One setting, as `config show` prints it."""

    key: Key
    value: object
    origin: Origin


def load(flags: Flags, environ: Mapping[str, str], config: str | None = None) -> Loaded:
    """``config`` is the value of --config. Raises SettingsError, the first thing that is wrong."""
    file = choose_file(config, environ)
    from_file = None if file is None else file_layer(file)
    layers = [_flags_layer(flags), variables_layer(environ)]
    if from_file is not None:
        layers.append(from_file)
    for layer in layers:
        _validated(layer.tree, layer.locate)
    merged = merge(layers)
    settings = _validated(merged.tree, merged.origin)
    # A secret may be kept in a variable of any name.
    named = {str(value).removeprefix("env:") for value in _plain_values(settings)}
    warnings = overlooked_variables(environ.keys() - named)
    path = file.path if file is not None and from_file is not None else None
    return Loaded(settings, merged, path, tuple(warnings))


def _plain_values(value: object) -> Iterator[object]:
    if isinstance(value, BaseModel):
        value = tuple(getattr(value, name) for name in type(value).model_fields)
    if not isinstance(value, tuple):
        yield value
        return
    for item in value:
        yield from _plain_values(item)


def values(loaded: Loaded) -> Iterator[Value]:
    """Every setting in the order of the tree, defaults included but for those of list items."""
    yield from _values(loaded.settings, (), loaded)


def _values(value: object, key: Key, loaded: Loaded) -> Iterator[Value]:
    if isinstance(value, BaseModel):
        is_item = bool(key) and isinstance(key[-1], int)
        for name in type(value).model_fields:
            if not is_item or name in value.model_fields_set:
                yield from _values(getattr(value, name), (*key, name), loaded)
    elif isinstance(value, tuple) and value:
        for index, item in enumerate(value):
            yield from _values(item, (*key, index), loaded)
    else:
        yield Value(key, value, loaded.merged.origin(key))


def _flags_layer(flags: Flags) -> Layer:
    expanded = expand(flags)

    def locate(key: Key) -> Origin:
        name = str(expanded.written(key)[0])
        return Origin(Source.FLAG, "--" + name.replace("_", "-"))

    return Layer(expanded.tree, locate)


def _validated(tree: Mapping[str, object], origin_of: OriginOf) -> Settings:
    try:
        return Settings.model_validate(tree)
    except ValidationError as error:
        found = complaint(error, origin_of)
    raise found  # outside the clause: the caught exception holds every value
