"""What counts as got out: evidence that the host finds on its own side after an attempt.

Each is a function of a Witness, or makes one. Next: attempts.py (Witness), bench.py (makes one and asks).
"""

from __future__ import annotations

import contextlib
import os
import stat

from tests.end_to_end.escape.attempts import Evidence, Witness

VICTIM_TEXT = "original\n"
VICTIM_MODE = 0o644
FORGED_TIME = 86_400  # what an attempt sets, and no clock does
MARK = "PLANTED"


def victim_changed(witness: Witness, name: str) -> str:
    victim = witness.ground.victim
    try:
        status = os.stat(victim)
        with open(victim, encoding="utf-8") as stream:
            text = stream.read()
    except OSError:
        return "the victim is gone"
    if text != VICTIM_TEXT:
        return "its content is changed"
    if stat.S_IMODE(status.st_mode) != VICTIM_MODE:
        return f"its mode is {status.st_mode:o}"
    if status.st_nlink != 1:
        return f"it has {status.st_nlink} links"
    if int(status.st_mtime) == FORGED_TIME:
        return "its time is changed"
    return "it has an attribute" if os.listxattr(victim) else ""


def outside_changed(witness: Witness, name: str) -> str:
    now = frozenset(os.listdir(witness.ground.out))
    if now != witness.out_names:
        return f"outside: {', '.join(sorted(now ^ witness.out_names))}"
    return victim_changed(witness, name)


def victim_died(witness: Witness, name: str) -> str:
    return "the host's process is gone" if witness.victim_gone else ""


def arrived(listener: str) -> Evidence:
    return lambda witness, _: f"it arrived at {listener}" if listener in witness.arrived else ""


def typed_in(witness: Witness, name: str) -> str:
    return "it typed into the terminal" if witness.typed else ""


def lives_on(witness: Witness, name: str) -> str:
    return "a process outlives the command" if witness.lock_held else ""


def runner_ended(witness: Witness, name: str) -> str:
    return f"the runner ended by signal {witness.signal}" if witness.signal else ""


def planted(*names: str) -> Evidence:
    """Files in the root that hold the mark."""

    def look(witness: Witness, name: str) -> str:
        found = []
        for name in names:
            with contextlib.suppress(OSError), open(f"{witness.ground.root}/{name}") as stream:
                found += [name] if MARK in stream.read() else []
        return f"planted: {', '.join(found)}" if found else ""

    return look


def exists(folder: str) -> Evidence:
    """A file of the run's tag in a folder that the host shares."""
    return lambda witness, _: folder if os.path.exists(f"{folder}/{witness.ground.tag}") else ""


def privileged_file(witness: Witness, name: str) -> str:
    """Something in the root that runs as its owner, or with capabilities."""
    for entry in os.scandir(witness.ground.root):
        status = entry.stat(follow_symlinks=False)
        if status.st_mode & (stat.S_ISUID | stat.S_ISGID) and not stat.S_ISSOCK(status.st_mode):
            return f"{entry.name} has mode {status.st_mode:o}"
        with contextlib.suppress(OSError):
            os.getxattr(entry.path, "security.capability", follow_symlinks=False)
            return f"{entry.name} has capabilities"
    return ""


def code_ran(witness: Witness, name: str) -> str:
    """What was planted for the start has left a file behind."""
    names = [name for name in os.listdir(witness.ground.root) if name.startswith("ran-")]
    return f"planted code ran: {', '.join(sorted(names))}" if names else outside_changed(witness, name)
