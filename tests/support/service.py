"""The real service, started as a user starts it, and the ways in which tests talk to it.

Nothing is imported from the product: what counts is what comes out of its sockets and its output.
One-shot commands are in program.py (``run_cli``), figures from /proc in proc_figures.py.
"""

from __future__ import annotations

import contextlib
import json as json_text
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support import proc_figures
from tests.support.byte_stream import End, connect, read_until_end
from tests.support.deadline import DEFAULT_S, Deadline
from tests.support.http import Response, exchange, read_body, read_head
from tests.support.program import PROGRAM, OutputLog, assert_no_traceback, clean_environment
from tests.support.service_answers import (
    ConnectAnswer,
    ControlAnswer,
    ask_control,
    connect_request,
)

SERVE = (*PROGRAM, "serve")
TOKEN = "control-token-of-the-tests"
TOKEN_VARIABLE = "EGRESS_TEST_CONTROL_TOKEN"
_START_S = 20.0  # imports on a busy machine
_STOP_S = 10.0  # the drain limit is 5 s


class ServiceDidNotStart(Exception):
    """It ended, or kept silent, before its readiness lines."""

    def __init__(self, exit_code: int | None, stdout: str, stderr: str) -> None:
        super().__init__(f"exit code {exit_code}\nstdout:\n{stdout}\nstderr:\n{stderr}")
        self.exit_code = exit_code
        self.stdout = stdout
        self.stderr = stderr


