"""References to secrets: read once, never shown, and no token opens two doors."""

import json
import os
from pathlib import Path

import pytest

from egress_proxy.cli.secret_source import (
    Secrets,
    SecretShelf,
    exposed_among,
    read_secrets,
    source_names,
    unsearched_among,
    variables_among,
)
from egress_proxy.settings.load import Loaded, load
from egress_proxy.settings.origins import SettingsError, Text
from egress_proxy.vault.injection import Credential
from egress_proxy.vault.sources import open_source, parse_source

RULE = {"name": "provider", "host": "api.example.com", "secret": "env:KEY", "format": "Bearer {secret}"}
ENVIRON = {"KEY": "CANARY-key", "T1": "CANARY-1", "T2": "CANARY-2", "T3": "CANARY-3"}


def written(**settings: object) -> Loaded:
    variables = {
        f"EGRESS_{name.upper()}": value if isinstance(value, str) else json.dumps(value)
        for name, value in settings.items()
    }
    return load({}, variables)


def secrets(loaded: Loaded, environ: dict[str, str] | None = None) -> Secrets:
    return read_secrets(loaded, SecretShelf(ENVIRON if environ is None else environ))


def refusal(loaded: Loaded, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(SettingsError) as refused:
        secrets(loaded, environ)
    assert "CANARY" not in str(refused.value)
    return str(refused.value)


def test_every_reference_is_read() -> None:
    found = secrets(
        written(
            inject=[RULE],
            client=[{"name": "build", "token": "env:T1"}],
            client_token="env:T2",
            control__token="env:T3",
        )
    )
    assert found.credentials["provider"].current().value() == b"Bearer CANARY-key"
    assert found.clients.own["build"].holds(b"CANARY-1")
    assert found.clients.shared is not None
    assert found.clients.shared.holds(b"CANARY-2")
    assert found.control is not None
    assert found.control.holds(b"CANARY-3")


def test_without_references_there_is_nothing() -> None:
    found = secrets(written())
    assert (found.credentials, found.clients.shared, found.clients.own, found.control) == ({}, None, {}, None)


def test_a_loopback_rule_without_a_secret_has_no_credential() -> None:
    loaded = written(inject=[{"name": "local", "host": "localhost", "scheme": "http"}])
    assert secrets(loaded).credentials == {}


def test_the_flags_variable_holds_the_whole_header_value() -> None:
    flags = {
        "inject_host": Text("a.example"),
        "inject_secret_env": Text("KEY"),
        "inject_header": Text("x-api-key"),
    }
    held = secrets(load(flags, {})).credentials["default"].current()
    assert (held.header, held.value()) == (b"x-api-key", b"CANARY-key")


@pytest.mark.parametrize(
    ("value", "flaw"),
    [
        (None, "is not set"),
        ("", "is empty"),
        ("CANARY\n", "holds a line end"),
        ("CANARY\r\nX: 1", "holds a line end"),
        ("CANARYé", "not ASCII"),
        ("CANARY\udcff", "not ASCII"),
        ("CANARY\x01", "control character"),
    ],
)
def test_a_variable_that_holds_no_usable_secret_is_named(value: str | None, flaw: str) -> None:
    environ = {} if value is None else {"T1": value}
    message = refusal(written(control__token="env:T1"), environ)
    assert message.startswith("EGRESS_CONTROL__TOKEN cannot be used: secret source env:T1 ")
    assert flaw in message


@pytest.mark.parametrize(
    "reference",
    [
        "CANARY-sk-123",
        "env:CANARY-sk",
        "env:",
        "sk:CANARY",
        "file:CANARY",
        "fd:1",
        "fd:CANARY",
        "FILE:/CANARY",
    ],
)
def test_a_secret_in_the_place_of_its_source_is_never_quoted(reference: str) -> None:
    for loaded in (
        written(control__token=reference),
        written(client_token=reference),
        written(client=[{"name": "a", "token": reference}]),
        written(inject=[{**RULE, "secret": reference}]),
    ):
        assert " cannot be used: " in refusal(loaded)


@pytest.mark.parametrize("kind", ["credential:x", "command:[true]", "keyring:a/b"])
def test_sources_of_later_versions_say_so(kind: str) -> None:
    assert "is not supported yet" in refusal(written(control__token=kind))


@pytest.mark.parametrize(
    ("table", "field"),
    [
        ({"header": "Host"}, "header"),
        ({"header": "Content-Length"}, "header"),
        ({"header": "Proxy-Authorization"}, "header"),
        ({"header": "X CANARY"}, "header"),
        ({"header": "X-é"}, "header"),
        ({"header": ""}, "header"),
        ({"format": "Bearer CANARY"}, "format"),
        ({"format": "{secret}{secret}"}, "format"),
        ({"format": "é{secret}"}, "format"),
    ],
)
def test_a_header_or_format_that_can_carry_no_credential_is_refused(
    table: dict[str, object], field: str
) -> None:
    assert refusal(written(inject=[{**RULE, **table}])).startswith(
        f"EGRESS_INJECT: inject[0].{field} cannot be used"
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"control__token": "env:T1", "client_token": "env:T1"},
        {"client_token": "env:T1", "client": [{"name": "a", "token": "env:T1"}]},
        {"client": [{"name": "a", "token": "env:T1"}, {"name": "b", "token": "env:T1"}]},
    ],
)
def test_no_token_opens_two_doors(settings: dict[str, object]) -> None:
    assert "must differ from the token of" in refusal(written(**settings))


