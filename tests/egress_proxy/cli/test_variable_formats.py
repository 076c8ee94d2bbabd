"""What is printed reads back as the same values, and what is unset is gone."""

import json
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egress_proxy.cli.variable_formats import Format, render, render_unset
from egress_proxy.sandbox.environment import PROXY_NAMES, proxy_variables

VARIABLES = proxy_variables("http://127.0.0.1:8899", confined=False, loopback_direct=True)
# Whatever an environment can hold.
VALUES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
NAMES = st.from_regex(r"[A-Z][A-Z0-9_]{0,10}", fullmatch=True).map(lambda name: f"V_{name}")


def sh(script: str) -> bytes:
    return subprocess.run(["sh", "-c", script], capture_output=True, check=True).stdout


@settings(deadline=None, max_examples=60)
@given(st.dictionaries(NAMES, VALUES, min_size=1, max_size=5))
def test_a_shell_reads_back_the_same_values(variables: dict[str, str]) -> None:
    names = list(variables)
    shown = " ".join(f'"${name}"' for name in names)
    out = sh(f"{render(variables, Format.SHELL)}printf '%s\\0' {shown}")
    assert out.decode().split("\0")[:-1] == [variables[name] for name in names]


def test_a_shell_reads_it_through_eval() -> None:
    script = f"eval \"$(cat <<'END'\n{render(VARIABLES, Format.SHELL)}END\n)\"; env"
    lines = sh(script).decode().splitlines()
    assert {f"{name}={value}" for name, value in VARIABLES.items()} <= set(lines)


def test_a_shell_has_none_of_them_after_unset() -> None:
    script = render(VARIABLES, Format.SHELL) + render_unset(PROXY_NAMES, Format.SHELL) + "env"
    names = {line.partition("=")[0] for line in sh(script).decode().splitlines()}
    assert not names & set(PROXY_NAMES)


def test_json_is_an_object_of_strings_and_its_inverse_of_nulls() -> None:
    assert json.loads(render(VARIABLES, Format.JSON)) == VARIABLES
    assert json.loads(render_unset(PROXY_NAMES, Format.JSON)) == dict.fromkeys(PROXY_NAMES)


def test_docker_takes_values_as_they_are() -> None:
    lines = dict(line.split("=", 1) for line in render(VARIABLES, Format.DOCKER).splitlines())
    assert lines == VARIABLES
    emptied = dict(line.split("=", 1) for line in render_unset(PROXY_NAMES, Format.DOCKER).splitlines())
    assert emptied == dict.fromkeys(PROXY_NAMES, "")


def test_dotenv_values_are_quoted_against_expansion() -> None:
    assert render({"A": 'a"b\\c$d\ne'}, Format.DOTENV) == 'A="a\\"b\\\\c\\$d\\ne"\n'
    assert 'NO_PROXY="localhost,127.0.0.1,::1"\n' in render(VARIABLES, Format.DOTENV)


def test_kubernetes_gets_strings_even_where_they_look_like_numbers() -> None:
    assert '- name: NODE_USE_ENV_PROXY\n  value: "1"\n' in render(VARIABLES, Format.K8S)
    assert render_unset(["A"], Format.K8S) == "- name: A\n  $patch: delete\n"


@pytest.mark.parametrize("form", Format)
def test_every_format_names_every_variable_and_takes_back_every_one(form: Format) -> None:
    for name in VARIABLES:
        assert name in render(VARIABLES, form)
    for name in PROXY_NAMES:
        assert name in render_unset(PROXY_NAMES, form)
