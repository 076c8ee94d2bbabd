"""Messages are one line that moves no cursor; a closed stderr is no fault."""

import pytest

from egress_proxy.cli.output import print_json, say, shown
from egress_proxy.cli.printed import ConfigChecked


def test_what_cannot_be_printed_is_escaped() -> None:
    assert shown("é a\nb\x1b[2J\u2028\udcff") == "é a\\nb\\x1b[2J\\u2028\\udcff"


def test_messages_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    say("two\nlines")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "two\\nlines\n")


def test_without_stderr_nothing_goes_to_stdout(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr", None)
    say("lost")
    assert capsys.readouterr().out == ""


def test_json_may_leave_out_what_is_null(capsys: pytest.CaptureFixture[str]) -> None:
    answer = ConfigChecked(ok=True, file=None, warnings=["é"])
    print_json(answer, sparse=True)
    assert "file" not in capsys.readouterr().out
    print_json(answer)
    out = capsys.readouterr().out
    assert '"file": null' in out
    assert out.isascii()
