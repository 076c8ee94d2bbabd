"""Starts launcher.py, supervisor.py or outer.py as a caller would, and stands in for the proxy beside it.

Real processes and descriptors, none of the product's own spawning. For tests of what runs in a sandbox.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from egress_proxy.sandbox import landlock, seccomp
from egress_proxy.sandbox.plan import LandlockRules, LaunchPlan, PathRule
from egress_proxy.sandbox.seccomp import Network, Surroundings
from tests.support.deadline import DEFAULT_S

SANDBOX = Path(__file__).resolve().parents[2] / "egress_proxy" / "sandbox"
LAUNCHER, SUPERVISOR, OUTER = (str(SANDBOX / f"{name}.py") for name in ("launcher", "supervisor", "outer"))
PYTHON = (os.path.realpath(sys.executable), "-I", "-S", "-B")
READ = int(landlock.Files.EXECUTE | landlock.Files.READ_FILE | landlock.Files.READ_DIR)
GREETING = b"from the proxy\n"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a launch ended; ``status`` as subprocess has it, ``errors``: all that came on the error pipe."""

    status: int
    errors: str
    output: str


class Launch:
    """One started process: ``proxy`` is the proxy's end of its channel."""

    def __init__(self, process: subprocess.Popen[str], proxy: socket.socket, errors: int) -> None:
        self.process = process
        self.proxy = proxy
        self._errors = errors

    def take_listener(self) -> socket.socket:
        """What is handed out, checked to be one descriptor in one message."""
        message, descriptors, flags, _ = socket.recv_fds(self.proxy, 16, 16)
        assert (message, len(descriptors), flags & socket.MSG_CTRUNC) == (b"L", 1, 0)
        return socket.socket(fileno=descriptors[0])

    def serve(self) -> socket.socket:
        """Accept on the listener as the proxy does, with one greeting a client, until it is closed."""
        listener = self.take_listener()
        threading.Thread(target=greet_all, args=(listener,), daemon=True).start()
        self.proxy.send(b"K")
        return listener

    def errors(self) -> str:
        """Waits for the command's exec, or for the launcher's failure."""
        with os.fdopen(self._errors, "rb") as stream:
            self._errors = -1
            return stream.read().decode()

    def finish(self) -> Ended:
        errors = self.errors()
        output, _ = self.process.communicate(timeout=4 * DEFAULT_S)
        return Ended(self.process.returncode, errors, output)

    def close(self) -> None:
        if self._errors >= 0:
            os.close(self._errors)
        self.proxy.close()
        self.process.kill()
        self.process.communicate()


def greet_all_until(listener: socket.socket, channel: socket.socket) -> None:
    """The same until the sandbox ends, of which the channel's end tells."""
    threading.Thread(target=greet_all, args=(listener,), daemon=True).start()
    assert channel.recv(1) == b""
    listener.shutdown(socket.SHUT_RDWR)  # wakes the thread


def is_gone(process: int) -> bool:
    """Or dead, and nobody has asked for its status yet."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except (FileNotFoundError, ProcessLookupError):
        return True


def greet_all(listener: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.sendall(GREETING)


@contextlib.contextmanager
def launched(
    plan: LaunchPlan | bytes,
    command: Sequence[str],
    script: Sequence[str] = (LAUNCHER, "inner"),
    *,
    before: Sequence[str] = (),
    interpreter: Sequence[str] = PYTHON,
    report: bool = True,
    more: Sequence[int] = (),
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    user: int | None = None,
    own_session: bool = False,
    stdin: int = subprocess.DEVNULL,
) -> Iterator[Launch]:
    """``before``: words in front of the interpreter, `bwrap …`; ``more``: descriptors left open by a
    careless caller; ``report``: with an error pipe."""
    plan_number = memory_file(plan if isinstance(plan, bytes) else plan.encode())
    read_end, write_end = os.pipe()
    proxy, channel = socket.socketpair()
    proxy.settimeout(4 * DEFAULT_S)
    passed = (plan_number, channel.fileno(), write_end)
    numbers = (*passed[:2], write_end if report else -1)
    try:
        process = subprocess.Popen(
            [*before, *interpreter, *script, *map(str, numbers), "--", *command],
            pass_fds=(*passed, *more),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=cwd,
            env=environment,
            user=user,
            extra_groups=None if user is None else (),
            start_new_session=own_session,
        )
    finally:
        for number in (plan_number, write_end):
            os.close(number)
        channel.close()
    launch = Launch(process, proxy, read_end)
    try:
        yield launch
    finally:
        launch.close()


@contextlib.contextmanager
def ordinary_folder() -> Iterator[str]:
    """The scripts where an ordinary user can read them: the checkout may lie below a closed home folder, and
    pytest closes its own folders whenever another one starts."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        for name in ("launcher.py", "told.py", "mount_check.py", "supervisor.py", "connects.py"):
            shutil.copy(SANDBOX / name, folder)
        yield folder


def memory_file(content: bytes) -> int:
    number = os.memfd_create("plan")
    assert os.write(number, content) == len(content)
    os.lseek(number, 0, os.SEEK_SET)
    return number


def read_only() -> LandlockRules:
    """Everything can be read and nothing written but /dev/null."""
    return writable()


def writable(*folders: str | Path) -> LandlockRules:
    """Everything can be read, these can be written, with all that ABI 3 knows."""
    files = sum(1 << bit for bit in range(15))
    device = int(landlock.Files.READ_FILE | landlock.Files.WRITE_FILE)
    grants = [PathRule(READ, "/"), PathRule(device, "/dev/null", required=False)]
    grants += [PathRule(files, str(folder)) for folder in folders]
    return LandlockRules(8, files, 0, 0, tuple(grants))


def program(network: Network) -> bytes:
    """The product's filter, as on the host's own stack."""
    return seccomp.program(os.uname().machine, Surroundings(network, own_ipc=False, own_pids=False))


def answering(number: int, action: int) -> bytes:
    """A filter that gives one system call this answer, and lets all others pass."""
    lines = ((0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, action), (0x06, 0, 0, 0x7FFF0000))
    return b"".join(struct.pack("HBBI", *line) for line in lines)
