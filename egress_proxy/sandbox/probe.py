"""Whether a rung holds what it promises, here and now: runs a canary in it and watches from outside.

What the canary says does not count where an effect can be seen on this side. Next: canary.py, choose.py.
"""

import contextlib
import os
import pwd
import secrets
import select
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from egress_proxy.core.attach import HAND_OUT, TAKEN
from egress_proxy.sandbox.descriptors import Descriptors
from egress_proxy.sandbox.environment import host_environment
from egress_proxy.sandbox.plan import Recipe, isolated_python
from egress_proxy.sandbox.short_folder import short_folder
from egress_proxy.sandbox.spec import Dimension, Gap, SandboxSpec, ThroughProxy

TIMEOUT_S = 5.0
"""All of a probe. A tool that hangs is a tool that cannot confine."""
# Its text goes on the command line: a file could be replaced by whoever may write where it lies, and would
# then run with the probe's rights.
_CANARY = Path(__file__).with_name("canary.py")
# What the canary tries, and the dimension that must be full for it to fail.
_MUST_FAIL: Mapping[str, Dimension] = {
    "write": Dimension.WRITES,
    "home": Dimension.WRITES,
    "tcp": Dimension.EGRESS,
    "udp": Dimension.EGRESS,
    "unix": Dimension.IPC,
    "marker": Dimension.VISIBILITY,
    "signal": Dimension.SIGNALS,
}

MakeRecipe = Callable[[SandboxSpec], Recipe]


def fault_of(make: MakeRecipe, spec: SandboxSpec, gaps: tuple[Gap, ...]) -> str:
    """Why a rung cannot be used for policies of this shape, or "": it was run and held.

    ``gaps``: what it does not promise, and so need not hold.
    """
    try:
        folder = short_folder("egress-probe-", host_environment())
        with folder as place, contextlib.ExitStack() as stack:
            return _run(make, spec, gaps, _Ground(place, stack))
    except OSError as error:
        return f"the probe could not run: {(error.strerror or str(error)).lower()}"


class _Ground:
    """What the canary must not reach, made for it: a folder, sockets of each kind, a victim, a marker."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        self.root, self.outside = folder / "root", folder / "outside"
        self.root.mkdir()
        self.marker = f"EGRESS_PROBE_{secrets.token_hex(8)}"
        self.tcp, self.udp, self.unix = (
            stack.enter_context(socket.socket(family, kind))
            for family, kind in (
                (socket.AF_INET, socket.SOCK_STREAM),
                (socket.AF_INET, socket.SOCK_DGRAM),
                (socket.AF_UNIX, socket.SOCK_STREAM),
            )
        )
        for sock in (self.tcp, self.udp):
            sock.bind(("127.0.0.1", 0))
        self.unix_path = str(folder / "unix")
        self.unix.bind(self.unix_path)
        for sock in (self.tcp, self.unix):
            sock.listen(1)
        self.victim = stack.enter_context(_victim(self.marker))

    def arguments(self, proxy_port: int | None) -> tuple[str, ...]:
        return (
            str(self.outside),
            _home(),
            str(self.tcp.getsockname()[1]),
            str(self.udp.getsockname()[1]),
            self.unix_path,
            self.marker,
            str(self.victim.pid),
            str(self.root),
            "-" if proxy_port is None else str(proxy_port),
        )

    def reached(self) -> Iterator[str]:
        """Which attempts had an effect on this side."""
        if self.outside.exists():
            yield "write"
        arrived = select.select((self.tcp, self.udp, self.unix), (), (), 0)[0]
        for name, sock in (("tcp", self.tcp), ("udp", self.udp), ("unix", self.unix)):
            if sock in arrived:
                yield name
        if self.victim.poll() is not None:
            yield "signal"


@contextlib.contextmanager
def _victim(marker: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that must neither be killed nor looked into. It waits for the end of its stdin, which is
    ours, and so ends with us."""
    with subprocess.Popen(
        ("/bin/cat",), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env={"MARKER": marker}
    ) as victim:
        yield victim


def _run(make: MakeRecipe, spec: SandboxSpec, gaps: tuple[Gap, ...], ground: _Ground) -> str:
    # Any number will do: it is a port in the canary's own network, or one that is never bound.
    proxy_port = secrets.choice(range(20_000, 30_000)) if isinstance(spec.egress, ThroughProxy) else None
    # The masks of the real one are in force: the canary needs nothing that they hide.
    stand_in = replace(spec, roots=(str(ground.root),), cwd=str(ground.root))
    if proxy_port is not None:
        stand_in = replace(stand_in, egress=ThroughProxy("", proxy_port))
    ours, theirs = socket.socketpair()
    with ours, theirs, Descriptors(make(stand_in), theirs.fileno()) as opened:
        process = _spawn(opened, ground.arguments(proxy_port))
        opened.close_passed()
        theirs.close()
        proxy = threading.Thread(target=_play_proxy, args=(ours,))
        proxy.start()
        try:
            out, err = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return f"the probe did not end within {TIMEOUT_S:.0f} s"
        finally:
            _end(process)
            proxy.join()
        why = opened.errors()
    return _verdict(process.returncode, _told(out), why or _text(err), gaps, ground)


def _spawn(opened: Descriptors, arguments: tuple[str, ...]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        (*opened.argv, *isolated_python("-c"), _CANARY.read_text("utf-8"), *arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=opened.pass_fds,
        env={"PATH": os.defpath},
        start_new_session=True,
    )


def _home() -> str:
    """A place outside that we could write to ourselves. In containers the user may have no entry."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return "/"


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def _play_proxy(channel: socket.socket) -> None:
    """Take the listener and answer one client, until the sandbox has ended."""
    channel.settimeout(TIMEOUT_S)
    with contextlib.suppress(OSError):
        message, descriptors, _, _ = socket.recv_fds(channel, 1, 1)
        if message != HAND_OUT or not descriptors:
            return
        with socket.socket(fileno=descriptors[0]) as listener:
            channel.sendall(TAKEN)
            if listener not in select.select((listener, channel), (), (), TIMEOUT_S)[0]:
                return
            with listener.accept()[0] as client:
                client.settimeout(TIMEOUT_S)
                client.recv(1)
                client.sendall(b"!")


def _told(out: bytes) -> Mapping[str, str]:
    lines = (line.partition(" ") for line in _text(out).splitlines())
    return {name: outcome for name, _, outcome in lines}


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace").strip()


def _verdict(code: int, told: Mapping[str, str], words: str, gaps: tuple[Gap, ...], ground: _Ground) -> str:
    first = words.partition("\n")[0]
    if code != 0 or not _MUST_FAIL.keys() <= told.keys():
        return first or f"the probe ended with {code}"
    below_full = {gap.dimension for gap in gaps}
    # Of these two it is only the canary who can tell.
    effects = {*ground.reached(), *(name for name in ("home", "marker") if told[name] == "ok")}
    escaped = sorted(name for name in effects if _MUST_FAIL[name] not in below_full)
    if escaped:
        return f"the probe's canary got out by {', '.join(escaped)}"
    unable = sorted(name for name in told.keys() - _MUST_FAIL.keys() if told[name] != "ok")
    if unable or not (ground.root / "canary").exists():
        return f"the probe's canary could not use what it was given: {', '.join(unable) or 'root'}"
    return ""
