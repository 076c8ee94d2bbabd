"""`config show|check`: values with their origins, secrets never, and the example settings sound."""

import json
from pathlib import Path

import pytest

from egress_proxy.cli.arguments import config_parser
from egress_proxy.cli.config import config
from egress_proxy.cli.printed import ConfigChecked, SettingsPrinted
from egress_proxy.settings.origins import SettingsError

EXAMPLE = Path(__file__).resolve().parents[3] / "deploy" / "egress.example.toml"

PASTED = """
client_token = "CANARY"
inject_host = "b.example"
inject_secret_env = "CANARY sk"
[control]
token = "CANARY:sk"
[[client]]
name = "a"
token = "env:CANARY-sk"
[[inject]]
name = "r"
host = "a.example"
format = "Bearer CANARY"
secret = "CANARY"
"""


def run(*argv: str, environ: dict[str, str] | None = None) -> int:
    return config(config_parser("egress-proxy config").parse(argv), environ or {})


def test_every_setting_is_shown_with_its_origin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "egress.toml"
    file.write_text('[limits]\ntunnels = 5\n[control]\ntoken = "env:T"\n')
    environ = {"EGRESS_TLS__REQUIRE_SNI": "yes", "T": "CANARY"}
    assert run("show", "--config", str(file), "--allow", "a.example", environ=environ) == 0
    out = capsys.readouterr().out
    rows = {line.split(" = ")[0]: line.split(" = ")[1].split("  # ") for line in out.splitlines()}
    shown = {key: (value.strip(), origin) for key, (value, origin) in rows.items()}
    assert shown["limits.tunnels"] == ("5", f"{file}:2")
    assert shown["control.token"] == ("*** (env:T)", f"{file}:4")
    assert shown["tls.require_sni"] == ("true", "EGRESS_TLS__REQUIRE_SNI")
    assert shown["allow[0].host"] == ('"a.example"', "--allow")
    assert shown["bind"] == ('"127.0.0.1:8899"', "default")
    assert "CANARY" not in out


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_secret_pasted_in_the_place_of_its_source_is_not_shown(
    more: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "egress.toml"
    file.write_text(PASTED)
    assert run("show", "--config", str(file), *more) == 0
    captured = capsys.readouterr()
    assert captured.out.count("***") >= 6
    assert "CANARY" not in captured.out + captured.err


def test_shown_json_has_its_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", "--json", "--config", str(EXAMPLE)) == 0
    printed = SettingsPrinted.model_validate_json(capsys.readouterr().out)
    rows = {row.key: row for row in printed.settings}
    assert rows["inject[0].secret"].secret_source == "env:EXAMPLE_API_KEY"
    assert (rows["inject[0].secret"].value, rows["inject[0].format"].value) == ("***", "Bearer {secret}")
    assert (rows["inject[0].methods[1]"].value, rows["deny[0].host"].source) == ("POST", "file")


def test_the_example_settings_are_sound(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", "--config", str(EXAMPLE)) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == (f"ok: {EXAMPLE}\n", "")


def test_checking_with_secrets_reads_them(capsys: pytest.CaptureFixture[str]) -> None:
    environ = dict.fromkeys(
        ["EXAMPLE_API_KEY", "EGRESS_CLIENT_BUILD", "STEERABLE_EGRESS_CONTROL_TOKEN"], "CANARY"
    )
    assert run("check", "--secrets", "--config", str(EXAMPLE), environ=environ) == 0
    captured = capsys.readouterr()
    assert "CANARY" not in captured.out + captured.err
    with pytest.raises(SettingsError, match="env:EXAMPLE_API_KEY is not set"):
        run("check", "--secrets", "--config", str(EXAMPLE))


def test_checking_finds_what_serve_would_refuse() -> None:
    with pytest.raises(SettingsError, match="nothing may be reached"):
        run("check")
    with pytest.raises(SettingsError, match="invalid entry"):
        run("check", "--allow", "a,b")


def test_warnings_are_said_and_checked_json_has_its_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", "--allow", "169.254.169.254") == 0
    assert capsys.readouterr().err.startswith("warning: ")
    assert run("check", "--allow", "169.254.169.254", "--json") == 0
    printed = ConfigChecked.model_validate_json(capsys.readouterr().out)
    assert (printed.ok, printed.file, len(printed.warnings)) == (True, None, 1)


def test_lists_without_items_are_shown_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    run("show", "--json")
    rows = {row["key"]: row["value"] for row in json.loads(capsys.readouterr().out)["settings"]}
    assert (rows["deny"], rows["allow_private"], rows["relay"]) == ([], [], None)
