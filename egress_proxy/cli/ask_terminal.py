"""One question at the terminal of `run --ask`, while the command stands still and cannot meddle with it.

What was typed before is not an answer, the command reads none of it, and where a full-screen program has the
terminal nothing is asked. Next: ask.py (what is asked, and what an answer means), sandbox/standstill.py.
"""

import asyncio
import contextlib
import os
import signal
import termios
from collections.abc import Collection, Iterator

from egress_proxy.sandbox.standstill import standstill

_LINE_BYTES = 256
# DECSTR and SGR 0: against colours, margins and character sets that were left there to hide a question.
_SOFT_RESET = "\x1b[!p\x1b[0m"
_LFLAG = 3


class NobodyToAsk(Exception):
    """The question cannot be put at this terminal now. The message says why."""


class QuestionTerminal:
    """``runner_pid``: of the command, once there is one. One question at a time is its user's to keep."""

    def __init__(self, terminal: int, *, is_dumb: bool = False) -> None:
        """``terminal``: a descriptor of it, which stays the caller's; ``is_dumb``: it knows no sequences."""
        self._terminal = terminal
        self._reset = "" if is_dumb else _SOFT_RESET
        self._typed: asyncio.Future[bytes] | None = None
        self.runner_pid: int | None = None

    async def put(self, question: str, timeout_s: float) -> str:
        """The line that is typed then; "" when the terminal is gone, or after `give_up`.

        Raises NobodyToAsk, TimeoutError.
        """
        with self._command_stands() as groups, _no_suspension():
            if not self._is_read_by_lines():
                raise NobodyToAsk("a full-screen program has the terminal")
            with self._in_foreground(groups):
                with contextlib.suppress(termios.error):
                    termios.tcflush(self._terminal, termios.TCIFLUSH)
                self.say(f"{self._reset}\r\n{question}")
                async with asyncio.timeout(timeout_s):
                    return await self._line()

    def say(self, text: str) -> None:
        with contextlib.suppress(OSError):
            os.write(self._terminal, text.encode())

    def give_up(self) -> None:
        """We are to end: the question that stands is not answered any more."""
        if self._typed is not None and not self._typed.done():
            self._typed.set_result(b"")

    @contextlib.contextmanager
    def _command_stands(self) -> Iterator[Collection[int]]:
        if self.runner_pid is None:
            yield ()
            return
        with standstill(self.runner_pid) as groups:
            yield groups

    def _is_read_by_lines(self) -> bool:
        """As a shell leaves it. Editors, pagers and agents read keys, and draw over what we say."""
        wanted = termios.ICANON | termios.ECHO
        try:
            return bool(termios.tcgetattr(self._terminal)[_LFLAG] & wanted == wanted)
        except termios.error:  # gone, which reading will show
            return True

    @contextlib.contextmanager
    def _in_foreground(self, groups: Collection[int]) -> Iterator[None]:
        """The keys come to us: also where a shell inside has given the foreground to a job of its own."""
        try:
            before = os.tcgetpgrp(self._terminal)
        except OSError:
            yield
            return
        if before == os.getpgrp():
            yield
            return
        if before not in groups:
            raise NobodyToAsk("another job has the terminal")
        with contextlib.suppress(OSError):
            os.tcsetpgrp(self._terminal, os.getpgrp())
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                os.tcsetpgrp(self._terminal, before)

    async def _line(self) -> str:
        loop = asyncio.get_running_loop()
        typed: asyncio.Future[bytes] = loop.create_future()
        self._typed = typed
        loop.add_reader(self._terminal, self._read, typed)
        try:
            return (await typed).decode("utf-8", "replace")
        finally:
            loop.remove_reader(self._terminal)

    def _read(self, typed: asyncio.Future[bytes]) -> None:
        try:
            line = os.read(self._terminal, _LINE_BYTES)
        except OSError:
            line = b""
        if not typed.done():
            typed.set_result(line)


@contextlib.contextmanager
def _no_suspension() -> Iterator[None]:
    """Ctrl-Z waits: what brings us back to the foreground would let the command go on beside the question."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTSTP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
