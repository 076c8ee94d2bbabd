"""What messages of `run`, the sandbox and refusals advise exists: every flag that they name is one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from egress_proxy.cli.arguments import serve_parser
from egress_proxy.cli.flag_parser import FlagParser
from egress_proxy.cli.sandbox_arguments import (
    describe_parser,
    linux_wrap_parser,
    profile_parser,
    run_parser,
)
from tests.support.program import REPOSITORY

PRODUCT = REPOSITORY / "egress_proxy"
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]+")


def flags_of(*parsers: FlagParser) -> frozenset[str]:
    return frozenset(
        flag for parser in parsers for action in parser._actions for flag in action.option_strings
    )


RUN = flags_of(run_parser("x"))
SANDBOX = RUN | flags_of(profile_parser("x"), linux_wrap_parser("x"), describe_parser("x"))
GROUPS = {
    "run": (RUN, ["cli/run*.py", "cli/ask*.py"]),
    "sandbox": (SANDBOX, ["sandbox/*.py", "cli/sandbox*.py"]),
    "refusals": (RUN | flags_of(serve_parser("x")), ["core/reply.py"]),
}
# Of the command in examples.
OTHERS = frozenset({"--flag"})


def messages(path: Path) -> Iterator[str]:
    """String constants that people may read: with blanks, and no docstrings."""
    tree = ast.parse(path.read_text())
    texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in texts:
            continue
        if " " in node.value.strip() or path.name == "run_summary.py":
            yield node.value


@pytest.mark.parametrize("group", GROUPS)
def test_every_flag_that_a_message_names_exists_for_that_verb(group: str) -> None:
    known, patterns = GROUPS[group]
    paths = [path for pattern in patterns for path in PRODUCT.glob(pattern)]
    named = {(path.name, flag) for path in paths for text in messages(path) for flag in _FLAG.findall(text)}
    assert named  # or nothing was looked at
    assert {(name, flag) for name, flag in named if flag not in known | OTHERS} == set()
