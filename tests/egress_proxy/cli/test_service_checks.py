"""What must hold between settings, and what is worth a warning though it may start."""

import os
from pathlib import Path

import pytest

from egress_proxy import path_trust
from egress_proxy.cli.policy_source import policy_of
from egress_proxy.cli.service_checks import bind_of, check_service, resolver_of, warnings_of
from egress_proxy.settings.load import Loaded, load
from egress_proxy.settings.origins import SettingsError, Text

CLIENT = {"EGRESS_CLIENT_TOKEN": "env:T"}


def written(environ: dict[str, str] | None = None, **flags: str | bool | list[str]) -> Loaded:
    def marked(value: str | bool | list[str]) -> object:
        if isinstance(value, list):
            return [Text(item) for item in value]
        return Text(value) if isinstance(value, str) else value

    return load({name: marked(value) for name, value in flags.items()}, environ or {})


def refusal(loaded: Loaded) -> str:
    with pytest.raises(SettingsError) as refused:
        check_service(loaded, policy_of(loaded, {}))
    return str(refused.value)


def warned(loaded: Loaded) -> list[str]:
    policy = policy_of(loaded, {})
    check_service(loaded, policy)
    return list(warnings_of(loaded, policy))


@pytest.mark.parametrize("bind", ["0.0.0.0:0", "[::]:1", "192.0.2.1:80", "10.0.0.1:80"])
def test_a_port_that_strangers_reach_needs_tokens_and_a_flag(bind: str) -> None:
    assert "add --client-token-env" in refusal(written(bind=bind, allow_none=True))
    assert "add --client-token-env" in refusal(written(bind=bind, allow_none=True, dangerously_bind_any=True))
    assert "say --dangerously-bind-any too" in refusal(written(CLIENT, bind=bind, allow_none=True))
    check_service(
        loaded := written(CLIENT, bind=bind, allow_none=True, dangerously_bind_any=True),
        policy_of(loaded, {}),
    )


@pytest.mark.parametrize("bind", ["127.0.0.1:0", "127.8.8.8:1", "[::1]:1", "localhost:1"])
def test_loopback_needs_neither(bind: str) -> None:
    assert bind_of(written(bind=bind)).address.is_loopback


@pytest.mark.parametrize("bind", ["8899", ":8899", "a.example:1", "127.0.0.1:x", "127.0.0.1:70000"])
def test_a_bad_bind_is_named(bind: str) -> None:
    assert refusal(written(bind=bind, allow_none=True)).startswith("--bind must be ADDRESS:PORT")


def test_an_empty_list_must_be_meant() -> None:
    message = refusal(written())
    assert "--allow HOST" in message
    assert "--allow-none" in message
    assert refusal(written(deny=["a.example"])) == message
    for loaded in (
        written(allow_none=True),
        written(allow=["a.example"]),
        written(inject_host="a.example", inject_secret_env="K"),
    ):
        check_service(loaded, policy_of(loaded, {}))


def test_the_web_tools_list_fills_the_list() -> None:
    loaded = written()
    check_service(loaded, policy_of(loaded, {"STEERABLE_WEB_ALLOWED_DOMAINS": "a.example"}))


def test_two_listeners_need_two_ports() -> None:
    loaded = written(bind="127.0.0.1:5", control_port="5", control_token_env="T", allow_none=True)
    assert refusal(loaded).startswith("--control-port is the port of bind")
    assert warned(written(bind="127.0.0.1:0", control_port="0", allow_none=True)) == []


def test_recording_needs_a_rule() -> None:
    assert "needs an inject rule" in refusal(written(record_requests="r.jsonl", allow_none=True))


def test_a_relay_that_this_system_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("select.epoll", raising=False)
    assert refusal(written(relay="epoll", allow_none=True)) == "--relay cannot be epoll on this system"


def test_the_resolver_is_an_address() -> None:
    assert str(resolver_of(written(resolver="192.0.2.53"))) == "192.0.2.53:53"
    assert resolver_of(written()) is None
    assert refusal(written(resolver="dns.example", allow_none=True)).startswith(
        "--resolver must be an address"
    )


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("169.254.169.254", "cloud metadata is never reachable"),
        ("metadata.google.internal", "cloud metadata is never reachable"),
        ("[fd00:ec2::254]:80", "cloud metadata is never reachable"),
        ("127.0.0.1:8899", "the proxy does not connect to itself"),
        ("127.0.0.1:9000", "the proxy does not connect to itself"),
        ("localhost:8899", "the proxy does not connect to itself"),
        ("0.0.0.0:80", "no such address can be dialled"),
    ],
)
def test_an_entry_that_is_refused_anyway_is_worth_a_warning(entry: str, words: str) -> None:
    (warning,) = warned(written(allow=[entry], control_port="9000", control_token_env="T"))
    assert "is listed and refused all the same" in warning
    assert words in warning


@pytest.mark.parametrize(
    "entry", ["a.example", "127.0.0.1:1", "localhost:1", "*.internal.example", "[::1]", "10.0.0.1:*"]
)
def test_an_entry_that_can_be_reached_is_worth_none(entry: str) -> None:
    assert warned(written(allow=[entry])) == []


def test_a_rule_for_metadata_is_worth_a_warning() -> None:
    (warning,) = warned(written(inject_host="metadata.google.internal", inject_secret_env="K"))
    assert warning.startswith("inject rule default is listed")


def test_a_control_port_without_a_token_is_worth_a_warning() -> None:
    (warning,) = warned(written(allow_none=True, control_port="5"))
    assert warning.startswith("--control-port has no effect without --control-token-env")


def test_a_log_that_everybody_may_replace_is_warned_of(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    log = tmp_path / "audit.jsonl"
    said = warned(written(allow=["a.example"], audit=str(log)))
    assert said == [f"everybody may write to {tmp_path} and so replace {log}; chmod o-w it"]
    tmp_path.chmod(0o1777)
    assert warned(written(allow=["a.example"], audit=str(log))) == []


def test_a_settings_file_of_another_user_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "egress.toml"
    path.write_text('allow = ["a.example"]\n')
    loaded = load({}, {}, str(path))
    assert warned(loaded) == []
    owner = os.stat(path).st_uid
    monkeypatch.setattr(path_trust, "_TRUSTED", frozenset({owner + 1}))
    monkeypatch.setattr("os.geteuid", lambda: owner + 1)
    assert warned(loaded) == [
        f"the settings file {path} belongs to user {owner}, who decides what may be reached"
    ]
