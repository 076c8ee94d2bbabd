"""`classify COMMAND`: the grade of one shell command line, with the rules that said so.

A hint and not a boundary; nothing is run. Next: safety/classify.py (grades), arguments.py (--help).
"""

import argparse
import sys

from egress_proxy.cli.exit_codes import ExitCode, VerbFailed
from egress_proxy.cli.output import print_json, say, shown
from egress_proxy.cli.printed import ClassifyPrinted, MatchPrinted
from egress_proxy.safety.classify import Classification, Severity, classify_shell_command

# No command line that a kernel takes is longer (ARG_MAX on Linux is 2 MiB); more is no command.
_MAX_INPUT_BYTES = 2 << 20


def classify(arguments: argparse.Namespace) -> int:
    result = classify_shell_command(_line(arguments.shell_command), arguments.platform)
    if arguments.json:
        print_json(_printed(result))
    else:
        print(result.severity)
        for line in result.explain().split("\n") if result.matches else ():
            say(line)
    return ExitCode.REFUSED if result.severity is Severity.CRITICAL else ExitCode.OK


def _line(given: str) -> str:
    if given != "-":
        return given
    read = sys.stdin.buffer.read(_MAX_INPUT_BYTES + 1)
    if len(read) > _MAX_INPUT_BYTES:
        raise VerbFailed(ExitCode.USAGE, f"standard input holds more than {_MAX_INPUT_BYTES} bytes")
    return read.decode("utf-8", "replace")


def _printed(result: Classification) -> ClassifyPrinted:
    matches = [
        MatchPrinted(
            id=match.rule.id,
            severity=match.rule.pattern.severity,
            category=match.rule.pattern.category,
            description=match.rule.pattern.description,
            text=shown(match.text),
        )
        for match in result.matches
    ]
    return ClassifyPrinted(
        severity=result.severity.value, matched_rules=result.matched_rules, matches=matches
    )
