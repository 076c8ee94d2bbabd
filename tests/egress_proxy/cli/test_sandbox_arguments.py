"""The flags of the sandbox verbs and of `run`: each has its place, its help, and no other verb's."""

import pytest

from egress_proxy.cli.exit_codes import VerbFailed
from egress_proxy.cli.flag_parser import FlagParser
from egress_proxy.cli.sandbox_arguments import describe_parser, linux_wrap_parser, profile_parser, run_parser

PARSERS = (
    profile_parser("x profile"),
    linux_wrap_parser("x wrap"),
    describe_parser("x describe"),
    run_parser("x run"),
)


def flags_of(parser: FlagParser) -> set[str]:
    return {flag for flag in parser._option_string_actions if flag.startswith("--")}


def test_each_has_the_flags_of_the_contract() -> None:
    roots = {"--writable-root", "--dangerously-writable-root", "--mask", "--no-mask", "--help"}
    profile, wrap, describe, run = map(flags_of, PARSERS)
    hosts = {"--no-network", "--allow-host"}
    seatbelt = {"--deny-all", "--proxy-port", "--allow-resolver", "--allow-trust"}
    assert profile == roots | hosts | seatbelt
    assert wrap == roots | {"--no-network", "--proxy", "--backend", "--env", "--ro"}
    assert describe == roots | hosts | {"--proxy", "--backend"}
    assert run >= {"--allow", "--allow-private", "--deny", "--rw", "--dangerously-rw", "--mask", "--no-mask"}
    assert run >= {
        "--backend",
        "--rules",
        "--config",
        "--audit",
        "--resolver",
        "--ask",
        "--quiet",
        "--verbose",
    }


@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.prog)
def test_help_begins_with_what_it_does_and_an_example(parser: FlagParser) -> None:
    text = parser.format_help()
    assert text.index("examples:") < text.index("usage:") < text.index("--mask")
    assert f"  {parser.prog} " in text
    for action in parser._actions:
        assert action.help, action.option_strings


@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.prog)
def test_lists_may_be_given_more_than_once_and_are_empty_at_first(parser: FlagParser) -> None:
    assert parser.parse([]).mask == []
    assert parser.parse(["--mask", "a", "--mask", "b"]).mask == ["a", "b"]


@pytest.mark.parametrize("parser", PARSERS[1:], ids=lambda parser: parser.prog)
def test_an_unknown_rung_is_refused(parser: FlagParser) -> None:
    with pytest.raises(VerbFailed, match=r"invalid choice.*see x"):
        parser.parse(["--backend", "other"])
