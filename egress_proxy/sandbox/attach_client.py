"""The caller's end of an attach connection: says hello, keeps it for the sandbox's life, reads the report.

Blocking, on one AF_UNIX socket, each wait with a limit. Next: core/attach.py (messages), confinement.py.
"""

import contextlib
import socket
from types import TracebackType
from typing import Self

from egress_proxy.core.attach import (
    REPORT_LIMIT,
    AttachError,
    Hello,
    Refused,
    Report,
    Welcome,
    encode_hello,
    parse_answer,
    parse_report,
)
from egress_proxy.sandbox.spec import SandboxUnavailable

# The proxy answers from its loop, between two tunnels' turns: a second would be long.
ANSWER_TIMEOUT_S = 5.0


class OldProxy(SandboxUnavailable):
    """The proxy does not know the question for its own files, and has taken no sandbox."""


class Attachment:
    """One sandbox at the proxy. Closing it without `finish` ends the sandbox's egress as well."""

    def __init__(self, path: str, label: str = "", *, names: bool = False) -> None:
        """``names``: ask for the proxy's own files too. Raises SandboxUnavailable when nobody answers there,
        or the answer is no."""
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._sock.settimeout(ANSWER_TIMEOUT_S)
        try:
            self.welcome = self._greet(path, Hello(label, names))
        except PermissionError:
            self._sock.close()
            raise SandboxUnavailable(f"the attach socket {path} is not for this user to open") from None
        except OSError as error:
            self._sock.close()
            raise _no_answer(path, error.strerror or str(error)) from None
        except AttachError as error:
            self._sock.close()
            raise _no_answer(path, str(error)) from None
        except SandboxUnavailable:
            self._sock.close()
            raise

    def _greet(self, path: str, hello: Hello) -> Welcome:
        self._sock.connect(path)
        # A proxy that takes nothing from this user says so at once, and hears no hello.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._sock.sendall(encode_hello(hello))
        match parse_answer(_line(self._sock, REPORT_LIMIT)):
            case Welcome() as welcome:
                return welcome
            case Refused(error) if hello.names and "attach version" in error:
                raise OldProxy("the proxy is older than this question")
            case Refused(error):
                raise SandboxUnavailable(f"the proxy takes no sandbox: {error}")

    def fileno(self) -> int:
        return self._sock.fileno()

    def finish(self) -> Report | None:
        """End the sandbox at the proxy and read what it reached; None when the proxy is gone."""
        try:
            self._sock.shutdown(socket.SHUT_WR)
            return parse_report(_line(self._sock, REPORT_LIMIT))
        except (OSError, AttachError):
            return None
        finally:
            self._sock.close()

    def close(self) -> None:
        self._sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _line(sock: socket.socket, limit: int) -> bytes:
    """Bytes up to the line end, and it. One message is under way at a time, so nothing follows it."""
    received = bytearray()
    while not received.endswith(b"\n"):
        if len(received) >= limit:
            raise AttachError("the line is too long")
        chunk = sock.recv(min(65_536, limit - len(received)))
        if not chunk:
            raise AttachError("the connection ended early")
        received += chunk
    return bytes(received)


def _no_answer(path: str, why: str) -> SandboxUnavailable:
    remedy = "start `egress-proxy serve`, which prints EGRESS_ATTACH=PATH"
    return SandboxUnavailable(f"no proxy answers at {path}: {why.lower()}; {remedy}")
