"""A terminal with the user's own bash at it, as at a keyboard: what is typed, and what is shown.

``with Terminal(environment) as terminal``; bash has job control, and ends with the block.
"""

from __future__ import annotations

import fcntl
import os
import re
import struct
import subprocess
import termios
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from tests.support.deadline import DEFAULT_S, wait_for

PROMPT = "outer-prompt> "
CTRL_C, CTRL_D, CTRL_Z, CTRL_BACKSLASH = "\x03", "\x04", "\x1a", "\x1c"
_ROWS, _COLUMNS = 24, 200


class Terminal:
    """Reads all that is shown. ``expect`` looks behind what was found last."""

    def __init__(self, environment: Mapping[str, str], folder: str) -> None:
        self._environment = {**environment, "PS1": PROMPT, "TERM": "dumb", "HISTFILE": ""}
        self._folder = folder
        self._shown = bytearray()
        self._changed = threading.Condition()
        self._ended = False
        self._at = 0

    def __enter__(self) -> Self:
        self._screen, self._line = os.openpty()
        self.resize(_ROWS, _COLUMNS)
        self.shell = subprocess.Popen(
            ("setsid", "--ctty", "bash", "--norc", "--noprofile", "--noediting", "-i"),
            stdin=self._line,
            stdout=self._line,
            stderr=self._line,
            env=self._environment,
            cwd=self._folder,
        )
        self._reader = threading.Thread(target=self._read, name="support-terminal", daemon=True)
        self._reader.start()
        self.expect(re.escape(PROMPT))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(f"the terminal showed:\n{self.text[-4000:]}")
        self.shell.kill()
        self.shell.wait(DEFAULT_S)
        os.close(self._line)
        self._reader.join(DEFAULT_S)
        os.close(self._screen)

    @property
    def text(self) -> str:
        with self._changed:
            return self._shown.decode("utf-8", "replace")

    def type(self, text: str) -> None:
        os.write(self._screen, text.encode())

    def enter(self, line: str) -> None:
        self.type(line + "\n")

    def expect(self, pattern: str, timeout_s: float = 3 * DEFAULT_S) -> re.Match[bytes]:
        sought = re.compile(pattern.encode())

        def found() -> re.Match[bytes] | None:
            return sought.search(self._shown, self._at)

        wait_for(self._changed, lambda: found() is not None or self._ended, timeout_s, pattern)
        with self._changed:
            match = found()
            if match is None:
                raise TimeoutError(f"the terminal ended without {pattern!r}")
            self._at = match.end()
            return match

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._line, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def modes(self) -> list[Any]:
        return termios.tcgetattr(self._line)

    def foreground(self) -> int:
        """The process group that keys go to."""
        answer = fcntl.ioctl(self._screen, termios.TIOCGPGRP, bytes(4))
        return int(struct.unpack("i", answer)[0])

    def _read(self) -> None:
        while True:
            try:
                chunk = os.read(self._screen, 65_536)
            except OSError:  # the last program at the terminal has ended
                chunk = b""
            with self._changed:
                self._shown += chunk
                self._ended = not chunk
                self._changed.notify_all()
            if not chunk:
                return
