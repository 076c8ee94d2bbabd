"""What --help offers, verb by verb: no choice that is always refused, no empty value taken."""

import argparse
import re
from collections.abc import Callable, Iterator

import pytest

from egress_proxy.cli.arguments import PARSERS
from egress_proxy.cli.exit_codes import ExitCode, VerbFailed
from egress_proxy.cli.flag_parser import FlagParser
from egress_proxy.cli.sandbox_arguments import describe_parser, linux_wrap_parser, profile_parser
from egress_proxy.cli.settings_flags import settings_given
from egress_proxy.settings.load import load
from egress_proxy.settings.short_keys import SHORT_KEYS
from egress_proxy.settings.tree import Settings

EVERY: dict[str, Callable[[str], FlagParser]] = {
    **PARSERS,
    "sandbox profile": profile_parser,
    "sandbox linux-wrap": linux_wrap_parser,
    "sandbox describe": describe_parser,
}
NEEDED = {"check": ["a"], "config": ["show"], "allow": ["a"], "revoke": ["g"], "classify": ["ls"]}
# A value of each kind that stands in --help as a word in capitals.
KINDS = {
    "HOST[:PORT]": "a.example",
    "HOST:PORT": "127.0.0.1:8899",
    "IP[:PORT]": "192.0.2.53",
    "H": "a.example",
    "N": "5",
    "P": "8443",
    "S": "2.5",
    "TIME": "15m",
}
SETTINGS = {*Settings.model_fields, *SHORT_KEYS}


def flags_of(verb: str) -> Iterator[argparse.Action]:
    for action in EVERY[verb](verb)._actions:
        if action.option_strings and action.nargs != 0:
            yield action


def offered(action: argparse.Action) -> list[str]:
    """The values that --help names for a flag, one of its kind where it names a kind."""
    if action.choices is not None:
        return list(action.choices)
    shown = str(action.metavar or "")
    if re.fullmatch(r"[a-z]+(\|[a-z]+)+", shown):
        return shown.split("|")
    return [KINDS.get(shown, "x")]


VALUES = [
    (verb, action.option_strings[-1], value)
    for verb in EVERY
    for action in flags_of(verb)
    if action.help != argparse.SUPPRESS
    for value in offered(action)
]
FLAGS = [(verb, action.option_strings[-1]) for verb in EVERY for action in flags_of(verb)]


@pytest.mark.parametrize(("verb", "flag", "value"), VALUES)
def test_no_value_that_help_offers_is_always_refused(verb: str, flag: str, value: str) -> None:
    arguments = EVERY[verb](verb).parse([*NEEDED.get(verb, []), flag, value])
    if "config" in arguments:
        load({name: one for name, one in settings_given(arguments).items() if name in SETTINGS}, {})


@pytest.mark.parametrize("verb", EVERY)
def test_no_word_that_help_offers_in_a_place_is_refused(verb: str) -> None:
    places = [action for action in EVERY[verb](verb)._actions if not action.option_strings]
    for place in places:
        for word in place.choices or ():
            given = [word if action is place else "x" for action in places]
            assert getattr(EVERY[verb](verb).parse(given), place.dest) == word


@pytest.mark.parametrize(("verb", "flag"), FLAGS)
def test_an_empty_value_is_refused_and_the_flag_named(verb: str, flag: str) -> None:
    argv = [*NEEDED.get(verb, []), flag, ""]
    if flag == "--attach":
        assert EVERY[verb](verb).parse(argv).attach == ""
        return
    with pytest.raises(VerbFailed) as failed:
        EVERY[verb](verb).parse(argv)
    assert failed.value.code is ExitCode.USAGE
    assert flag in str(failed.value)


@pytest.mark.parametrize("flag", ["--on-miss", "--hold-timeout", "--upstream-proxy"])
def test_what_this_version_refuses_is_not_offered(flag: str) -> None:
    assert flag not in EVERY["serve"]("serve").format_help()
