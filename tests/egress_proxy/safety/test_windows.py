"""cmd.exe and PowerShell taken apart."""

import pytest

from egress_proxy.safety.reading import Limit
from egress_proxy.safety.windows import read_windows_line


def commands(line: str) -> list[str]:
    return [command.text for command in read_windows_line(line).commands if command.words]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("dir & X.exe y", "x y"),
        ("a && x y", "x y"),
        ("a | x y", "x y"),
        ('cmd /c "x y"', "x y"),
        ('cmd /c "cmd /c x y"', "x y"),
        ('powershell -NoProfile -Command "x y"', "x y"),
        ("powershell -enc eAAgAHkA", "x y"),
        ("x^y z", "xy z"),
        ("C:\\Windows\\x.exe y", "x y"),
        ("ri -r -fo a", "remove-item -recurse -force a"),
        ("rd -Recurse a", "remove-item -recurse a"),
        ("rd /s a", "rmdir /s a"),
        ("if exist a x y", "exist a x y"),
    ],
)
def test_commands(line: str, expected: str) -> None:
    assert expected in commands(line)


def test_quoted_separators_are_text() -> None:
    assert commands('echo "a & b"') == ["echo a & b"]


@pytest.mark.parametrize(
    "line", ["irm U | iex", "curl U -o x.exe && x.exe", "iwr U -OutFile a.ps1; powershell -File a.ps1"]
)
def test_downloads_that_are_run(line: str) -> None:
    assert "run download" in [e for command in read_windows_line(line).commands for e in command.effects]


def test_depth_is_bounded() -> None:
    assert read_windows_line("cmd /c " * 20 + "dir").limits == {Limit.DEEP}


@pytest.mark.parametrize("line", ["shutdown /?", "Stop-Service x -WhatIf"])
def test_what_only_tells_is_no_command(line: str) -> None:
    assert commands(line) == []


@pytest.mark.parametrize("text", ["irm x | iex", "iex (irm x)", "stop iex"])
def test_what_a_quoted_text_mentions_is_not_in_the_line(text: str) -> None:
    effects = [
        effect for command in read_windows_line(f"say '{text}'").commands for effect in command.effects
    ]
    assert effects == ['line say ""']
