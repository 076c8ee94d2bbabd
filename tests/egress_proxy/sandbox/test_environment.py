"""The variables of the proxy and the environment of a confined child: what is in it, and what never is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress_proxy.sandbox.environment import (
    MARKER,
    PROXY_NAMES,
    child_environment,
    named_variables,
    plain_messages,
    proxy_variables,
    without_proxy,
)

URL = "http://127.0.0.1:8899"
BOTH_CASES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")


def test_both_cases_are_set_and_node_is_told() -> None:
    variables = proxy_variables(URL, confined=True)
    assert {name: variables[name] for name in BOTH_CASES} == dict.fromkeys(BOTH_CASES, URL)
    assert variables["NODE_USE_ENV_PROXY"] == "1"
    assert variables["YARN_HTTP_PROXY"] == variables["YARN_HTTPS_PROXY"] == URL  # Yarn 4 reads these alone
    assert set(variables) == set(PROXY_NAMES)


def test_with_the_marker_nothing_is_exempt() -> None:
    for direct in (True, False):
        variables = proxy_variables(URL, confined=True, loopback_direct=direct)
        assert (variables[MARKER], variables["NO_PROXY"], variables["no_proxy"]) == ("1", "", "")


def test_without_the_marker_loopback_is_exempt_only_when_asked() -> None:
    variables = proxy_variables(URL, confined=False)
    assert MARKER not in variables
    assert variables["NO_PROXY"] == ""
    asked = proxy_variables(URL, confined=False, loopback_direct=True)
    assert asked["NO_PROXY"] == asked["no_proxy"] == "localhost,127.0.0.1,::1"


def test_inherited_proxy_variables_are_dropped_and_never_merged() -> None:
    parent = {"NO_PROXY": "*", "no_proxy": "169.254.169.254", "HTTP_PROXY": "http://other", "PATH": "/bin"}
    proxy = proxy_variables(URL, confined=True)
    assert child_environment(parent, proxy) == {"PATH": "/bin", **proxy}
    assert child_environment(parent, {}) == {"PATH": "/bin"}


FOREIGN = [
    "STEERABLE_EGRESS_CONTROL_TOKEN",
    "STEERABLE_EGRESS_CONTROL_PORT",
    "STEERABLE_EGRESS_SECRET",
    "GITHUB_TOKEN",
    "OPENAI_API_KEY",
    "SSH_AUTH_SOCK",
    "DBUS_SESSION_BUS_ADDRESS",
    "XDG_RUNTIME_DIR",
    "LD_PRELOAD",
    "BASH_ENV",
    "ENV",
    "PYTHONSTARTUP",
    "PYTHONPATH",
    "NODE_OPTIONS",
    "GIT_SSH_COMMAND",
    "GIT_CONFIG_COUNT",
    "DOCKER_HOST",
    "DISPLAY",
]


def test_a_child_gets_the_listed_few_and_nothing_else() -> None:
    few = dict.fromkeys(
        ["PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TERM", "USER", "LOGNAME", "SHELL", "TZ"], "x"
    )
    parent = {**few, **dict.fromkeys(FOREIGN, "CANARY"), "MY_PROVIDER_JWT": "CANARY", "LANGUAGE": "CANARY"}
    assert child_environment(parent, {}) == few


def test_declared_extras_are_handed_on() -> None:
    parent = {"MY_SETTING": "1", "OTHER": "2"}
    assert child_environment(parent, {}, ["MY_SETTING", "ABSENT"]) == {"MY_SETTING": "1"}


@pytest.mark.parametrize("name", [*FOREIGN, "NO_PROXY", "http_proxy", MARKER])
def test_what_no_child_may_have_cannot_be_declared(name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} cannot be handed"):
        child_environment({}, {}, [name])


@pytest.mark.parametrize(("confined", "direct"), [(True, False), (False, False), (False, True)])
def test_the_inverse_takes_away_exactly_what_was_set(confined: bool, direct: bool) -> None:
    parent = {"PATH": "/bin", "HOME": "/h"}
    proxied = {**parent, **proxy_variables(URL, confined=confined, loopback_direct=direct)}
    assert without_proxy(proxied, URL) == parent


def test_the_inverse_leaves_another_proxy_alone() -> None:
    environ = {"HTTPS_PROXY": "http://other:1", "NO_PROXY": "intern.example", "NODE_USE_ENV_PROXY": "0"}
    assert without_proxy(environ, URL) == environ


@given(st.dictionaries(st.text(min_size=1), st.text()), st.booleans())
def test_whatever_the_parent_has_only_our_proxy_variables_reach_a_child(
    parent: dict[str, str], confined: bool
) -> None:
    proxy = proxy_variables(URL, confined=confined)
    child = child_environment(parent, proxy)
    assert {name: value for name, value in child.items() if name in PROXY_NAMES} == proxy


@pytest.mark.parametrize(
    ("given", "letters"),
    [
        ({}, "C.UTF-8"),
        ({"LANG": "de_DE.UTF-8"}, "de_DE.UTF-8"),
        ({"LANG": "de_DE.UTF-8", "LC_CTYPE": "C.UTF-8"}, "C.UTF-8"),
        ({"LANG": "C", "LC_ALL": "de_DE.UTF-8", "LC_CTYPE": "C"}, "de_DE.UTF-8"),
    ],
)
def test_messages_are_in_the_c_locale_and_letters_stay(given: dict[str, str], letters: str) -> None:
    plain = plain_messages({**given, "LC_TIME": "fr_FR", "PATH": "/bin"})
    assert plain == {
        "LANG": letters,
        "LC_CTYPE": letters,
        "LC_MESSAGES": "C",
        "LC_TIME": "fr_FR",
        "PATH": "/bin",
    }


@pytest.mark.parametrize(
    "name",
    [
        "LD_PRELOAD", "LD_LIBRARY_PATH", "BASH_ENV", "ENV", "PYTHONPATH", "NODE_OPTIONS", "PERL5LIB",
        "RUBYOPT",
        "JAVA_TOOL_OPTIONS", "GIT_SSH_COMMAND", "HTTPS_PROXY", "no_proxy", "STEERABLE_EGRESS_CONFINED",
        "STEERABLE_EGRESS_CONTROL_TOKEN", "EGRESS_CONTROL_PORT", "SSH_AUTH_SOCK", "DOCKER_HOST",
    ],
)  # fmt: skip
@pytest.mark.parametrize("value", ["", "=secret"])
def test_a_person_may_name_no_variable_that_changes_the_loader_or_the_sandbox(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"{name} cannot be handed to a confined process") as refused:
        named_variables([f"{name}{value}"])
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("entry", ["", "=x", "A B=1", "A-B", "1A=x", "\u00c4=1"])
def test_what_is_no_name_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match="is no name of a variable"):
        named_variables([entry])


def test_variables_are_passed_on_or_set_and_the_last_word_counts() -> None:
    named = named_variables(["CI", "A=1", "A=2=3", "PROVIDER_KEY", "B=1", "B"])
    assert (named.names, dict(named.values)) == (("CI", "PROVIDER_KEY", "B"), {"A": "2=3"})
