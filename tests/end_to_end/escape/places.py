"""Where a battery runs, and as whom: a folder that everyone may enter, with a copy of the code in it.

Neither the checkout nor the tests' own interpreter can be counted on: both may lie below a closed home, and
/tmp is not there in a sandbox. Next: bench.py (what is started), test_battery_bwrap.py.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tests.end_to_end.escape.bench import Order
from tests.support.program import REPOSITORY

BATTERY_S = 170.0
# None of them is hidden in a sandbox, as /tmp, /var/tmp and /run are.
_OPEN_FOLDERS = ("/srv", "/opt", "/var/lib", "/home")
# What the bench imports. The sandbox is a library without dependencies.
_COPIED = ("egress_proxy/core", "egress_proxy/sandbox", "tests/end_to_end/escape")
_INTERPRETERS = (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3")
_NEW_ENOUGH = "import sys; sys.exit(sys.version_info < (3, 11))"


@dataclass(frozen=True, slots=True)
class User:
    """Who runs a battery."""

    name: str
    uid: int
    gid: int


def this_user() -> User:
    return User("root" if os.geteuid() == 0 else "ordinary", os.geteuid(), os.getegid())


def ordinary_user() -> User:
    """Whoever runs the tests, or `nobody` when that is root."""
    if os.geteuid():
        return this_user()
    nobody = pwd.getpwnam("nobody")
    return User("ordinary", nobody.pw_uid, nobody.pw_gid)


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Names of attempts and controls with their details, by verdict."""

    of: Mapping[str, tuple[str, str]]

    def __getitem__(self, verdict: str) -> dict[str, str]:
        return {name: detail for name, (found, detail) in self.of.items() if found == verdict}


@dataclass(frozen=True, slots=True)
class Place:
    """A folder with the code, below which each battery gets one of its own."""

    folder: Path
    interpreter: str

    def run(self, order: Order, user: User) -> Verdicts:
        ground = Path(tempfile.mkdtemp(prefix="ground-", dir=self.folder))
        if user != this_user():
            os.chown(ground, user.uid, user.gid)
        ground.chmod(0o755)
        return self._verdicts(replace(order, folder=str(ground)), user)

    def _verdicts(self, order: Order, user: User) -> Verdicts:
        bench = self.folder / "code/tests/end_to_end/escape/bench.py"
        other = user != this_user()
        done = subprocess.run(
            (self.interpreter, "-I", str(bench), json.dumps(asdict(order))),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd="/",
            env={"PATH": os.defpath, "HOME": order.folder},
            timeout=BATTERY_S,
            check=False,
            user=user.uid if other else None,
            group=user.gid if other else None,
            extra_groups=() if other else None,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return Verdicts(json.loads(done.stdout))


@contextlib.contextmanager
def opened_place() -> Iterator[Place]:
    interpreter = _interpreter()
    with tempfile.TemporaryDirectory(prefix="escape-", dir=_open_folder()) as name:
        folder = Path(name)
        folder.chmod(0o755)
        for part in _COPIED:
            shutil.copytree(REPOSITORY / part, folder / "code" / part, ignore=_no_caches)
        shutil.copy(REPOSITORY / "egress_proxy/__init__.py", folder / "code/egress_proxy")
        # Each sandbox starts its own interpreter: none compiles anything.
        subprocess.run((interpreter, "-I", "-m", "compileall", "-q", str(folder / "code")), check=True)
        for path in (folder / "code", *(folder / "code").rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        yield Place(folder, interpreter)


def _no_caches(folder: str, names: Sequence[str]) -> list[str]:
    return [name for name in names if name == "__pycache__"]


def _open_folder() -> str:
    candidates = _OPEN_FOLDERS if os.geteuid() == 0 else (*_OPEN_FOLDERS, str(Path.home()))
    for folder in candidates:
        if os.access(folder, os.W_OK | os.X_OK) and _is_open_to_all(folder, whose=os.geteuid()):
            return folder
    raise RuntimeError(f"a battery needs a folder that it can write and others can enter: {candidates}")


def _is_open_to_all(path: str, whose: int = 0) -> bool:
    """``whose``: as an ordinary user one's own is enough, since nobody else takes part."""
    if whose:
        return True
    folders = (Path(path), *Path(path).parents)
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in folders)


@functools.cache
def _interpreter() -> str:
    """One that an ordinary user can start, and that is new enough."""
    for path in filter(os.path.exists, map(os.path.realpath, _INTERPRETERS)):
        if _is_open_to_all(path):
            done = subprocess.run((path, "-I", "-c", _NEW_ENOUGH), capture_output=True, check=False)
            if done.returncode == 0:
                return path
    raise RuntimeError("no Python 3.11 that every user may start: install the system's python3")
