"""What an editor's commands give to a shell."""

import pytest

from egress_proxy.safety.editor_commands import bang_texts


@pytest.mark.parametrize(
    "command",
    [
        "!X",
        ":!X",
        "silent !X",
        ":silent! !X",
        ":r!X",
        "r !X",
        ":%!X",
        "1,5w !X",
        'exe "!X"',
        "\\!X",
        ":term X",
        "q\n!X",
    ],
)
def test_a_shell_is_found(command: str) -> None:
    assert [text.strip() for text in bang_texts(command)] == ["X"]


@pytest.mark.parametrize("command", ["wq!", "q!", ":%s/a!/b/g", "set number", "+Lazy! sync", "1,3p"])
def test_other_commands_are_none(command: str) -> None:
    assert list(bang_texts(command)) == []
