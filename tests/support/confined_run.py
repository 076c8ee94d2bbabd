"""`egress-proxy run` as a user starts it: in a folder of its own, with an origin, a name server, a CA.

``with RunGround(ca) as ground``: ``ground.run(command…)`` to its end, ``ground.started(command…)`` for a
process to talk to. ``ordinary``: by a user without privileges.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support import answers, ordinary_user
from tests.support.certificates import CertificateAuthority, server_context
from tests.support.dns_stub import DnsStub
from tests.support.program import assert_no_traceback, clean_environment
from tests.support.provider import Provider

LISTED, UNLISTED = "listed.example", "unlisted.example"
BODY = "hello from the origin\n"
BACKENDS = ("bwrap", "landlock")
USERS = ("present", "ordinary") if ordinary_user.may_be_played() else ("present",)
PATH = "/usr/local/bin:/usr/bin:/bin"  # no folder that an ordinary user may not enter
END_S = 50.0


@dataclass(frozen=True, slots=True)
class Ran:
    code: int
    out: str
    err: str


class RunGround:
    """``folder`` is where commands start; ``flags`` list the origin under one of its two names."""

    def __init__(self, ca: CertificateAuthority, user: str = "present") -> None:
        self._ca = ca
        self._is_ordinary = user == "ordinary"
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            home = Path(tempfile.mkdtemp(prefix="eg-"))
            stack.callback(shutil.rmtree, home)
            self.folder = home / "work"
            self.folder.mkdir()
            self.ca_path = shutil.copy(self._ca.pem_path, self.folder / "ca.pem")
            self.environment = {**clean_environment(home), "PATH": PATH}
            self.dns = stack.enter_context(DnsStub())
            leaf = self._ca.leaf(LISTED, UNLISTED)
            self.origin = stack.enter_context(Provider(tls=server_context(leaf)))
            self.origin.otherwise(answers.fixed(BODY.encode()))
            for name in (LISTED, UNLISTED):
                self.dns.add(name, self.origin.host)
            if self._is_ordinary:
                self.environment["PYTHONPATH"] = ordinary_user.libraries()
                for path in (home, *home.rglob("*")):
                    os.chown(path, ordinary_user.UID, ordinary_user.UID)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def flags(self) -> tuple[str, ...]:
        return ("--allow-private", f"{LISTED}:{self.origin.port}", "--resolver", self.dns.address)

    def url(self, host: str = LISTED) -> str:
        return f"https://{host}:{self.origin.port}/"

    def curl(self, host: str = LISTED, *flags: str) -> tuple[str, ...]:
        return ("curl", "-sS", "--cacert", "ca.pem", *flags, self.url(host))

    def argv(self, *command: str, flags: Sequence[str] = ()) -> tuple[str, ...]:
        interpreter = ordinary_user.interpreter() if self._is_ordinary else sys.executable
        # -P as the console script has it: no module comes from where the command works.
        return (interpreter, "-P", "-m", "egress_proxy", "run", *flags, "--", *command)

    def start(
        self, *command: str, flags: Sequence[str] = (), before: Sequence[str] = (), **options: Any
    ) -> subprocess.Popen[str]:
        """As subprocess has it; streams are pipes, stdin is empty, unless ``options`` say otherwise.
        ``before``: what executes the program, as `in_place_of_bwrap` does."""
        usual: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
        }
        usual |= {"env": self.environment, "cwd": self.folder, "text": True}
        if self._is_ordinary:
            usual |= {"user": ordinary_user.UID, "group": ordinary_user.UID, "extra_groups": ()}
        process: subprocess.Popen[str] = subprocess.Popen(
            (*before, *self.argv(*command, flags=flags)), **{**usual, **options}
        )
        return process

    @contextlib.contextmanager
    def started(
        self, *command: str, flags: Sequence[str] = (), **options: Any
    ) -> Iterator[subprocess.Popen[str]]:
        """Killed at the end of the block, if it has not ended by then."""
        with self.start(*command, flags=flags, **options) as process:
            try:
                yield process
            finally:
                process.kill()

    def run(
        self,
        *command: str,
        flags: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Ran:
        with self.started(
            *command, flags=flags, env={**self.environment, **(env or {})}, **options
        ) as process:
            out, err = process.communicate(timeout=END_S)
        assert_no_traceback(err or "")
        return Ran(process.returncode, out or "", err or "")


def in_place_of_bwrap(script: Path) -> tuple[str, ...]:
    """Words that execute what follows on a system whose bwrap is this file. Needs root."""
    mount = 'mount --bind "$0" /usr/bin/bwrap && exec "$@"'
    return ("unshare", "--mount", "sh", "-c", mount, str(script))


def folders_of(process: subprocess.Popen[str]) -> list[Path]:
    """Those of a `run` for its sockets: /tmp is the first place that is tried."""
    return list(Path("/tmp").glob(f"egress-run-{process.pid}-*"))


def is_running(words: str) -> bool:
    """Whether a process has this command line."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip() == words:
                return True
        except OSError:
            continue
    return False
