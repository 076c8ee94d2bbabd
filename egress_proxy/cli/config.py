"""`config show|check`: every setting, its value and its origin; or whether serve would start.

Secrets are shown as ***, with the name of their source. Next: settings/load.py (the values),
planning.py (the checks).
"""

import argparse
import json
from collections.abc import Mapping

from egress_proxy.cli.exit_codes import ExitCode
from egress_proxy.cli.output import print_json, say, shown
from egress_proxy.cli.planning import Checked, check, command_of
from egress_proxy.cli.printed import ConfigChecked, SettingPrinted, SettingsPrinted
from egress_proxy.cli.secret_source import SecretShelf, exposed_among, read_secrets
from egress_proxy.cli.service_checks import warnings_of
from egress_proxy.settings.load import Loaded, Value, load, values
from egress_proxy.settings.origins import key_text
from egress_proxy.vault.sources import SecretUnavailable, parse_source

# The last part of a key, or the whole of it at the top.
_SECRET_NAMES = frozenset({"token", "secret", "client_token", "inject_secret_env"})
_HIDDEN = "***"
_PLACE = "{secret}"
_WIDTH_LIMIT = 60


def config(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    command = command_of(arguments)
    if arguments.action == "show":
        return _show(load(command.flags, environ, command.config), as_json=arguments.json)
    checked = check(command, environ)
    if arguments.secrets:
        read_secrets(checked.loaded, SecretShelf(environ))
    return _report(checked, as_json=arguments.json)


def _report(checked: Checked, *, as_json: bool) -> int:
    warnings = [*warnings_of(checked.loaded, checked.policy), *exposed_among(checked.secrets)]
    if as_json:
        print_json(ConfigChecked(ok=True, file=checked.loaded.file, warnings=warnings))
        return ExitCode.OK
    for warning in warnings:
        say(f"warning: {warning}")
    print(f"ok: {shown(checked.loaded.file or 'no settings file')}")
    return ExitCode.OK


def _show(loaded: Loaded, *, as_json: bool) -> int:
    rows = [_row(value) for value in values(loaded)]
    if as_json:
        print_json(SettingsPrinted(file=loaded.file, settings=rows))
        return ExitCode.OK
    settings = [f"{row.key} = {_literal(row)}" for row in rows]
    width = min(max(map(len, settings)), _WIDTH_LIMIT)
    for setting, row in zip(settings, rows, strict=True):
        print(f"{shown(setting):<{width}}  # {shown(row.where)}")
    for warning in loaded.warnings:
        say(f"warning: {warning}")
    return ExitCode.OK


def _row(value: Value) -> SettingPrinted:
    name, plain = value.key[-1], value.value
    text = str(plain or "")
    source = None
    if name in _SECRET_NAMES and text:
        source = _source_text(text if name != "inject_secret_env" else f"env:{text}")
    # A format without a place for the secret is the secret itself, pasted there.
    hidden = source is not None or (name == "format" and _PLACE not in text)
    return SettingPrinted(
        key=key_text(value.key),
        value=_HIDDEN if hidden else _printed(plain),
        source=value.origin.source.value,
        where=value.origin.text,
        secret_source=source,
    )


def _printed(value: object) -> str | int | float | bool | list[str] | None:
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return []  # a list with items is shown item by item


def _source_text(reference: str) -> str:
    """Where it comes from is no secret, unless somebody wrote the secret itself there."""
    try:
        return str(parse_source(reference))
    except SecretUnavailable:
        return "not a source"


def _literal(row: SettingPrinted) -> str:
    return json.dumps(row.value) if row.secret_source is None else f"{_HIDDEN} ({row.secret_source})"
