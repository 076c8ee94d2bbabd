"""One start of the child, with the setting that its attempt needs, and what the host sees of it.

Next: bench.py (judges), attempts.py (Setting), sandboxes.py (the words that are started).
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import shutil
import socket
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tests.end_to_end.escape.attempts import Setting
from tests.end_to_end.escape.child import FAULT, OWN_TMP
from tests.end_to_end.escape.files import OTHER_RUN
from tests.end_to_end.escape.ground import Grounds
from tests.end_to_end.escape.lifetime import LOCK
from tests.end_to_end.escape.sandboxes import Started

HANG_S = 20.0
# A pid namespace ends just after the command: what is in it is killed, not asked.
_END_S = 1.5
_PROBE_EVERY_S = 0.01
# setsid(1) makes what stdin is the controlling terminal, and becomes the command.
_ON_TERMINAL = ("/usr/bin/setsid", "--ctty")


@dataclass(frozen=True, slots=True)
class Seen:
    """``lines``: by the attempt's name, its outcome and words. ``code``: as Popen has it. Rest: Witness."""

    lines: Mapping[str, tuple[str, str]]
    errors: str
    code: int
    arrived: frozenset[str]
    typed: int
    lock_held: bool


def run(started: Started, setting: Setting, grounds: Grounds) -> Seen:
    """Start it and wait for its end; one that takes too long is killed, and was no attempt at all."""
    with contextlib.ExitStack() as stack:
        return _Run(stack, setting, grounds).to_end(started)


class _Run:
    def __init__(self, stack: contextlib.ExitStack, setting: Setting, grounds: Grounds) -> None:
        self._stack, self._setting, self._grounds = stack, setting, grounds
        self._arrived: frozenset[str] = frozenset()
        self._hung = False

    def to_end(self, started: Started) -> Seen:
        words = (*_ON_TERMINAL, *started.argv) if self._setting is Setting.TERMINAL else started.argv
        left_open = self._left_open() if self._setting is Setting.DESCRIPTORS else ()
        stdin = self._stdin()
        with subprocess.Popen(
            words,
            bufsize=0,
            env=started.env,
            pass_fds=(*started.pass_fds, *left_open),
            cwd=self._grounds.root,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        ) as process:
            out, errors = self._output(process)
        lines = dict(filter(None, map(_parsed, out.splitlines())))
        _remove_left(lines)
        typed = _waiting_input(stdin) if self._setting is Setting.TERMINAL else 0
        code = 1 if self._hung else process.returncode
        return Seen(lines, errors, code, self._arrived, typed, self._is_locked())

    def _stdin(self) -> int:
        match self._setting:
            case Setting.TERMINAL:
                ours, theirs = os.openpty()
                self._stack.callback(os.close, ours)
                self._stack.callback(os.close, theirs)
                return theirs
            case Setting.FILE_ON_STDIN:
                return self._opened(f"{self._grounds.out}/victim", os.O_RDONLY)
            case Setting.KNOCKED:
                return subprocess.PIPE
            case _:
                return subprocess.DEVNULL

    def _left_open(self) -> Iterator[int]:
        yield self._opened(f"{self._grounds.out}/victim", os.O_RDWR | os.O_APPEND)
        yield self._opened(self._grounds.out, os.O_RDONLY)
        yield self._grounds.listeners.left_open

    def _opened(self, path: str, flags: int) -> int:
        descriptor = os.open(path, flags)
        self._stack.callback(os.close, descriptor)
        return descriptor

    def _output(self, process: subprocess.Popen[bytes]) -> tuple[str, str]:
        early = b""
        if self._setting in {Setting.KNOCKED, Setting.KILLED}:
            assert process.stdout is not None
            while line := process.stdout.readline():
                early += line
                if line.startswith(b"PORT "):
                    self._knock(int(line[5:]))
                    break
                if line.startswith(b"READY"):
                    process.kill()
                    break
        try:
            out, errors = process.communicate(timeout=HANG_S)
        except subprocess.TimeoutExpired:
            process.kill()
            self._hung = True
            return "", f"it did not end within {HANG_S:.0f} s"
        return (early + out).decode("utf-8", "replace"), errors.decode("utf-8", "replace").strip()

    def _knock(self, port: int) -> None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            self._arrived = frozenset({"inbound"})

    def _is_locked(self) -> bool:
        """Whether somebody still holds the lock, a moment after the end."""
        try:
            lock = self._opened(f"{self._grounds.root}/{LOCK}", os.O_RDWR)
        except FileNotFoundError:
            return False
        end = time.monotonic() + _END_S
        while time.monotonic() < end:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return False
            time.sleep(_PROBE_EVERY_S)
        return True


def _parsed(line: str) -> tuple[str, tuple[str, str]] | None:
    name, _, rest = line.partition(" ")
    outcome, _, words = rest.partition(" ")
    return (name, (outcome, words)) if outcome else None


def _remove_left(lines: Mapping[str, tuple[str, str]]) -> None:
    """The private folder of a run whose supervisor was killed."""
    _, folder = lines.get(OWN_TMP, ("", ""))
    if folder.startswith(OTHER_RUN.format(tag="")):
        shutil.rmtree(folder, ignore_errors=True)


def fault(seen: Seen, name: str) -> str:
    """Why an attempt says nothing, or what was wrong with it; "" when it was made."""
    if name not in seen.lines:
        # One that was killed by the filter, or took its own sandbox down, was made.
        return "" if seen.code < 0 or seen.code > 128 else f"exit {seen.code}: {seen.errors[-300:]}"
    outcome, words = seen.lines[name]
    return words if outcome == FAULT else ""


def _waiting_input(terminal: int) -> int:
    """Bytes that somebody has typed: a terminal holds them back until the line's end, unless told not to."""
    settings = termios.tcgetattr(terminal)
    settings[3] &= ~termios.ICANON
    termios.tcsetattr(terminal, termios.TCSANOW, settings)
    count = array.array("i", [0])
    fcntl.ioctl(terminal, termios.FIONREAD, count)
    return count[0]
