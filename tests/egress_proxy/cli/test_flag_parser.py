"""One line for an error, no abbreviations, examples first."""

import pytest

from egress_proxy.cli.exit_codes import ExitCode, VerbFailed
from egress_proxy.cli.flag_parser import FlagParser, duration


def parser() -> FlagParser:
    made = FlagParser("prog", "What it does.", ("prog --allow x",), "[flags] HOST")
    made.add_argument("host")
    made.add_argument("--allow", action="append")
    made.add_argument("--allow-none", action="store_true")
    made.add_argument("--ttl", type=duration)
    made.add_argument("--attach")
    made.may_be_empty.add("attach")
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
    ],
)
def test_a_wrong_command_line_is_one_line(argv: list[str], message: str) -> None:
    with pytest.raises(VerbFailed) as failed:
        parser().parse(argv)
    assert (failed.value.code, str(failed.value)) == (ExitCode.USAGE, message)


EMPTY = [["--allow="], ["--allow", "a", "--allow", ""], ["--allow", "", "--allow", "a"]]


@pytest.mark.parametrize("argv", EMPTY)
def test_an_empty_value_is_refused_and_the_flag_named(argv: list[str]) -> None:
    with pytest.raises(VerbFailed, match=r"^--allow has an empty value: give it one"):
        parser().parse(["h", *argv])


NO_TIME = ["x", "", "0", "0h", "-5", "+5", "1e3", "nan", "inf", "1 h", "1H", "h", "1w", "1h30m", "1_0", ".5"]


@pytest.mark.parametrize("text", [*NO_TIME, "\u0663", "1m\n", "9" * 5000])
def test_what_is_no_time_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(VerbFailed) as failed:
        parser().parse(["h", f"--ttl={text}"])
    words = f"argument --ttl: {text[:20]!r} is no time, such as 90 (seconds), 15m, 1h, 2d; see prog --help"
    assert (failed.value.code, str(failed.value)) == (ExitCode.USAGE, words)


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


def test_an_empty_value_is_taken_where_it_says_something() -> None:
    assert parser().parse(["h", "--attach", ""]).attach == ""


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("0.5", 0.5), ("15m", 900), ("1.5h", 5400), ("2d", 172_800)],
)
def test_a_time_is_seconds_or_has_a_unit(text: str, seconds: float) -> None:
    assert duration(text) == seconds
