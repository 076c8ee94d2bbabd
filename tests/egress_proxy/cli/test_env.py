"""`env`: the marker only for a proxy that has answered, and NO_PROXY empty whenever it is there."""

import json

import pytest

from egress_proxy.cli.arguments import env_parser
from egress_proxy.cli.env import env
from egress_proxy.cli.exit_codes import ExitCode, VerbFailed
from egress_proxy.sandbox.environment import MARKER, PROXY_NAMES
from egress_proxy.settings.origins import SettingsError
from tests.egress_proxy.cli.test_data_port import OURS, answering


def run(*argv: str, environ: dict[str, str] | None = None) -> int:
    return env(env_parser("egress-proxy env").parse(argv), environ or {})


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    result = json.loads(capsys.readouterr().out)
    assert isinstance(result, dict)
    return result


def test_a_proxy_that_answers_gets_the_marker(capsys: pytest.CaptureFixture[str]) -> None:
    with answering(OURS) as target:
        assert run("--json", "--proxy", str(target)) == ExitCode.OK
    variables = printed(capsys)
    assert variables.keys() == set(PROXY_NAMES)
    assert (variables[MARKER], variables["NO_PROXY"]) == ("1", "")
    assert variables["https_proxy"] == f"http://{target}"


def test_with_the_marker_loopback_is_not_exempt_whatever_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    with answering(OURS) as target:
        assert run("--format", "json", "--no-proxy-loopback", "--proxy", f"http://{target}/") == ExitCode.OK
    captured = capsys.readouterr()
    assert json.loads(captured.out)["no_proxy"] == ""
    assert captured.err.startswith("NO_PROXY stays empty")


def test_another_program_on_the_port_gets_no_marker(capsys: pytest.CaptureFixture[str]) -> None:
    with answering(b"HTTP/1.1 200 OK\r\n\r\n") as target:
        assert run("--json", "--proxy", str(target)) == ExitCode.FAILURE
    captured = capsys.readouterr()
    assert MARKER not in json.loads(captured.out)
    assert captured.err.startswith(f"no proxy answers at {target}")
    assert len(captured.err.splitlines()) == 1


def test_without_the_marker_loopback_is_exempt_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json", "--no-marker", "--no-proxy-loopback") == ExitCode.OK
    variables = printed(capsys)
    assert MARKER not in variables
    assert variables["NO_PROXY"] == "localhost,127.0.0.1,::1"


@pytest.mark.parametrize(
    ("environ", "url"),
    [
        ({}, "http://127.0.0.1:8899"),
        ({"EGRESS_BIND": "[::1]:5"}, "http://[::1]:5"),
        (
            {
                "EGRESS_BIND": "0.0.0.0:5",
                "EGRESS_CLIENT_TOKEN": "env:T",
                "EGRESS_DANGEROUSLY_BIND_ANY": "1",
                "T": "CANARY",
            },
            "http://127.0.0.1:5",
        ),
    ],
)
def test_without_proxy_flag_the_settings_say_where_it_is(
    environ: dict[str, str], url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--json", "--no-marker", environ=environ) == ExitCode.OK
    assert printed(capsys)["HTTP_PROXY"] == url


def test_inherited_values_are_not_merged(capsys: pytest.CaptureFixture[str]) -> None:
    run("--json", "--no-marker", environ={"NO_PROXY": "*", "HTTP_PROXY": "http://other"})
    assert printed(capsys)["NO_PROXY"] == ""


def test_an_ephemeral_port_must_be_named() -> None:
    with pytest.raises(VerbFailed, match="bind has port 0") as failed:
        run(environ={"EGRESS_BIND": "127.0.0.1:0"})
    assert failed.value.code is ExitCode.USAGE


@pytest.mark.parametrize("text", ["8899", "a b:1", "https://127.0.0.1:1", "http://user:secret@127.0.0.1:1"])
def test_a_bad_proxy_flag_is_a_usage_error(text: str) -> None:
    with pytest.raises(VerbFailed, match="--proxy must be HOST:PORT"):
        run("--proxy", text)


def test_bad_settings_are_refused() -> None:
    with pytest.raises(SettingsError):
        run(environ={"EGRESS_BIND": "nonsense"})


def test_unset_asks_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--unset", environ={"EGRESS_BIND": "nonsense"}) == ExitCode.OK
    assert capsys.readouterr().out.split() == [word for name in PROXY_NAMES for word in ("unset", name)]
