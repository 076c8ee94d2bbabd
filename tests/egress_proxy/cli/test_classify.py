"""`classify`: its exit code, its lines, its JSON, and standard input."""

import io

import pytest

from egress_proxy.cli.arguments import classify_parser
from egress_proxy.cli.classify import classify
from egress_proxy.cli.exit_codes import VerbFailed
from egress_proxy.cli.printed import ClassifyPrinted


def ask(*argv: str) -> int:
    return classify(classify_parser("egress-proxy classify").parse([*argv, "--platform", "unix"]))


@pytest.mark.parametrize(
    ("line", "code", "grade", "rule"),
    [("ls", 0, "safe", ""), ("rm -rf .git", 0, "warning", "rm"), ("sudo ls", 3, "critical", "sudo")],
)
def test_grades(line: str, code: int, grade: str, rule: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(line) == code
    out, err = capsys.readouterr()
    assert out == f"{grade}\n"
    assert err.startswith(f"{grade}: {rule}: " if rule else "")
    assert len(err.splitlines()) == bool(rule)


def test_json_has_a_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert ask("sudo ls", "--json") == 3
    answer = ClassifyPrinted.model_validate_json(capsys.readouterr().out)
    assert (answer.severity, answer.matched_rules) == ("critical", ["sudo"])
    assert answer.matches[0].text == "sudo ls"


def stdin_of(monkeypatch: pytest.MonkeyPatch, given: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given)))


def test_a_dash_reads_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    stdin_of(monkeypatch, b"ls\nsudo ls \xff\n")
    assert ask("-") == 3


def test_too_much_input_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    stdin_of(monkeypatch, b" " * (2 << 20) + b"x")
    with pytest.raises(VerbFailed, match="standard input"):
        ask("-")


def test_help_says_what_it_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        ask("--help")
    assert "A hint and not a boundary" in capsys.readouterr().out
