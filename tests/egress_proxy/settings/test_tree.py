"""The keys: what is unknown is refused, entries may be text alone, later versions' keys say so."""

import pytest
from pydantic import ValidationError

from egress_proxy.settings.tree import Settings


def kinds(tree: dict[str, object]) -> set[tuple[str, tuple[str | int, ...]]]:
    with pytest.raises(ValidationError) as refused:
        Settings.model_validate(tree)
    return {(error["type"], error["loc"]) for error in refused.value.errors()}


def test_defaults_are_those_of_the_contract() -> None:
    settings = Settings()
    assert (settings.bind, settings.on_miss, settings.connect_timeout) == ("127.0.0.1:8899", "deny", 10)
    assert (settings.hold_timeout, settings.tls.sni_check, settings.audit.on_error) == (120, True, "refuse")
    limits = settings.limits
    assert (limits.head_bytes, limits.head_timeout_s, limits.tunnels) == (16_384, 10, 4_096)
    assert (limits.tunnels_per_client, limits.idle_timeout_s) == (1_024, 3_600)
    assert (limits.half_close_timeout_s, limits.drain_timeout_s) == (60, 5)
    assert limits.first_byte_timeout_s == 600
    assert limits.body_timeout_s == 60


def test_an_entry_may_be_text_alone() -> None:
    settings = Settings.model_validate({"allow": ["a.example", {"host": "b.example", "private": True}]})
    assert [(entry.host, entry.private) for entry in settings.allow] == [
        ("a.example", False),
        ("b.example", True),
    ]


@pytest.mark.parametrize("key", ["unknown", "_env_file", "_cli_parse_args", "model_config"])
def test_an_unknown_key_is_refused(key: str) -> None:
    assert kinds({key: "x"}) == {("extra_forbidden", (key,))}


def test_an_unknown_key_inside_a_table_is_refused() -> None:
    assert kinds({"limits": {"tunels": 1}}) == {("extra_forbidden", ("limits", "tunels"))}


@pytest.mark.parametrize(
    ("tree", "place"),
    [
        ({"on_miss": "hold"}, ("on_miss",)),
        ({"upstream_proxy": "http://proxy.example"}, ("upstream_proxy",)),
        ({"tls": {"intercept": True}}, ("tls", "intercept")),
        ({"inject": [{"name": "a", "host": "b", "placeholder": "x"}]}, ("inject", 0, "placeholder")),
        (
            {"inject": [{"name": "a", "host": "b", "requests_per_minute": 5}]},
            ("inject", 0, "requests_per_minute"),
        ),
    ],
)
def test_what_is_not_available_yet_is_never_silently_accepted(
    tree: dict[str, object], place: tuple[str | int, ...]
) -> None:
    assert kinds(tree) == {("value_error", place)}


def test_what_is_not_available_yet_may_be_switched_off() -> None:
    Settings.model_validate({"tls": {"intercept": False}, "on_miss": "deny"})
