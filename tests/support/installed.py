"""The console scripts as pip leaves them: beside an interpreter, in a virtual environment made by hand.

``installed(folder)`` needs no package index and takes no time; ``interpreter``: an ordinary user's, say.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.support.program import REPOSITORY

SCRIPTS = ("egress-proxy", "steerable-egress-proxy")


def installed(folder: Path, interpreter: str = sys.executable) -> Path:
    """The folder of the scripts, with `python3`."""
    scripts = folder / "bin"
    scripts.mkdir(parents=True)
    real = os.path.realpath(interpreter)
    (scripts / "python3").symlink_to(real)
    (folder / "pyvenv.cfg").write_text(f"home = {os.path.dirname(real)}\n")
    version = "import sys; print('python%d.%d' % sys.version_info[:2])"
    named = subprocess.run((real, "-I", "-c", version), capture_output=True, text=True, check=True)
    packages = folder / "lib" / named.stdout.strip() / "site-packages"
    packages.mkdir(parents=True)
    (packages / "product.pth").write_text(f"{REPOSITORY}\n{sysconfig.get_path('purelib')}\n")
    for name in SCRIPTS:
        shutil.copy(REPOSITORY / "bin" / name, scripts)
    return scripts
