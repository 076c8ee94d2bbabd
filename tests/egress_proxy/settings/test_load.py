"""Flags over variables over the file over defaults, each checked by itself, each value with its origin."""

from pathlib import Path

import pytest

from egress_proxy.settings.load import Loaded, load, values
from egress_proxy.settings.origins import SettingsError, Text, key_text


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "egress.toml"


def loaded(file: Path, text: str, flags: dict[str, object], environ: dict[str, str]) -> Loaded:
    file.write_text(text)
    return load(flags, environ, str(file))


def test_flags_win_over_variables_over_the_file_over_defaults(file: Path) -> None:
    text = 'bind = "127.0.0.1:1"\nrelay = "loop"\nhold_timeout = 3\n'
    environ = {"EGRESS_BIND": "127.0.0.1:2", "EGRESS_RELAY": "epoll"}
    result = loaded(file, text, {"bind": Text("127.0.0.1:3")}, environ)
    settings = result.settings
    assert (settings.bind, settings.relay, settings.hold_timeout) == ("127.0.0.1:3", "epoll", 3)
    origins = [result.origin(name).text for name in ("bind", "relay", "hold_timeout", "connect_timeout")]
    assert origins == ["--bind", "EGRESS_RELAY", f"{file}:3", "default"]


def test_lists_of_all_sources_add_up(file: Path) -> None:
    result = loaded(file, '[[deny]]\nhost = "c"\n', {"deny": [Text("a")]}, {"EGRESS_DENY": '["b"]'})
    assert [entry.host for entry in result.settings.deny] == ["a", "b", "c"]
    origins = [result.origin("deny", index, "host").text for index in range(3)]
    assert origins == ["--deny", "EGRESS_DENY", f"{file}:2"]


def test_a_flag_of_a_table_names_itself(file: Path) -> None:
    flags = {"control_port": Text("5"), "no_sni_check": True, "audit": Text("a.jsonl")}
    result = loaded(file, "", flags, {})
    assert result.settings.tls.sni_check is False
    assert result.origin("control", "port").text == "--control-port"
    assert result.origin("tls", "sni_check").text == "--no-sni-check"
    assert result.origin("audit", "path").text == "--audit"


@pytest.mark.parametrize(
    ("text", "flags", "environ", "message"),
    [
        ("bind = 5\n", {"bind": Text("127.0.0.1:1")}, {}, "bind must be a text of one line ({file}:1)"),
        ("", {"bind": Text("127.0.0.1:1")}, {"EGRESS_BIND": "a\nb"}, "EGRESS_BIND holds a line end"),
        ('allow = "a"\n', {"allow": [Text("b")]}, {}, "allow must be a list of hosts"),
        ("", {"connect_timeout": Text("nan")}, {}, "--connect-timeout must be a number of seconds"),
        ("", {}, {"EGRESS_LIMITS__TUNNELS": "x"}, "EGRESS_LIMITS__TUNNELS must be a whole number"),
    ],
)
def test_a_wrong_value_is_found_even_where_a_stronger_source_hides_it(
    file: Path, text: str, flags: dict[str, object], environ: dict[str, str], message: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        loaded(file, text, flags, environ)
    assert str(refused.value).startswith(message.format(file=file))


def test_the_exception_carries_no_values_along(file: Path) -> None:
    with pytest.raises(SettingsError) as refused:
        loaded(file, 'control = "CANARY"\n', {}, {})
    assert refused.value.__context__ is None
    assert refused.value.__cause__ is None


def test_without_any_source_there_are_the_defaults() -> None:
    result = load({}, {})
    assert result.file is None
    assert result.settings.bind == "127.0.0.1:8899"


def test_every_setting_is_listed_and_list_items_without_their_defaults(file: Path) -> None:
    result = loaded(file, 'allow = ["a", {host = "b", private = true}]\n', {}, {})
    listed = {key_text(value.key): value.value for value in values(result)}
    assert listed["limits.tunnels"] == 4096
    assert listed["deny"] == ()
    items = {key: value for key, value in listed.items() if key.startswith("allow[")}
    assert items == {"allow[0].host": "a", "allow[1].host": "b", "allow[1].private": True}


def test_a_variable_that_holds_a_secret_is_no_typing_error(file: Path) -> None:
    text = '[[client]]\nname = "a"\ntoken = "env:EGRESS_CLIENTS"\n'
    environ = {"EGRESS_CLIENTS": "t", "EGRESS_DENNY": "x"}
    assert [warning.partition(" ")[0] for warning in loaded(file, text, {}, environ).warnings] == [
        "EGRESS_DENNY"
    ]
