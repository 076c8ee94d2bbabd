"""What `run` says when there was no run: why, and what would help.

Text only. Next: run.py (prints it), run_summary.py (what is said after a run).
"""

import errno
import os
import re
import shutil
from collections.abc import Mapping

from egress_proxy.sandbox import bwrap
from egress_proxy.sandbox.environment import MARKER

# As launcher.py has it, and bwrap.
_EXEC_LINE = re.compile(r"(?:exec [A-Z0-9]+|bwrap: execvp) (?P<what>.*)")


def hint_inside_a_sandbox(environ: Mapping[str, str]) -> str:
    """For the end of an error. A marker outside, as `env` sets it, changes nothing: it is only a hint."""
    if environ.get(MARKER) != "1":
        return ""
    return (
        f" ({MARKER}=1 says that this is a sandbox already, where no other can be made: run the command bare)"
    )


def not_executed(line: str, program: str, backend: str, environ: Mapping[str, str]) -> str:
    """``line``: an Outcome's exec_failure, `exec ENOENT make: No such file or directory`."""
    matched = _EXEC_LINE.fullmatch(line)
    reason = f"cannot execute {matched['what']}" if matched else line
    found = shutil.which(program, path=environ.get("PATH", os.defpath))
    is_missing = line.endswith(os.strerror(errno.ENOENT))
    if backend == bwrap.NAME and is_missing and found and bwrap.is_hidden(os.path.abspath(found)):
        own = ", ".join(bwrap.OWN_FOLDERS)
        return f"{reason} ({found} is not in the sandbox, which has {own} of its own; --rw shows a folder)"
    return reason
