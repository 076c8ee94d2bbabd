"""One line for an error, no abbreviations, examples first."""

import pytest

from egress_proxy.cli.exit_codes import ExitCode, VerbFailed
from egress_proxy.cli.flag_parser import FlagParser


def parser() -> FlagParser:
    made = FlagParser("prog", "What it does.", ("prog --allow x",), "[flags] HOST")
    made.add_argument("host")
    made.add_argument("--allow", action="append")
    made.add_argument("--allow-none", action="store_true")
    made.add_argument("--ttl", type=float)
    return made


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["h", "--alow", "x"], "unknown flag --alow, did you mean --allow?; see prog --help"),
        (["h", "--allo", "x"], "unknown flag --allo, did you mean --allow?; see prog --help"),
        (["h", "--allow-n"], "unknown flag --allow-n, did you mean --allow?; see prog --help"),
        (["h", "--zzzzzzz=secret"], "unknown flag --zzzzzzz; see prog --help"),
        (["h", "i"], "one argument too many; see prog --help"),
        ([], "the following arguments are required: host; see prog --help"),
        (["h", "--allow"], "argument --allow: expected one argument; see prog --help"),
        (["h", "--ttl", "x"], "argument --ttl: invalid float value: 'x'; see prog --help"),
    ],
)
def test_a_wrong_command_line_is_one_line(argv: list[str], message: str) -> None:
    with pytest.raises(VerbFailed) as failed:
        parser().parse(argv)
    assert (failed.value.code, str(failed.value)) == (ExitCode.USAGE, message)


def test_help_begins_with_what_it_does_and_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parser().parse(["--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith("What it does.\n\nexamples:\n  prog --allow x\n\nusage: prog [flags] HOST\n")
    assert "--allow-none" in text


def test_a_good_command_line_is_read() -> None:
    arguments = parser().parse(["h", "--allow", "a", "--allow=b"])
    assert (arguments.host, arguments.allow) == ("h", ["a", "b"])
