"""A command under plain bwrap with one writable folder: real mounts and today's tools, none of our argv.

For tests of what looks at files or at a command's words; the product's own sandbox is in sandbox/bwrap.py.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

_HUNG_S = 60.0  # a guard and no promise: a thousand mounts take their time on a machine that is busy


def run_in_bwrap(
    argv: Sequence[str],
    root: Path,
    *,
    mount_points: Sequence[str] = (),
    read_only: Sequence[str] = (),
    options: Sequence[str] = (),
    pass_fds: Sequence[int] = (),
) -> subprocess.CompletedProcess[str]:
    """Everything is read-only but ``root``, which is where it starts; the words are in the C locale."""
    words = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-user"]
    words += ["--unshare-pid", "--die-with-parent", "--bind", str(root), str(root)]
    for option, paths in (("--bind", mount_points), ("--ro-bind", read_only)):
        for path in paths:
            words += [option, path, path]
    words += ["--chdir", str(root), *options, "--", *argv]
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C", "HOME": str(root)}
    return subprocess.run(
        words,
        env=environment,
        stdin=subprocess.DEVNULL,
        pass_fds=pass_fds,
        capture_output=True,
        text=True,
        timeout=_HUNG_S,
        check=False,
    )


@functools.cache
def unavailable() -> str | None:
    """Why bwrap does not run here; None when it does. Meant for ``pytest.skip``."""
    if shutil.which("bwrap") is None:
        return "the command bwrap (package bubblewrap) is not installed"
    ended = run_in_bwrap(["true"], Path("/tmp"))
    return None if ended.returncode == 0 else f"bwrap does not run here: {ended.stderr.strip()}"
