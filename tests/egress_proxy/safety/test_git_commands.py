"""What git runs besides itself."""

import pytest

from egress_proxy.safety.git_commands import git_inners
from egress_proxy.safety.inner import Code, Words
from egress_proxy.safety.values import words_of


def found(line: str) -> list[str]:
    texts = []
    for item in git_inners(words_of(line.split("|"))):
        match item:
            case Code(content=content):
                texts.append(content.text)
            case Words(words=words):
                texts.append(" ".join(word.text for word in words))
    return texts


@pytest.mark.parametrize(
    "line",
    [
        "-c|alias.a=!X|a",
        "-c|core.pager=X|log",
        "-c|core.sshCommand=X|fetch",
        "-c|credential.helper=!X|fetch",
        "config|--global|alias.a|!X",
        "config|core.editor|X",
        "rebase|-x|X|main",
        "rebase|--exec=X|main",
        "difftool|--extcmd=X",
        "grep|-OX|a",
        "clone|-u|X|a",
        "fetch|--upload-pack=X|a",
        "submodule|foreach|X",
        "filter-branch|--tree-filter|X|HEAD",
        "clone|ext::X|a",
    ],
)
def test_a_text_for_a_shell_is_found(line: str) -> None:
    assert found(line) == ["X"]


def test_an_alias_is_the_verb_that_it_stands_for() -> None:
    assert found("-c|alias.p=push --force|p|origin") == ["git push --force origin"]


@pytest.mark.parametrize(
    "line", ["log|-x", "commit|-m|!X", "-c|user.name=X|commit", "config|user.name|X", "push|-u|X"]
)
def test_other_words_are_data(line: str) -> None:
    assert found(line) == []
