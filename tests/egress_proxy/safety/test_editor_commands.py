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
        "system X",
        "q\n!X",
    ],
)
def test_a_shell_is_found(command: str) -> None:
    assert [text.strip() for text in bang_texts(command)] == ["X"]


@pytest.mark.parametrize("command", ["wq!", "q!", ":%s/a!/b/g", "set number", "+Lazy! sync", "1,3p"])
def test_other_commands_are_none(command: str) -> None:
    assert list(bang_texts(command)) == []


@pytest.mark.parametrize("start", ["", "silent", ":1", "1,2r"])
def test_many_blanks_take_linear_time(start: str) -> None:
    """Tried in each way that they can be parted, they would take days."""
    assert list(bang_texts(start + " " * 300_000 + "x")) == []
