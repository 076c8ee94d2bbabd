"""The variables of `egress-proxy env`, as every client gets them, and what a shell makes of them.

The clients themselves are in test_client_*.py, each a file of its own.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.end_to_end.programs import python_program, system_program
from tests.end_to_end.road import LISTED, UNLISTED, Road, proxy_environment, run_client
from tests.support import answers
from tests.support.origins import closed_port
from tests.support.program import PROGRAM, run_cli
from tests.support.service import Service

PROXIED = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
LOOPBACK = "localhost,127.0.0.1,::1"
# What a user's shell may hold, and what has let agents slip past a proxy.
INHERITED = {
    "NO_PROXY": "*",
    "no_proxy": f"169.254.169.254,{LISTED},{UNLISTED}",
    "HTTP_PROXY": "http://other.example:3128",
    "https_proxy": "http://other.example:3128",
    "all_proxy": "socks5://other.example:1080",
    "NODE_USE_ENV_PROXY": "0",
}
PRINT_ENVIRONMENT = "import json, os; print(json.dumps(dict(os.environ)))"


def both_cases(values: dict[str, str]) -> dict[str, str]:
    return values | {name.lower(): value for name, value in values.items()}


def expected(road: Road, no_proxy: str = "") -> dict[str, str]:
    url = f"http://127.0.0.1:{road.service.proxy_port}"
    yarn = {"YARN_HTTP_PROXY": url, "YARN_HTTPS_PROXY": url}
    both = both_cases({**dict.fromkeys(PROXIED, url), "NO_PROXY": no_proxy})
    return both | yarn | {"NODE_USE_ENV_PROXY": "1"}


def in_a_shell(road: Road, *commands: str) -> subprocess.CompletedProcess[str]:
    """A user's shell whose environment is not ours to choose."""
    env = {**INHERITED, "PYTHON": python_program(), "CURL_CA_BUNDLE": str(road.ca_path)}
    return run_client(["sh", "-euc", "\n".join(commands)], env, road.folder)


def egress_proxy(*words: str) -> str:
    return shlex.join([*PROGRAM, *words])


def proxy_flag(road: Road) -> tuple[str, str]:
    return ("--proxy", f"127.0.0.1:{road.service.proxy_port}")


def test_the_question_whether_the_proxy_answers_leaves_no_line(
    start_service: Callable[..., Service], tmp_path: Path
) -> None:
    audit = tmp_path / "audit.jsonl"
    for flags in (("--allow-none",), ("--inject-host", "api.example", "--inject-secret-env", "KEY")):
        service = start_service(*flags, "--audit", str(audit), env={"KEY": "Bearer some-secret-key"})
        before = audit.read_text()
        asked = run_cli("env", "--format", "json", "--proxy", f"127.0.0.1:{service.proxy_port}")
        assert json.loads(asked.stdout)["STEERABLE_EGRESS_CONFINED"] == "1"
        service.raw(b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n")  # anybody else's question is written down
        lines = audit.read_text().removeprefix(before).splitlines()
        assert [json.loads(line)["method"] for line in lines] == ["OPTIONS"]
        service.stop()


def test_env_names_the_proxy_in_both_cases_exempts_nothing_and_sets_the_marker(road: Road) -> None:
    assert road.variables == expected(road) | {"STEERABLE_EGRESS_CONFINED": "1"}


def test_loopback_is_exempt_only_without_the_marker(road: Road) -> None:
    port = road.service.proxy_port
    marked = proxy_environment(port, "--no-proxy-loopback")
    assert marked == expected(road) | {"STEERABLE_EGRESS_CONFINED": "1"}
    assert proxy_environment(port, "--no-proxy-loopback", "--no-marker") == expected(road, LOOPBACK)


def test_a_proxy_that_does_not_answer_gets_no_marker() -> None:
    with closed_port() as port:
        done = run_cli("env", "--format", "json", "--proxy", f"127.0.0.1:{port}")
    assert done.returncode == 1
    assert "STEERABLE_EGRESS_CONFINED" not in json.loads(done.stdout)
    assert f"127.0.0.1:{port}" in done.stderr


def test_what_a_shell_evaluates_replaces_what_it_had(road: Road) -> None:
    printed = f'eval "$({egress_proxy("env", *proxy_flag(road))})"'
    done = in_a_shell(road, printed, f"exec \"$PYTHON\" -c '{PRINT_ENVIRONMENT}'")
    assert done.returncode == 0, done.stderr
    environment = json.loads(done.stdout)
    assert {name: environment.get(name) for name in road.variables} == dict(road.variables)
    assert "other.example" not in done.stdout


def test_unset_takes_away_all_that_was_set(road: Road) -> None:
    commands = [f'eval "$({egress_proxy("env", *words)})"' for words in (proxy_flag(road), ("--unset",))]
    done = in_a_shell(road, *commands, f"exec \"$PYTHON\" -c '{PRINT_ENVIRONMENT}'")
    assert done.returncode == 0, done.stderr
    assert not json.loads(done.stdout).keys() & road.variables.keys()


@pytest.mark.parametrize(("host", "shown"), [(LISTED, "a page"), (UNLISTED, "")])
def test_a_client_in_that_shell_goes_through_the_proxy(road: Road, host: str, shown: str) -> None:
    system_program("curl")
    road.origin.on("/page", answers.fixed(b"a page"))
    printed = f'eval "$({egress_proxy("env", *proxy_flag(road))})"'
    done = in_a_shell(road, printed, f"exec curl -sS {road.url(host, '/page')}")
    assert done.stdout == shown
    assert ("403" in done.stderr) is (host == UNLISTED)
