"""Runs the product's commands as a user would, in an environment that holds what is said only.

Nothing of the caller's environment reaches the child unless it is listed here or given.
service.py builds on this for the command that stays.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from tests.support.deadline import DEFAULT_S, wait_for

REPOSITORY = Path(__file__).resolve().parents[2]
PROGRAM = (sys.executable, "-m", "egress_proxy")
# COVERAGE_*: so that children are measured too. The rest: without it little runs at all.
_PASSED_ON = ("PATH", "TMPDIR", "COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")
_FOLDERS = ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME")


def clean_environment(folder: Path, env: Mapping[str, str] | None = None) -> dict[str, str]:
    """An environment whose home and XDG folders lie in ``folder`` (made, 0700), plus ``env``."""
    clean = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    clean |= {"LANG": "C.UTF-8", "PYTHONPATH": str(REPOSITORY)}
    for name in _FOLDERS:
        own = folder / name.lower()
        own.mkdir(mode=0o700, exist_ok=True)
        clean[name] = str(own)
    return clean | dict(env or {})


def run_cli(
    *args: str,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
    timeout_s: float = 20,
    cwd: Path | None = None,
    program: Sequence[str] = PROGRAM,
) -> subprocess.CompletedProcess[str]:
    """One command to its end: ``run_cli("check", "ok.example", "--allow", "ok.example")``.

    Runs in an empty folder unless ``cwd`` is given. A traceback on stderr fails the test.
    """
    with tempfile.TemporaryDirectory(prefix="eg-") as name:
        folder = Path(name)
        work = folder / "work"
        work.mkdir()
        done = subprocess.run(
            [*program, *args],
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            env=clean_environment(folder, env),
            cwd=cwd or work,
            timeout=timeout_s,
            check=False,
        )
    assert_no_traceback(done.stderr)
    return done


def assert_no_traceback(stderr: str) -> None:
    if "Traceback" in stderr:
        raise AssertionError(f"a traceback reached the user:\n{stderr}")


class OutputLog:
    """A child's stdout or stderr: copied to a file as it comes, and awaited without polling."""

    def __init__(self, pipe: IO[bytes], path: Path) -> None:
        self.path = path
        self._pipe = pipe
        self._text = bytearray()
        self._changed = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._copy, name=f"support-{path.name}", daemon=True)
        self._thread.start()

    @property
    def text(self) -> str:
        with self._changed:
            return self._text.decode("utf-8", "replace")

    @property
    def ended(self) -> bool:
        with self._changed:
            return self._ended

    def wait_for(self, text: str, timeout_s: float = DEFAULT_S) -> None:
        """Wait until ``text`` has been written; raises at once when the writer has ended."""
        sought = text.encode()

        def seen() -> bool:
            return sought in self._text or self._ended

        wait_for(self._changed, seen, timeout_s, f"{text!r} in {self.path.name}")
        if text not in self.text:
            raise TimeoutError(f"{self.path.name} ended without {text!r}:\n{self.text}")

    def wait_for_line(self, prefix: str, timeout_s: float = DEFAULT_S) -> str | None:
        """The rest of the first whole line with this prefix; None when the writer ended first."""

        def found() -> str | None:
            lines = self._text.decode("utf-8", "replace").split("\n")[:-1]
            return next((line[len(prefix) :] for line in lines if line.startswith(prefix)), None)

        def settled() -> bool:
            return found() is not None or self._ended

        wait_for(self._changed, settled, timeout_s, f"a line {prefix}… in {self.path.name}")
        with self._changed:
            return found()

    def join(self, timeout_s: float = DEFAULT_S) -> None:
        """Wait for the end of the output, after the writer has gone."""
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise TimeoutError(f"{self.path.name} is still open: a child of the child has it")

    def _copy(self) -> None:
        with self._pipe, self.path.open("wb", buffering=0) as file:
            while block := os.read(self._pipe.fileno(), 65_536):
                file.write(block)
                with self._changed:
                    self._text += block
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()
