"""Wrappers that no table describes."""

import pytest

from egress_proxy.safety.inner import Code, Script, StandardInput, Words
from egress_proxy.safety.special_wrappers import SPECIAL
from egress_proxy.safety.values import words_of


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("env -S|X y", ["X y"]),
        ("env --split-string=X y", ["X y"]),
        ("ssh -o|ProxyCommand=X|h", ["X"]),
        ("git -c|alias.a=!X|a", ["X"]),
        ("git submodule|foreach|X", ["X"]),
        ("git rebase|--exec|X|main", ["X"]),
        ("eval X|y", ["X y"]),
        ("trap X|EXIT", ["X"]),
        ("trap -p", []),
        ("env -C|/|X", ["cd / ; X"]),
        ("git -c|core.pager=X|log", ["X"]),
        ("make -f|-", ["<"]),
        ("make --eval=X|a", ["X", "file Makefile"]),
        ("make all", ["file Makefile"]),
        ("sqlite3 a.db|.shell X", ["X"]),
        ("sqlite3 a.db|.tables", []),
        ("tmux send-keys|-t|a|X y|Enter", ["X y"]),
        ("screen -X|stuff|X y", ["X y"]),
        ("sed s/a/X/e", ["X"]),
        ("sed -e|1e X|f", ["X"]),
        ("sed e", ["<"]),
        ("sed s/e/w/g|e", []),
        ("crontab -", ["<"]),
        ("crontab -l", []),
        ("at now", ["<"]),
        ("at -l", []),
        ("at now|-f|f", ["file f"]),
        ("ed f", ["<"]),
        ("vim f", []),
        ("vim -es|f", ["<"]),
        (". /dev/stdin", ["<"]),
        ("source f", ["file f"]),
    ],
)
def test_texts_for_a_shell(line: str, expected: list[str]) -> None:
    name, _, rest = line.partition(" ")
    found = []
    for item in SPECIAL[name](words_of(rest.split("|"))):
        match item:
            case Code(content=content):
                found.append(content.text)
            case Script(path=path):
                found.append(f"file {path}")
            case StandardInput():
                found.append("<")
    assert found == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [("rimraf --glob /", "rm -rf /"), ("yarn rimraf a", "rimraf a"), ("pnpm prisma x", "prisma x")],
)
def test_programs_of_packages(line: str, expected: str) -> None:
    program, *words = line.split()
    found = [item for item in SPECIAL[program](words_of(words)) if isinstance(item, Words)]
    assert [" ".join(word.text for word in item.words) for item in found] == [expected]


def test_a_script_by_any_name_is_not_known() -> None:
    assert list(SPECIAL["yarn"](words_of(["reboot"]))) == []
