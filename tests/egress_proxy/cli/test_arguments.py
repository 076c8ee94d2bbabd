"""Every verb has a summary, a --help with three examples on top, and its --json."""

import pytest

from egress_proxy.cli.arguments import PARSERS, SUMMARIES


@pytest.mark.parametrize("verb", PARSERS)
def test_help_has_three_examples_on_top(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        PARSERS[verb](f"egress-proxy {verb}").parse(["--help"])
    above_usage = capsys.readouterr().out.partition("usage:")[0]
    examples = [line for line in above_usage.splitlines() if line.startswith("  ")]
    assert len(examples) == 3
    assert all(f"egress-proxy {verb}" in example for example in examples)


def test_every_verb_has_a_summary() -> None:
    assert SUMMARIES.keys() - {"sandbox"} == PARSERS.keys()  # which has verbs of its own


@pytest.mark.parametrize("verb", [verb for verb in PARSERS if verb not in ("serve", "run")])
def test_every_other_verb_prints_json_when_asked(verb: str) -> None:
    needed = {"check": ["a"], "config": ["show"], "allow": ["a"], "revoke": ["g"], "classify": ["ls"]}
    assert PARSERS[verb](verb).parse([*needed.get(verb, []), "--json"]).json is True
