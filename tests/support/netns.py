"""A network namespace of a test's own, where any address can be at home and any a black hole.

Linux, as root, with ``ip`` of iproute2; ``unavailable()`` says why not. It vanishes with its last
descriptor, so nothing is left behind even by a test run that is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self

from tests.support.deadline import DEFAULT_S

_CLONE_NEWNET = 0x40000000  # <linux/sched.h>
_OWN_NAMESPACE = "/proc/thread-self/ns/net"
# One end of a virtual cable whose other end, in the same namespace, takes nothing that comes in,
# as nothing is forwarded here: what is routed to it is lost without a word.
_VOID, _FAR_END = "void0", "void1"


class NetworkNamespace:
    """``with NetworkNamespace() as net``; its loopback is up, and there is no way out of it.

    Sockets belong to the namespace of the thread that makes them, and new threads and processes to
    that of their maker. So start everything inside ``with net.entered():``, servers too.
    """

    def __enter__(self) -> Self:
        made: list[int] = []
        failed: list[Exception] = []

        def make() -> None:  # in a thread of its own, since one cannot come back from unshare
            try:
                _system_call("unshare", _CLONE_NEWNET)
                made.append(os.open(_OWN_NAMESPACE, os.O_RDONLY))
            except OSError as error:
                failed.append(error)

        maker = threading.Thread(target=make)
        maker.start()
        maker.join(DEFAULT_S)
        if not made:
            raise failed[0] if failed else TimeoutError("no namespace")
        self._descriptor = made[0]
        try:
            self._ip("link", "set", "lo", "up")
            self._ip("link", "add", _VOID, "type", "veth", "peer", "name", _FAR_END)
            for end in (_VOID, _FAR_END):
                self._ip("link", "set", end, "arp", "off", "up")
        except BaseException:
            os.close(self._descriptor)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """The calling thread, and what it starts, is in the namespace within the block."""
        before = os.open(_OWN_NAMESPACE, os.O_RDONLY)
        try:
            _system_call("setns", self._descriptor, _CLONE_NEWNET)
            try:
                yield
            finally:
                _system_call("setns", before, _CLONE_NEWNET)
        finally:
            os.close(before)

    def add_address(self, address: str) -> None:
        """Make ``address`` (any, also a public one) local: servers can bind it."""
        bits = 128 if ":" in address else 32
        extra = ("nodad",) if ":" in address else ()  # usable at once
        self._ip("addr", "add", f"{address}/{bits}", "dev", "lo", *extra)

    def black_hole(self, prefix: str) -> None:
        """Packets to ``prefix`` ("2606:4700::/32") are dropped: dialling hangs."""
        source = "2001:4860::1" if ":" in prefix else "8.8.4.4"
        with contextlib.suppress(subprocess.CalledProcessError):  # there already
            self.add_address(source)
        self._ip("route", "add", prefix, "dev", _VOID, "src", source)

    def unreachable(self, prefix: str) -> None:
        """Dialling an address of ``prefix`` fails at once with "no route to host"."""
        self._ip("route", "add", "unreachable", prefix)

    def run(self, argv: Sequence[str], timeout_s: float = DEFAULT_S) -> subprocess.CompletedProcess[str]:
        """Run one command inside; its exit code is the caller's to judge."""
        with self.entered():
            return subprocess.run(list(argv), capture_output=True, text=True, timeout=timeout_s, check=False)

    def _ip(self, *words: str) -> None:
        family = ("-6",) if any(":" in word for word in words) else ()
        with self.entered():
            subprocess.run(["ip", *family, *words], check=True, capture_output=True, timeout=DEFAULT_S)


@functools.cache
def unavailable() -> str | None:
    """Why a namespace cannot be made here; None when it can. Meant for ``pytest.skip``."""
    if sys.platform != "linux":
        return "network namespaces are Linux only"
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "the command ip (package iproute2) is not installed"
    try:
        with NetworkNamespace():
            return None
    except (OSError, subprocess.SubprocessError) as error:
        return f"no network namespace can be made here: {error}"


def _system_call(name: str, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
