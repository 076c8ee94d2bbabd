"""Tokens in git's settings: which lines hold one, and whose settings are looked at."""

from pathlib import Path

import pytest

from egress_proxy.sandbox.git_tokens import token_in, user_configs


@pytest.mark.parametrize(
    ("line", "holds_one"),
    [
        ("url = https://user:secret@host.test/x.git", True),
        ("url = https://x-access-token@host.test/x.git", True),
        ("url = https://0123456789abcdefghijklmn@host.test/x.git", True),
        ("extraheader = AUTHORIZATION: basic eDp5", True),
        ("\ttoken = x", True),
        ("url = https://me@host.test/x.git", False),
        ("url = git@host.test:x.git", False),
        ("url = ssh://git@host.test:22/x.git", False),
        ("name = token", False),
    ],
)
def test_which_lines_hold_a_token(tmp_path: Path, line: str, holds_one: bool) -> None:
    (tmp_path / "config").write_text(f"[x]\n{line}\n")
    assert token_in(f"{tmp_path}/config") is holds_one
    assert not token_in(f"{tmp_path}/missing")


def test_the_repositories_around_the_working_folder_are_looked_at(tmp_path: Path) -> None:
    found = list(user_configs(["/home/u"], str(tmp_path)))
    assert found[:2] == ["/home/u/.gitconfig", "/home/u/.config/git/config"]
    assert {f"{tmp_path}/.git/config", f"{tmp_path.parent}/.git/config"} <= set(found)
