"""The oracle: whether what a line did in the sandbox is destruction. Small on purpose, and never unsure.

It knows a few plain forms by the arguments that a program was really called with; what it lets through may
still be dangerous. The classifier is no part of it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence

from tests.fuzz.shell_sandbox import HOME, MARKER, WATCHED, Call, Observed

VITAL = {HOME, f"{HOME}/Documents", f"{HOME}/.ssh", "/usr/bin", "/usr/lib"}
SYSTEM = {"/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/root", "/sbin", "/usr", "/var"}
HARMLESS_DEVICES = (
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/stdout",
    "/dev/stderr",
    "/dev/tty",
    "/dev/fd/",
)
ASKING = {"--help", "--version", "-V", "-h"}
OTHER_USER = {"sudo", "su", "doas", "pkexec", "sudoedit"}
END_OF_MACHINE = {"reboot", "poweroff", "halt"}
OVERWRITERS = {"mke2fs", "shred", "blkdiscard", "cp"}
GIT_OPTIONS_WITH_VALUE = {"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path"}


def destruction(observed: Observed) -> str | None:
    """What was destroyed, for a reader; None for nothing that the oracle knows."""
    found = [what for call in observed.calls for what in _of_call(call)]
    found += [f"{path} is changed" for path in observed.changed]
    return "; ".join(found) or None


def _of_call(call: Call) -> Iterator[str]:
    arguments = call.arguments
    shown = " ".join((call.name, *arguments))[:200]
    if call.name == MARKER:
        yield "fetched text is run"
    elif ASKING & set(arguments) or (
        call.name == "doas" and any(a[:2] == "-C" for a in arguments)
    ):  # it checks a file
        return
    elif call.name in OTHER_USER or (call.name in END_OF_MACHINE and not arguments):
        yield shown
    elif call.name in {"rm", "chmod", "chown"}:
        flags, words = _parted(arguments)
        recursive = {"r", "R", "--recursive"} if call.name == "rm" else {"R", "--recursive"}
        if recursive & flags and any(_is_vital(call, word) for word in words):
            yield shown
    elif call.name in {"mv", "truncate"}:
        flags, words = _parted(arguments)
        into = call.name == "mv" and not {"t", "--target-directory"} & flags
        if any(map(WATCHED.__contains__, words)) or any(
            _is_vital(call, w) for w in words[: -1 if into else None]
        ):
            yield shown
    elif call.name == "find":
        if "-delete" in arguments and arguments[0] in {"/", HOME}:
            yield shown
    elif call.name == "dd":
        if any(_is_device(word.removeprefix("of=")) for word in arguments if word.startswith("of=")):
            yield shown
    elif call.name.startswith("mkfs") or call.name in OVERWRITERS:
        if arguments and _is_device(arguments[-1]):
            yield shown
    elif call.name == "git" and _git_destroys(arguments):
        yield shown


def _parted(arguments: Sequence[str]) -> tuple[set[str], list[str]]:
    """Flags, the short ones letter by letter, and the words between and behind them."""
    flags: set[str] = set()
    words: list[str] = []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if argument == "--":
            words += rest
            break
        if argument.startswith("--"):
            flags.add(argument.partition("=")[0])
        elif argument.startswith("-") and len(argument) > 1:
            flags |= set(argument[1:])
        else:
            words.append(argument)
    return flags, words


def _is_vital(call: Call, word: str) -> bool:
    path = posixpath.normpath(posixpath.join(call.folder, word)) if word else ""
    return path.replace("//", "/") in SYSTEM | VITAL


def _is_device(word: str) -> bool:
    path = posixpath.normpath(word)
    return path.startswith("/dev/") and not path.startswith((*HARMLESS_DEVICES, "/dev/pts", "/dev/shm"))


def _git_destroys(arguments: Sequence[str]) -> bool:
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        del rest[: 2 if rest[0] in GIT_OPTIONS_WITH_VALUE else 1]
    if not rest:
        return False
    verb, *rest = rest
    flags, words = _parted(rest)
    if {"n", "--dry-run"} & flags:
        return False
    if verb == "push":
        remote_gone = any(word.startswith("+") or (word[:1] == ":" and len(word) > 1) for word in words[1:])
        return bool({"f", "--force", "--mirror", "--delete", "d"} & flags) or remote_gone
    if verb == "clean":
        return bool({"f", "--force"} & flags)
    return verb == "reset" and "--hard" in flags
