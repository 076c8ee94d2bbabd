"""The confined command of `run` as a child: its start, the signals it is sent, how it ended.

Runs in the proxy's own loop. Next: run.py (starts it), run_streams.py and run_terminal.py (what it reads and
writes), sandbox/confinement.py (what is spawned), sandbox/delivery.py (signals).
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from egress_proxy.cli.ask_terminal import QuestionTerminal
from egress_proxy.cli.run_streams import STDERR, STDIN, STDOUT, CopiedStderr, given_stdin
from egress_proxy.cli.run_terminal import kept_flags, kept_terminal
from egress_proxy.sandbox.confinement import Confinement
from egress_proxy.sandbox.delivery import deliver, deliver_from_terminal

# A terminal sends these to its whole foreground group, anybody else to us alone.
_FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_AGAIN_S = 0.02  # bwrap takes some of it until there is a command
# Of a command that was to end; else they wait for who reads our stderr, as long as it takes.
_LAST_WORDS_S = 1.0


@dataclass(frozen=True, slots=True)
class Ended:
    """``code``: negative is a signal, as subprocess has it. ``stderr_tail``: None where it was not copied."""

    code: int
    stderr_tail: bytes | None


async def run_child(
    confinement: Confinement, *, interactive: bool, terminal: QuestionTerminal | None = None
) -> Ended:
    """Start the command, wait for its end. Raises OSError when it cannot be spawned. ``terminal``: where
    questions are put, with the command standing still; a signal to us ends one."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(kept_flags((STDIN, STDOUT, STDERR)))
        if interactive:
            stack.enter_context(kept_terminal(STDIN))
        stdin = stack.enter_context(given_stdin())
        stderr = None if os.isatty(STDERR) else stack.enter_context(CopiedStderr())
        forwarding = contextlib.ExitStack()
        # Not heard before there is somebody to pass them on to, and not lost.
        with _blocked((*_FORWARDED, *_FROM_TERMINAL)):
            process = await asyncio.create_subprocess_exec(
                *confinement.argv,
                env=confinement.env,
                pass_fds=confinement.pass_fds,
                stdin=stdin,
                stderr=None if stderr is None else stderr.child_end,
            )
            if terminal is not None:
                terminal.runner_pid = process.pid
            told = None if terminal is None else terminal.give_up
            passed_on = _forwarding(confinement.backend, process.pid, told, interactive=interactive)
            heard = forwarding.enter_context(passed_on)
        with forwarding:
            confinement.started()
            if stderr is not None:
                stderr.started()
            code = await process.wait()
        if terminal is not None:
            terminal.runner_pid = None  # another process may have that number soon
        limit_s = _LAST_WORDS_S if heard else None
        return Ended(code, None if stderr is None else await stderr.tail(limit_s))


@contextlib.contextmanager
def _blocked(numbers: tuple[signal.Signals, ...]) -> Iterator[None]:
    """So is what is spawned. bwrap stays so, which else would die of what a terminal or timeout(1) sends to
    the whole group, and take the command along; the launcher and the supervisor undo it for the command."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _forwarding(
    backend: str, pid: int, told: Callable[[], None] | None, *, interactive: bool
) -> Iterator[set[signal.Signals]]:
    """Gives those that have come so far. ``told``: called for each."""
    loop = asyncio.get_running_loop()
    heard: set[signal.Signals] = set()
    is_running = True

    def pass_on(number: signal.Signals) -> None:
        heard.add(number)
        if told is not None:
            told()
        if not is_running:
            return
        if number in _FROM_TERMINAL and _has_terminal():
            if not interactive:  # else it is in our group, and has been sent it
                deliver_from_terminal(backend, pid, number)
        elif not deliver(backend, pid, number):
            loop.call_later(_AGAIN_S, pass_on, number)

    for number in (*_FORWARDED, *_FROM_TERMINAL):
        loop.add_signal_handler(number, pass_on, number)
    try:
        yield heard
    finally:
        is_running = False
        for number in (*_FORWARDED, *_FROM_TERMINAL):
            loop.remove_signal_handler(number)


def _has_terminal() -> bool:
    """Whether we are the foreground job of one, and so what was sent is most likely a key's."""
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    finally:
        os.close(terminal)
