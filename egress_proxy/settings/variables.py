"""EGRESS_* variables to a layer: nested with `__`, lists and tables as JSON.

pydantic-settings knows how names become keys; this file gives it a mapping instead of os.environ.
Next: tree.py (the keys), origins.py (Layer).
"""

import difflib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict

from egress_proxy.settings.origins import Key, Layer, Origin, SettingsError, Source, Text
from egress_proxy.settings.tree import Settings

VARIABLE_PREFIX = "EGRESS_"
NESTING = "__"

CONFIG_VARIABLE = VARIABLE_PREFIX + "CONFIG"
# What the service prints, and scripts therefore keep in variables of these names.
_PRINTED = frozenset({"EGRESS_PROXY_PORT", "EGRESS_CONTROL_PORT", "EGRESS_ATTACH"})
_NEAR = 0.85


class _Named(Settings, BaseSettings):
    """Gives the variables their names. Never made: it would take `_options` from its input."""

    model_config = SettingsConfigDict(env_prefix=VARIABLE_PREFIX, env_nested_delimiter=NESTING)


class _Variables(EnvSettingsSource):
    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables
        super().__init__(_Named)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        # Compose and unit files set what is not set to nothing.
        return {name.lower(): Text(value) for name, value in self._variables.items() if value}

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            name = VARIABLE_PREFIX + field_name.upper()
            raise SettingsError(
                f'{name} must be JSON: a list such as ["api.example.com"], or a table'
            ) from None


def variables_layer(environ: Mapping[str, str]) -> Layer:
    """Raises SettingsError for a variable that is meant for a table which does not exist."""
    ours = {
        name: value
        for name, value in environ.items()
        if name.startswith(VARIABLE_PREFIX) and name.isupper() and name != CONFIG_VARIABLE
    }
    for name in ours:
        _refuse_unknown_table(name)

    def locate(key: Key) -> Origin:
        return Origin(Source.VARIABLE, _variable_of(key, ours))

    return Layer(_Variables(ours)(), locate)


def overlooked_variables(names: Iterable[str]) -> list[str]:
    """A warning for each variable that looks like a setting's and is none."""
    known = [VARIABLE_PREFIX + name.upper() for name in Settings.model_fields]
    warnings = []
    for name in sorted(names):
        if not name.startswith(VARIABLE_PREFIX) or name in (*_PRINTED, *known, CONFIG_VARIABLE):
            continue
        near = difflib.get_close_matches(name, known, 1, _NEAR)
        if near and NESTING not in name:
            warnings.append(f"{name} is no setting and is ignored; did you mean {near[0]}?")
    return warnings


def _refuse_unknown_table(name: str) -> None:
    table, nested, _ = name.removeprefix(VARIABLE_PREFIX).partition(NESTING)
    known = [field.upper() for field in Settings.model_fields]
    if nested and table not in known:
        near = difflib.get_close_matches(table, known, 1)
        hint = f"; did you mean {name.replace(table, near[0], 1)}?" if near else ""
        raise SettingsError(f"{name} names no setting: there is no table {table.lower()!r}{hint}")


def _variable_of(key: Key, variables: Mapping[str, str]) -> str:
    """The variable that says it: EGRESS_LIMITS__TUNNELS, or EGRESS_LIMITS holding a whole table."""
    names = [str(part).upper() for part in key]
    for length in range(len(names), 0, -1):
        name = VARIABLE_PREFIX + NESTING.join(names[:length])
        if variables.get(name):
            return name
    return VARIABLE_PREFIX + NESTING.join(names)