class Service:
    """``with Service("--allow", "ok.example", token=TOKEN) as service``.

    ``token`` turns the control API on; ``control=True`` says that something else in the arguments
    does. ``bind=None`` leaves ``--bind`` to the arguments or the file. The block ends with SIGTERM,
    and fails when the service does not end with exit code 0 or left a traceback on stderr.
    """

    def __init__(
        self,
        *args: str,
        env: Mapping[str, str] | None = None,
        token: str | None = None,
        control: bool = False,
        bind: str | None = "127.0.0.1:0",
        program: Sequence[str] = SERVE,
        start_s: float = _START_S,
    ) -> None:
        own_bind = bind is None or any(a == "--bind" or a.startswith("--bind=") for a in args)
        self.argv = [*program, *(() if own_bind else ("--bind", str(bind))), *args]
        if token is not None:
            self.argv += ["--control-token-env", TOKEN_VARIABLE]
            env = {TOKEN_VARIABLE: token, **(env or {})}
        self.token = token
        self.proxy_port = 0  # until it has started
        self.control_port = 0
        self._control = control or token is not None
        self._env = env
        self._start_s = start_s
        self._told_to_end = False
        self._handed_out: list[socket.socket] = []

    # Life.

    def __enter__(self) -> Self:
        # A short path: sockets in the run-time folder must fit into 108 bytes.
        self.folder = Path(tempfile.mkdtemp(prefix="eg-"))
        self.process = subprocess.Popen(
            self.argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=clean_environment(self.folder, self._env),
            cwd=self.folder,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.stdout = OutputLog(self.process.stdout, self.folder / "stdout")
        self.stderr = OutputLog(self.process.stderr, self.folder / "stderr")
        try:
            self._await_readiness()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close_sockets()
            self._end()
            self.stderr.join()
            assert_no_traceback(self.stderr.text)
        except Exception as problem:
            if error is None:
                raise
            error.add_note(f"and the service: {problem}")
        finally:
            if error is not None:
                error.add_note(f"stderr of the service:\n{self.stderr.text[-4000:]}")
            self._remove()

    @property
    def pid(self) -> int:
        return self.process.pid

    def is_running(self) -> bool:
        return self.process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        self._told_to_end |= number is not signal.SIGHUP
        self.process.send_signal(number)

    def stop(self, timeout_s: float = _STOP_S) -> int:
        """SIGTERM; the exit code. One that does not end in time is killed, and is an error."""
        self.signal(signal.SIGTERM)
        return self.wait(timeout_s)

    def terminate_and_time(self, timeout_s: float = _STOP_S) -> float:
        """SIGTERM; the seconds until it was gone."""
        begun = time.monotonic()
        self.stop(timeout_s)
        return time.monotonic() - begun

    def wait(self, timeout_s: float = _STOP_S) -> int:
        """Wait for its end; the exit code, negative for a signal."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise TimeoutError(f"the service did not end in {timeout_s:g} s") from None

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait(DEFAULT_S)

    @property
    def attach_path(self) -> str:
        """Where sandboxes attach; waits for the line that says so."""
        path = self.stdout.wait_for_line("EGRESS_ATTACH=")
        if path is None:
            raise AssertionError(f"no attach socket was announced\n{self.stderr.text}")
        return path

    # Talk on the data port.

    def open(self, timeout_s: float = DEFAULT_S) -> socket.socket:
        """A plain connection to the data port; closed with the service, if not before."""
        sock = connect(self.proxy_port, timeout_s=timeout_s)
        self._handed_out = [s for s in self._handed_out if s.fileno() >= 0] + [sock]
        return sock

    def connect(
        self,
        target: str,
        extra: bytes = b"",
        http_version: str = "1.1",
        headers: Iterable[tuple[str, str]] = (),
        timeout_s: float = DEFAULT_S,
    ) -> ConnectAnswer:
        """CONNECT; ``extra`` goes out in the same write, right behind the head."""
        sock = self.open(timeout_s)
        sock.sendall(connect_request(target, http_version, headers) + extra)
        answer = read_head(sock, timeout_s)
        body, _ = read_body(sock, answer, "CONNECT", timeout_s)
        return ConnectAnswer(answer.status_line, answer.headers, body, sock)

    def close_sockets(self) -> None:
        """Close all connections handed out so far: for tests that share one service."""
        for sock in self._handed_out:
            sock.close()
        self._handed_out.clear()

    def status(self, target: str) -> int:
        """What a CONNECT would get, on a connection that is closed at once: for many in a row."""
        answer = self.connect(target)
        answer.sock.close()
        return answer.status

    def tunnel(self, target: str, extra: bytes = b"") -> socket.socket:
        """A tunnel that must be granted."""
        answer = self.connect(target, extra)
        if answer.status != 200:
            raise AssertionError(f"{answer.status_line}: {answer.body!r}\n{self.stderr.text[-2000:]}")
        return answer.sock

    def request(self, request: bytes, timeout_s: float = DEFAULT_S) -> Response:
        """One request, sent as it is, and its response; see ``http.request_bytes``."""
        return exchange(self.proxy_port, request, timeout_s=timeout_s)

    def raw(self, octets: bytes, timeout_s: float = DEFAULT_S) -> bytes:
        """Send, then all that comes until the end or the deadline; a reset raises."""
        received, end = self.raw_end(octets, timeout_s)
        if end is End.RESET:
            raise ConnectionResetError(f"reset after {received!r}")
        return received

    def raw_end(self, octets: bytes, timeout_s: float = DEFAULT_S) -> tuple[bytes, End]:
        """As ``raw``, with how it ended: EOF, RESET, or OPEN at the deadline."""
        with connect(self.proxy_port, timeout_s=timeout_s) as sock:
            with contextlib.suppress(ConnectionError):  # refused in mid-send: the answer counts
                sock.sendall(octets)
            return read_until_end(sock, timeout_s)

    # Talk on the control port.

    def control(
        self,
        method: str,
        path: str,
        json: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        body: bytes | None = None,
        authorized: bool = True,
        timeout_s: float = DEFAULT_S,
    ) -> ControlAnswer:
        """One call. ``json`` (or ``body``, as it is) is the body; ``headers`` win over our own."""
        own: dict[str, str] = {}
        if json is not None:
            body = json_text.dumps(json).encode()
            own["Content-Type"] = "application/json"
        if authorized and self.token is not None:
            own["Authorization"] = f"Bearer {self.token}"
        given = {name.lower() for name in headers or {}}
        own = {name: value for name, value in own.items() if name.lower() not in given}
        all_headers = own | dict(headers or {})
        return ask_control(self.control_port, method, path, all_headers, body, timeout_s)

    def control_request(self, request: bytes, timeout_s: float = DEFAULT_S) -> Response:
        """One request to the control port, sent as it is, and its response."""
        return exchange(self.control_port, request, timeout_s=timeout_s)

    def allow(self, host: str, **fields: Any) -> Any:
        """POST /allow, which must succeed; the answer's JSON."""
        answer = self.control("POST", "/allow", {"host": host, **fields})
        if answer.status != 200:
            raise AssertionError(f"POST /allow: {answer.status} {answer.body!r}")
        return answer.json()

    # Figures.

    def rss_bytes(self) -> int:
        return proc_figures.rss_bytes(self.pid)

    def open_descriptors(self) -> int:
        return proc_figures.open_descriptors(self.pid)

    def cpu_s(self) -> float:
        return proc_figures.cpu_s(self.pid)

    # Inside.

    def _await_readiness(self) -> None:
        deadline = Deadline(self._start_s, "the readiness lines")
        self.proxy_port = self._port("EGRESS_PROXY_PORT=", deadline)
        if self._control:
            self.control_port = self._port("EGRESS_CONTROL_PORT=", deadline)

    def _port(self, prefix: str, deadline: Deadline) -> int:
        try:
            line = self.stdout.wait_for_line(prefix, deadline.remaining_s())
        except TimeoutError:
            raise ServiceDidNotStart(None, self.stdout.text, self.stderr.text) from None
        if line is None:
            code = self.process.wait(DEFAULT_S)
            self.stderr.join()
            raise ServiceDidNotStart(code, self.stdout.text, self.stderr.text)
        return int(line)

    def _end(self) -> None:
        """Stop it if it runs; one that a test ended was judged there, one that crashed fails."""
        if not self.is_running() and self._told_to_end:
            return
        crashed = not self.is_running()
        if not crashed:
            self.stop()
        if crashed or self.process.returncode != 0:
            raise AssertionError(f"ended with code {self.process.returncode}\n{self.stderr.text}")

    def _remove(self) -> None:
        if self.is_running():
            self.kill()
        for log in (self.stdout, self.stderr):
            log.join()
        shutil.rmtree(self.folder, ignore_errors=True)
