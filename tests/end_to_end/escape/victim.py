"""The host's process that attempts aim at: it has a file open, the token in its environment, and answers.

Next: processes.py (the attempts), ground.py.
"""

from __future__ import annotations

import os
import subprocess

_TALKS = "import os; 'victim-process-marker'\nwhile word := os.read(0, 1): os.write(1, word)"


class Victim:
    """``descriptor``: a file that it has open under the same number."""

    def __init__(self, interpreter: str, folder: str, path: str, token: str) -> None:
        self.descriptor = os.open(path, os.O_RDWR | os.O_APPEND)
        self.inode = os.fstat(self.descriptor).st_ino
        self._process = subprocess.Popen(
            (interpreter, "-I", "-c", _TALKS),
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"CONTROL_TOKEN": token},
            cwd=folder,
            pass_fds=(self.descriptor,),
            start_new_session=True,  # a signal to its group must not be one to ours
        )
        if self.is_gone():
            raise RuntimeError("the victim does not start")

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_gone(self) -> bool:
        """A signal that is on its way comes first: it answers only when none was fatal."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(b"?")
        except BrokenPipeError:
            return True
        return self._process.stdout.read(1) != b"?"

    def end(self) -> None:
        self._process.kill()
        with self._process:
            os.close(self.descriptor)