def test_the_variables_to_wipe_are_those_that_hold_secrets() -> None:
    loaded = written(
        inject=[RULE, {**RULE, "name": "b", "host": "b.example", "secret": "file:/run/secrets/b"}],
        client=[{"name": "build", "token": "env:T1"}],
        client_token="fd:9",
        control__token="env:T3",
    )
    assert variables_among(source_names(loaded)) == {"KEY", "T1", "T3"}


def test_a_descriptor_is_read_once_and_held_for_a_reload() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"CANARY\n")
    os.close(writing)
    shelf, loaded = SecretShelf({}), written(client_token=f"fd:{reading}")
    first, second = read_secrets(loaded, shelf), read_secrets(loaded, shelf)
    assert first.clients.shared is second.clients.shared
    assert first.clients.shared is not None
    assert first.clients.shared.holds(b"CANARY")


def test_a_file_is_read_again_by_a_reload(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.touch(mode=0o600)
    shelf, loaded = SecretShelf({}), written(client_token=f"file:{path}")
    for value in (b"first", b"second"):
        path.write_bytes(value + b"\n")
        shared = read_secrets(loaded, shelf).clients.shared
        assert shared is not None
        assert shared.holds(value)


def test_a_file_that_everybody_can_read_is_warned_of(tmp_path: Path) -> None:
    for name, mode in (("open", 0o644), ("own", 0o600)):
        (tmp_path / name).write_text("sk-1")
        (tmp_path / name).chmod(mode)
    names = [parse_source(f"file:{tmp_path}/{name}") for name in ("open", "own", "absent")]
    [warning] = exposed_among(names)
    assert warning.startswith(f"secret source file:{tmp_path}/open can be read by every user")


def test_a_secret_that_is_not_looked_for_in_answers_is_warned_of_by_its_rule() -> None:
    environ = {"SHORT": "ollama", "WORD": "Bearer changeme", "GOOD": "Bearer sk-CANARY-123"}
    credentials = {
        name: Credential(b"Authorization", "{secret}", open_source(parse_source(f"env:{name}"), environ))
        for name in environ
    }
    assert list(unsearched_among(credentials)) == [
        "the secret of inject rule SHORT is shorter than 8 characters: answers that show it are not masked",
        "the secret of inject rule WORD is a common word: answers that show it are not masked",
    ]
