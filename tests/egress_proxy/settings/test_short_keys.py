"""Flag names as keys: each reaches its place in a table, and no setting has two values."""

import pytest

from egress_proxy.settings.origins import SettingsError
from egress_proxy.settings.short_keys import SHORT_KEYS, expand


@pytest.mark.parametrize(
    ("table", "tree"),
    [
        ({"control_port": 5}, {"control": {"port": 5}}),
        ({"control_token_env": "T"}, {"control": {"token": "env:T"}}),
        ({"client_token_env": "T"}, {"client_token": "env:T"}),
        ({"no_sni_check": True}, {"tls": {"sni_check": False}}),
        ({"audit": "a.jsonl"}, {"audit": {"path": "a.jsonl"}}),
        ({"audit": {"path": "a", "on_error": "refuse"}}, {"audit": {"path": "a", "on_error": "refuse"}}),
        ({"control_port": 5, "control": {"token": "env:T"}}, {"control": {"token": "env:T", "port": 5}}),
        ({"bind": "x", "allow": ["a"]}, {"bind": "x", "allow": ["a"]}),
    ],
)
def test_a_short_key_stands_for_its_place(table: dict[str, object], tree: dict[str, object]) -> None:
    assert expand(table).tree == tree


def test_the_table_that_came_in_is_left_as_it_was() -> None:
    table: dict[str, object] = {"control_port": 5, "control": {"token": "env:T"}}
    expand(table)
    assert table == {"control_port": 5, "control": {"token": "env:T"}}


def test_a_wrong_type_is_left_for_validation_to_name() -> None:
    assert expand({"no_sni_check": "x", "control_token_env": 5}).tree == {
        "tls": {"sni_check": "x"},
        "control": {"token": 5},
    }
    assert expand({"control_port": 5, "control": "x"}).tree == {"control": "x"}


def test_the_key_as_written_is_remembered() -> None:
    expanded = expand({"control_port": 5, "bind": "x"})
    assert expanded.written(("control", "port")) == ("control_port",)
    assert expanded.written(("bind",)) == ("bind",)


def test_one_setting_under_two_names_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"control_port and control\.port are one setting"):
        expand({"control_port": 5, "control": {"port": 6}})


def test_every_short_key_has_a_place() -> None:
    assert set(SHORT_KEYS) == {
        "control_port",
        "control_token_env",
        "client_token_env",
        "no_sni_check",
        "audit",
    }
