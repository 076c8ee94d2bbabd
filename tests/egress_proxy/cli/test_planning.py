"""A command line and an environment to one plan: typed values, wiped variables, and a reload."""

from collections.abc import Collection
from pathlib import Path

import pytest

from egress_proxy.cli.arguments import serve_parser
from egress_proxy.cli.plan import ServiceLimits
from egress_proxy.cli.planning import Planned, check, command_of, plan_service, shows_color
from egress_proxy.cli.secret_source import variables_among
from egress_proxy.core.host import parse_authority
from egress_proxy.core.policy import OnMiss
from egress_proxy.logs import Verbosity
from egress_proxy.proxy.audit import OnError
from egress_proxy.settings.origins import SettingsError

TARGET = parse_authority("a.example:443")


class Wiped:
    """Which variables were taken out of the environment."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def __call__(self, names: Collection[str]) -> None:
        self.names |= set(names)


def planned(*argv: str, environ: dict[str, str] | None = None, wipe: Wiped | None = None) -> Planned:
    command = command_of(serve_parser("egress-proxy serve").parse(argv))
    return plan_service(command, environ or {}, wipe or Wiped())


def test_without_settings_the_plan_is_the_defaults() -> None:
    plan = planned("--allow", "a.example").plan
    assert (str(plan.bind), plan.unix_path, plan.connect_timeout_s, plan.hold_timeout_s) == (
        "127.0.0.1:8899",
        None,
        10,
        120,
    )
    assert (plan.resolver, plan.relay, plan.control, plan.audit, plan.record_path) == (None,) * 5
    assert plan.limits == ServiceLimits(16_384, 10, 4_096, 1_024, 3_600, 60, 5, 60, 600, 45)
    assert plan.parts.policy.on_miss is OnMiss.DENY
    assert (plan.verbosity, plan.color) == (Verbosity.NORMAL, True)


def test_every_part_of_the_plan_is_a_typed_value(tmp_path: Path) -> None:
    result = planned(
        *["--allow", "a.example", "--bind", "[::1]:0", "--listen-unix", "u.sock", "--audit", "a.jsonl"],
        *["--control-port", "9", "--control-token-env", "T1", "--client-token-env", "T2", "-v"],
        *["--resolver", "192.0.2.53", "--relay", "loop", "--record-requests", "/r.jsonl"],
        *["--inject-host", "b.example", "--inject-secret-env", "KEY"],
        environ={"T1": "t1", "T2": "t2", "KEY": "k", "NO_COLOR": "1"},
    )
    plan = result.plan
    assert (str(plan.bind), str(plan.resolver), plan.relay) == ("[::1]:0", "192.0.2.53:53", "loop")
    assert (plan.unix_path, plan.record_path) == (Path.cwd() / "u.sock", Path("/r.jsonl"))
    assert plan.audit is not None
    assert (plan.audit.path, plan.audit.on_error) == (Path.cwd() / "a.jsonl", OnError.REFUSE)
    assert plan.control is not None
    assert plan.control.port == 9
    assert plan.control.token.holds(b"t1")
    assert plan.parts.clients.shared is not None
    assert plan.parts.clients.shared.holds(b"t2")
    assert list(plan.parts.credentials) == [route.name for route in plan.parts.policy.routes] == ["default"]
    assert (plan.verbosity, plan.color) == (Verbosity.VERBOSE, False)


def test_the_variables_that_held_secrets_are_wiped_and_no_others() -> None:
    wipe = Wiped()
    environ = {"KEY": "k", "OTHER": "x"}
    planned("--inject-host", "b.example", "--inject-secret-env", "KEY", environ=environ, wipe=wipe)
    tokens = {"STEERABLE_EGRESS_CONTROL_TOKEN", "EGRESS_CONTROL_TOKEN"}
    assert wipe.names == {"KEY", "STEERABLE_EGRESS_SECRET", *tokens}
    assert environ == {"KEY": "k", "OTHER": "x"}


def test_nothing_of_a_plan_shows_a_secret() -> None:
    argv = ["--inject-host", "b.example", "--inject-secret-env", "KEY", "--control-token-env", "T"]
    result = planned(*argv, environ={"KEY": "CANARY-1", "T": "CANARY-2"})
    assert "CANARY" not in repr(result)


def test_a_reload_reads_the_file_again_and_keeps_secrets_of_the_start(tmp_path: Path) -> None:
    file = tmp_path / "egress.toml"
    rule = '[[inject]]\nname = "r"\nhost = "b.example"\nsecret = "env:KEY"\n'
    file.write_text(rule + '[[allow]]\nhost = "a.example"\n')
    wipe = Wiped()
    plan = planned("--config", str(file), environ={"KEY": "k", "NEW": "n"}, wipe=wipe).plan
    assert any(plan.parts.policy.allow.matching(TARGET))
    file.write_text(rule + '[[client]]\nname = "c"\ntoken = "env:NEW"\n')
    parts = plan.reload()
    assert not any(parts.policy.allow.matching(TARGET))
    assert parts.credentials["r"].current().value() == b"k"
    assert parts.clients.own["c"].holds(b"n")
    assert "NEW" in wipe.names


@pytest.mark.parametrize(
    "text", ["bind = \n", "bnd = 1\n", "[[allow]]\nhost = '*'\n", "bind = '0.0.0.0:1'\n", ""]
)
def test_a_reload_of_bad_settings_raises_one_line_and_returns_nothing(tmp_path: Path, text: str) -> None:
    file = tmp_path / "egress.toml"
    file.write_text("allow = ['a.example']\n")
    plan = planned("--config", str(file)).plan
    file.write_text(text)
    with pytest.raises(SettingsError) as refused:
        plan.reload()
    assert str(refused.value).isprintable()


def test_warnings_come_with_the_plan() -> None:
    result = planned("--allow", "169.254.169.254", "--attach", "", environ={"EGRESS_DENNY": "x"})
    assert len(result.warnings) == 2


def test_checking_reads_no_secret() -> None:
    argv = ["--inject-host", "b.example", "--inject-secret-env", "ABSENT"]
    checked = check(command_of(serve_parser("x").parse(argv)), {})
    assert variables_among(checked.secrets) == {"ABSENT"}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [({}, True), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
)
def test_colours_are_a_matter_of_the_environment(environ: dict[str, str], expected: bool) -> None:
    assert shows_color(environ) is expected


def test_volume_is_a_matter_of_flags() -> None:
    parse = serve_parser("x").parse
    assert command_of(parse(["-q"])).verbosity is Verbosity.QUIET
    assert command_of(parse([])).verbosity is Verbosity.NORMAL
    assert command_of(parse(["-v"])).verbosity is Verbosity.VERBOSE
