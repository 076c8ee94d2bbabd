"""`check`: the decision that the proxy would make, its exit code, and its JSON."""

import pytest

from egress_proxy.cli.arguments import check_parser
from egress_proxy.cli.check import check, read_question
from egress_proxy.cli.exit_codes import ExitCode, VerbFailed
from egress_proxy.cli.printed import CheckPrinted

ENVIRON = {
    "EGRESS_ALLOW": '["a.example", "*.w.example:443", "[::1]:80", "169.254.169.254",'
    ' {"host": "c.example", "client": "ci"}]',
    "EGRESS_DENY": '["d.w.example"]',
    "EGRESS_CLIENT": '[{"name": "ci", "token": "env:UNSET"}]',
    "EGRESS_INJECT": '[{"name": "r", "host": "i.example", "secret": "env:UNSET", "paths": ["/v1/"]}]',
}


def ask(*argv: str) -> int:
    return check(check_parser("egress-proxy check").parse(argv), ENVIRON)


@pytest.mark.parametrize(
    ("argv", "code", "line"),
    [
        (["a.example"], 0, "allowed  a.example:443  by a.example"),
        (["A.Example.:80"], 0, "allowed  a.example:80  by a.example"),
        (["https://a.example/x?y#z"], 0, "allowed  a.example:443  by a.example"),
        (["http://a.example"], 0, "allowed  a.example:80  by a.example"),
        (["x.w.example"], 0, "allowed  x.w.example:443  by *.w.example:443"),
        (["[::1]:80"], 0, "allowed  [::1]:80  by [::1]:80"),
        (["::1:80"], 0, "allowed  [::1]:80  by [::1]:80"),
        (["http://i.example/v1/models"], 0, "allowed  i.example:80  by inject:r"),
        (["c.example", "--client", "ci"], 0, "allowed  c.example:443  by c.example"),
        (["new.example", "--allow", "new.example"], 0, "allowed  new.example:443  by new.example"),
        (["c.example"], 3, "refused  c.example:443  not_listed"),
        (["a.example:22"], 3, "refused  a.example:22  not_listed"),
        (["https://a.example:8443/"], 3, "refused  a.example:8443  not_listed"),
        (["w.example"], 3, "refused  w.example:443  not_listed"),
        (["d.w.example"], 3, "refused  d.w.example:443  denied_by_rule  by d.w.example:*"),
        (["http://i.example/v2"], 3, "refused  i.example:80  inject_path  by inject:r"),
        (["i.example:80"], 3, "refused  i.example:80  inject_other_target"),
        (["169.254.169.254:80"], 3, "refused  169.254.169.254:80  metadata"),
    ],
)
def test_the_decision_and_the_rule_are_printed(
    argv: list[str], code: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(*argv) == code
    captured = capsys.readouterr()
    assert captured.out == line + "\n"
    assert captured.err.startswith("hint: ") is (code == ExitCode.REFUSED)


@pytest.mark.parametrize(
    "text",
    [
        *["", "a b", "a.example:", "a.example:0", "a.example:x", "127.1", "[a.example]", "ａ.example"],
        *["ftp://a.example", "http://", "http://u@a.example/", "https://a.example:x/", "://", "http://[::1"],
        "http://a.example/é",
    ],
)
def test_what_is_no_target_is_a_usage_error(text: str) -> None:
    with pytest.raises(VerbFailed) as failed:
        read_question(text)
    assert failed.value.code is ExitCode.USAGE
    assert str(failed.value).isprintable()


def test_an_unknown_client_is_a_usage_error() -> None:
    with pytest.raises(VerbFailed, match="--client x names no"):
        ask("a.example", "--client", "x")


def test_an_empty_list_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(check_parser("x").parse(["a.example"]), {}) == ExitCode.REFUSED
    assert "not_listed" in capsys.readouterr().out


def test_the_web_tools_list_counts(capsys: pytest.CaptureFixture[str]) -> None:
    environ = {"STEERABLE_WEB_ALLOWED_DOMAINS": "a.example"}
    assert check(check_parser("x").parse(["x.a.example"]), environ) == ExitCode.OK
    assert capsys.readouterr().out == "allowed  x.a.example:443  by **.a.example\n"


def test_json_has_its_schema(capsys: pytest.CaptureFixture[str]) -> None:
    ask("d.w.example", "--json")
    denied = CheckPrinted.model_validate_json(capsys.readouterr().out)
    assert (denied.decision, denied.reason, denied.rule) == ("deny", "denied_by_rule", "d.w.example:*")
    assert denied.hint is not None
    ask("http://i.example/v1/x", "--json")
    allowed = CheckPrinted.model_validate_json(capsys.readouterr().out)
    assert (allowed.decision, allowed.reason, allowed.door, allowed.hint) == ("allow", None, "absolute", None)
