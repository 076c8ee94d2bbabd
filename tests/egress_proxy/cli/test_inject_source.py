"""Credential rules to routes: the flags' rule, the file's, and what makes a rule useless or unsafe."""

import json

import pytest

from egress_proxy.cli.inject_source import FLAG_RULE, inject_routes, inject_rules, useless_flags
from egress_proxy.core.access import InjectRoute, Scheme
from egress_proxy.core.host import parse_host
from egress_proxy.settings.load import Loaded, load
from egress_proxy.settings.origins import SettingsError, Text

RULE: dict[str, object] = {"name": "provider", "host": "api.example.com", "secret": "env:KEY"}


def rules(*tables: dict[str, object], **flags: str) -> Loaded:
    environ = {"EGRESS_INJECT": json.dumps(tables)} if tables else {}
    return load({name: Text(value) for name, value in flags.items()}, environ)


def routes(*tables: dict[str, object], **flags: str) -> tuple[InjectRoute, ...]:
    return inject_routes(rules(*tables, **flags), ["build"])


def test_the_flags_make_one_rule() -> None:
    (route,) = routes(inject_host="api.example.com", inject_secret_env="KEY", inject_port="8443")
    assert route == InjectRoute(FLAG_RULE, parse_host("api.example.com"), upstream_port=8443)


def test_the_upstream_port_follows_the_scheme() -> None:
    (secure,) = routes(RULE)
    assert (secure.port, secure.upstream_port, secure.scheme) == (80, 443, Scheme.HTTPS)
    (plain,) = routes({"name": "local", "host": "localhost", "scheme": "http", "port": 11434})
    assert (plain.port, plain.upstream_port, plain.scheme) == (11434, 80, Scheme.HTTP)


def test_everything_a_table_says_reaches_the_route() -> None:
    more = {"methods": ["GET", "POST"], "paths": ["/v1/"], "client": "build", "opaque_bodies": True}
    (route,) = routes({**RULE, **more})
    assert (route.methods, route.paths) == (frozenset({"GET", "POST"}), (b"/v1/",))
    assert (route.client, route.opaque_bodies) == ("build", True)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            {"inject_host": "a"},
            "--inject-host needs --inject-secret-env too: a rule is a host and its secret",
        ),
        (
            {"inject_secret_env": "A"},
            "--inject-secret-env needs --inject-host too: a rule is a host and its secret",
        ),
    ],
)
def test_half_a_rule_is_refused(flags: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError) as refused:
        inject_rules(rules(**flags))
    assert str(refused.value) == message


def test_flags_without_their_rule_are_worth_a_warning() -> None:
    loaded = rules(inject_header="x-api-key", inject_scheme="https", inject_port="1")
    assert list(useless_flags(loaded)) == [
        f"--inject-{name} has no effect without --inject-host" for name in ("header", "scheme", "port")
    ]
    assert not list(useless_flags(rules(inject_host="a", inject_header="x")))


@pytest.mark.parametrize("host", ["api.example.com", "10.0.0.1", "[2001:db8::1]", "127.evil.example"])
def test_a_credential_goes_in_clear_to_loopback_only(host: str) -> None:
    with pytest.raises(SettingsError, match="may be http to a loopback host only"):
        routes({**RULE, "host": host, "scheme": "http"})


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.9.1", "[::1]", "LOCALHOST."])
def test_loopback_may_be_spoken_to_in_clear_and_without_a_secret(host: str) -> None:
    assert routes({"name": "local", "host": host, "scheme": "http"})


@pytest.mark.parametrize(
    ("table", "field"),
    [
        ({"host": "a.example:80"}, "host"),
        ({"host": "*.a.example"}, "host"),
        ({"host": "http://a.example"}, "host"),
        ({"host": "::1"}, "host"),
        ({"host": ""}, "host"),
        ({"secret": None}, "secret"),
        ({"methods": ["get"]}, "methods"),
        ({"methods": ["TRACE"]}, "methods"),
        ({"methods": ["CONNECT"]}, "methods"),
        ({"methods": ["GET POST"]}, "methods"),
        ({"paths": ["v1"]}, "paths"),
        ({"paths": ["/v1?x"]}, "paths"),
        ({"paths": ["/v1#x"]}, "paths"),
        ({"paths": ["/a/../b"]}, "paths"),
        ({"paths": ["/a/%2e%2E/b"]}, "paths"),
        ({"paths": ["/é"]}, "paths"),
        ({"client": "ci"}, "client"),
    ],
)
def test_a_rule_that_cannot_work_is_refused(table: dict[str, object], field: str) -> None:
    with pytest.raises(SettingsError, match=rf"inject\[0\]\.{field} "):
        routes({**RULE, **table})


def test_two_rules_of_one_name_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"inject\[1\]\.name is taken"):
        routes(RULE, {**RULE, "host": "b.example"})


def test_a_rule_that_another_always_gets_ahead_of_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"inject\[1\]\.host and its port are taken by rule provider"):
        routes(RULE, {**RULE, "name": "second", "client": "build"})


def test_a_client_s_own_rule_may_stand_before_the_one_for_everybody() -> None:
    assert len(routes({**RULE, "client": "build"}, {**RULE, "name": "second"})) == 2
    assert len(routes(RULE, {**RULE, "name": "second", "port": 81})) == 2
