"""EGRESS_* variables: nested names, JSON for lists, and nothing that is meant for us overlooked."""

import pytest

from egress_proxy.settings.origins import SettingsError, Text
from egress_proxy.settings.variables import overlooked_variables, variables_layer


@pytest.mark.parametrize(
    ("environ", "tree"),
    [
        ({"EGRESS_BIND": "127.0.0.1:1"}, {"bind": "127.0.0.1:1"}),
        ({"EGRESS_LIMITS__TUNNELS": "5"}, {"limits": {"tunnels": "5"}}),
        ({"EGRESS_ALLOW": '["a", {"host": "b"}]'}, {"allow": ["a", {"host": "b"}]}),
        ({"EGRESS_LIMITS": '{"tunnels": 5}'}, {"limits": {"tunnels": 5}}),
        (
            {"EGRESS_LIMITS": '{"tunnels": 5}', "EGRESS_LIMITS__HEAD_BYTES": "6"},
            {"limits": {"tunnels": 5, "head_bytes": "6"}},
        ),
        ({"EGRESS_BIND": "", "EGRESS_ALLOW": ""}, {}),
        ({"egress_bind": "x", "Egress_Bind": "x", "BIND": "x", "EGRESS_CONFIG": "x"}, {}),
        ({"EGRESS_PROXY_PORT": "5", "EGRESS_CLIENT_BUILD": "x"}, {}),
    ],
)
def test_variables_become_keys(environ: dict[str, str], tree: dict[str, object]) -> None:
    assert variables_layer(environ).tree == tree


def test_single_values_are_marked_as_text() -> None:
    tree = variables_layer({"EGRESS_BIND": "x", "EGRESS_CONTROL__PORT": "5"}).tree
    assert isinstance(tree["bind"], Text)
    control = tree["control"]
    assert isinstance(control, dict)
    assert isinstance(control["port"], Text)


@pytest.mark.parametrize("value", ["a.example", "[", "{'a': 1}", "[" * 100_000])
def test_a_list_that_is_no_json_is_refused_with_an_example(value: str) -> None:
    with pytest.raises(SettingsError) as refused:
        variables_layer({"EGRESS_ALLOW": value})
    assert str(refused.value).startswith('EGRESS_ALLOW must be JSON: a list such as ["api.example.com"]')


def test_a_table_that_does_not_exist_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"did you mean EGRESS_LIMITS__TUNNELS\?"):
        variables_layer({"EGRESS_LIMTS__TUNNELS": "5"})


def test_the_variable_that_said_it_is_named() -> None:
    layer = variables_layer({"EGRESS_LIMITS": '{"tunnels": 5}', "EGRESS_LIMITS__HEAD_BYTES": "6"})
    assert layer.locate(("limits", "head_bytes")).text == "EGRESS_LIMITS__HEAD_BYTES"
    assert layer.locate(("limits", "tunnels")).text == "EGRESS_LIMITS"


def test_a_typing_error_is_worth_a_warning() -> None:
    names = ["EGRESS_DENNY", "EGRESS_PROXY_PORT", "EGRESS_CONTROL_PORT", "EGRESS_ATTACH", "EGRESS_CONFIG"]
    assert overlooked_variables([*names, "EGRESS_BIND", "EGRESS_CLIENT_BUILD", "HOME"]) == [
        "EGRESS_DENNY is no setting and is ignored; did you mean EGRESS_DENY?"
    ]
