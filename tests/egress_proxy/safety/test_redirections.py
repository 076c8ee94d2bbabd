"""Files and texts that a command is given."""

import pytest

from egress_proxy.safety.shell import read_line


@pytest.mark.parametrize(
    ("line", "effects"),
    [
        ("a > f", ["write f"]),
        ("a >> f", ["append f"]),
        ("a < f", ["read f"]),
        ("a &> f", ["write f"]),
        ("a 2>&1", []),
        ("cd /x; a > f", ["write /x/f"]),
        ("> f a", ["write f"]),
    ],
)
def test_files(line: str, effects: list[str]) -> None:
    assert list(list(read_line(line).commands)[-1].effects) == effects


@pytest.mark.parametrize(
    "line",
    [
        "sh <<E\nX y\nE",
        "sh <<'E'\nX y\nE",
        "sh <<-E\n\tX y\n\tE",
        "sh <<< 'X y'",
        "sh <<E && a\nX y\nE",
        "v=y; sh <<E\nX $v\nE",
    ],
)
def test_texts_for_a_shell(line: str) -> None:
    assert "X y" in [command.text.strip() for command in read_line(line).commands]
