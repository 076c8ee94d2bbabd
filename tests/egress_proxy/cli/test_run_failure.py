"""Why nothing was run: one line that names the program and says what would help."""

import tempfile
from pathlib import Path

import pytest

from egress_proxy.cli.run_failure import hint_inside_a_sandbox, not_executed

GONE = "exec ENOENT tool: No such file or directory"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (GONE, "cannot execute tool: No such file or directory"),
        ("exec EACCES ./x y: Permission denied", "cannot execute ./x y: Permission denied"),
        (
            "bwrap: execvp tool: No such file or directory",
            "cannot execute tool: No such file or directory",
        ),
        ("something else", "something else"),
    ],
)
def test_the_program_and_the_reason_are_named(line: str, said: str) -> None:
    assert not_executed(line, "tool", "bwrap", {"PATH": "/nowhere"}) == said


def test_a_program_in_a_folder_that_the_sandbox_hides_is_explained() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        tool = Path(folder, "tool")
        tool.touch(0o755)
        environ = {"PATH": folder}
        own = "/tmp, /var/tmp, /run"
        hint = f" ({tool} is not in the sandbox, which has {own} of its own; --rw shows a folder)"
        assert not_executed(GONE, "tool", "bwrap", environ).endswith(hint)
        assert not_executed(GONE, str(tool), "bwrap", {}).endswith(hint)
        denied = "exec EACCES tool: Permission denied"
        # There it is not hidden; it is found; and what is missing may be the interpreter of a script.
        assert "not in the sandbox" not in not_executed(GONE, "tool", "landlock", environ)
        assert "not in the sandbox" not in not_executed(denied, "tool", "bwrap", environ)
        assert "not in the sandbox" not in not_executed(GONE, "sh", "bwrap", {"PATH": "/bin"})


def test_only_the_marker_hints_at_a_sandbox() -> None:
    assert "this is a sandbox already" in hint_inside_a_sandbox({"STEERABLE_EGRESS_CONFINED": "1"})
    assert hint_inside_a_sandbox({}) == hint_inside_a_sandbox({"STEERABLE_EGRESS_CONFINED": "0"}) == ""
