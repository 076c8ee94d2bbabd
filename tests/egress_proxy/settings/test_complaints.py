"""What is wrong, as one line: the key, what is allowed, where. Never the value."""

import pytest
from pydantic import ValidationError

from egress_proxy.settings.complaints import complaint
from egress_proxy.settings.origins import Origin, Source
from egress_proxy.settings.tree import Settings


def words(tree: dict[str, object], source: Source = Source.FILE) -> str:
    with pytest.raises(ValidationError) as refused:
        Settings.model_validate(tree)
    return str(complaint(refused.value, lambda _: Origin(source, "x.toml:3")))


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        ({"tunels": 1}, "x.toml:3: unknown key 'tunels'; did you mean 'tunnels' in [limits]?"),
        ({"bnd": 1}, "x.toml:3: unknown key 'bnd'; did you mean 'bind'?"),
        ({"control_prt": 1}, "x.toml:3: unknown key 'control_prt'; did you mean 'control_port'?"),
        ({"zzzzzz": 1}, "x.toml:3: unknown key 'zzzzzz'"),
        ({"head_bytes": 1}, "x.toml:3: unknown key 'head_bytes'; it belongs in [limits]"),
        (
            {"limits": {"bind": 1}},
            "x.toml:3: unknown key 'bind' in [limits]; bind belongs above the first table",
        ),
        ({"allow": [{"hots": 1}]}, "x.toml:3: unknown key 'hots' in [[allow]]; did you mean 'host'?"),
        ({"inject": [{"name": "a"}]}, "inject[0] has no host (x.toml:3)"),
        ({"connect_timeout": "10"}, "connect_timeout must be a number of seconds greater than 0 (x.toml:3)"),
        (
            {"limits": {"tunnels": True}},
            "limits.tunnels must be a whole number from 1 to 1000000000 (x.toml:3)",
        ),
        ({"relay": "kqueue"}, "relay must be epoll or loop (x.toml:3)"),
        ({"allow": [5]}, "allow[0] must be a host, or a table with one (x.toml:3)"),
        ({"allow_private": [5]}, "allow_private[0] must be a host, HOST or HOST:PORT (x.toml:3)"),
        ({"allow": 5}, 'allow must be a list of hosts, such as ["api.example.com"] (x.toml:3)'),
        ({"inject": [5]}, "inject[0] must be a table (x.toml:3)"),
        ({"limits": 5}, "limits must be a table, [limits] (x.toml:3)"),
        ({"inject_port": "x"}, "inject_port must be a port, 1 to 65535 (x.toml:3)"),
        (
            {"inject": [{"name": "a", "host": "b", "methods": [5]}]},
            "inject[0].methods[0] must be a text of one line (x.toml:3)",
        ),
        ({"bind": "a\nb"}, "bind holds a line end (x.toml:3)"),
        ({"on_miss": "hold"}, "on_miss cannot be hold: that is not available in this version (x.toml:3)"),
        ({"tls": {"intercept": True}}, "tls.intercept is not available in this version (x.toml:3)"),
    ],
)
def test_one_line_says_what_is_wrong(tree: dict[str, object], expected: str) -> None:
    assert words(tree) == expected


def test_an_unknown_key_goes_before_the_one_that_is_missing() -> None:
    assert "unknown key 'hots'" in words({"deny": [{"hots": "a"}]})


def test_an_unknown_key_of_a_variable_names_the_variable() -> None:
    assert words({"limits": {"tunels": 1}}, Source.VARIABLE) == (
        "x.toml:3 sets limits.tunels, which is no setting; did you mean 'tunnels'?"
    )


@pytest.mark.parametrize(
    "tree",
    [
        {"client_token": ["CANARY"]},
        {"control": "CANARY"},
        {"control": {"token": {"CANARY": 1}}},
        {"client": [{"name": "a", "token": ["CANARY"]}]},
        {"inject": [{"name": "CANARY CANARY", "host": "a"}]},
        {"inject": [{"name": "a", "host": "a", "header": "CANARY\n"}]},
        {"inject": [{"name": "a", "host": "a", "secret": 5, "format": "CANARY\r"}]},
        {"limits": {"tunnels": "CANARY"}},
    ],
)
def test_no_complaint_holds_the_value(tree: dict[str, object]) -> None:
    assert "CANARY" not in words(tree)
