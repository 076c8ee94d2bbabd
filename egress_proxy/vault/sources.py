"""Where a secret comes from: `env:NAME`, `file:PATH` or `fd:N`, read into a Secret.

No network, no os.environ (a mapping is passed in), no message that holds a value: a refusal names
the source and what is wrong. Next: secret.py (what a secret may be), injection.py (where it goes).
"""

import enum
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, assert_never

from egress_proxy.vault.secret import LIMIT_CHARACTERS, Secret, flaw

# A secret, its line end, and one byte more that tells "too long" from "just fits".
_READ_LIMIT_BYTES = LIMIT_CHARACTERS + len(b"\r\n") + 1
# O_NONBLOCK: a FIFO in the file's place must not stop the whole service.
_OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK

_SUPPORTED = "env:NAME, file:PATH or fd:N"
_NOT_YET = frozenset({"credential", "command", "keyring"})


class SecretUnavailable(Exception):
    """A source is not understood or gives no usable secret. Names the source, holds no value."""


class SourceKind(enum.StrEnum):
    ENV = "env"
    FILE = "file"
    FD = "fd"


# Paths hold no control characters: the name of a source is written to logs. Descriptors below 3
# stay open: the next socket would take the number over, and with it what the service prints.
_REST = {
    SourceKind.ENV: (re.compile(r"[A-Za-z_][A-Za-z0-9_]*"), "the name of a variable"),
    SourceKind.FILE: (re.compile(r"/[^\x00-\x1f\x7f]+"), "an absolute path"),
    SourceKind.FD: (re.compile(r"[3-9]|[1-9][0-9]{1,5}"), "the number of a descriptor from 3 up"),
}


@dataclass(frozen=True, slots=True)
class SourceName:
    """`kind:rest` as flags and settings write it; safe to show. Made by `parse_source` only."""

    kind: SourceKind
    rest: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.rest}"


def parse_source(text: str) -> SourceName:
    """Read `kind:rest`. Raises SecretUnavailable.

    A text that is no source is never quoted: it may be the secret, pasted where its source belongs.
    """
    word, _, rest = text.partition(":")
    if word in _NOT_YET:
        raise SecretUnavailable(f"secret source {word}: is not supported yet, use {_SUPPORTED}")
    if word not in {kind.value for kind in SourceKind}:
        raise SecretUnavailable(f"a secret is given by its source: {_SUPPORTED}")
    kind = SourceKind(word)
    pattern, meaning = _REST[kind]
    if not pattern.fullmatch(rest):
        raise SecretUnavailable(f"secret source {kind}: takes {meaning}")
    return SourceName(kind, rest)


class SecretSource(Protocol):
    """Gives the secret of this moment: the same object for as long as the value is the same."""

    def current(self) -> Secret:
        """Raises SecretUnavailable. Ask once a request: a second answer may be another secret."""


@dataclass(frozen=True, slots=True)
class HeldSource:
    """A secret that was read at the start, from a variable or a descriptor."""

    name: SourceName
    secret: Secret

    def current(self) -> Secret:
        return self.secret


class FileSource:
    """A file, read at every call: size and times miss a rotation within one tick of the clock.

    A file that is gone or broken gives no secret, not the last good one: removing the file is how a
    person takes a key away.
    """

    __slots__ = ("_last", "name")

    def __init__(self, name: SourceName) -> None:
        self.name = name
        self._last: Secret | None = None

    def current(self) -> Secret:
        text = _read(self.name)
        if self._last is None or not self._last.holds(text.encode("latin-1")):
            self._last = _checked(self.name, text)
        return self._last


def open_source(name: SourceName, environ: Mapping[str, str]) -> SecretSource:
    """The source of that name, read once: a bad one stops the start. Raises SecretUnavailable.

    A descriptor is closed, a variable not looked at again: the caller may wipe the environment.
    """
    match name.kind:
        case SourceKind.ENV:
            return HeldSource(name, _from_environment(name, environ))
        case SourceKind.FILE:
            source = FileSource(name)
            source.current()
            return source
        case SourceKind.FD:
            return HeldSource(name, _checked(name, _read(name)))
        case _:
            assert_never(name.kind)


def _from_environment(name: SourceName, environ: Mapping[str, str]) -> Secret:
    """Nothing is trimmed: a line end in a variable is a mistake that should be seen."""
    if name.rest not in environ:
        raise SecretUnavailable(f"secret source {name} is not set")
    return _checked(name, environ[name.rest])


def _checked(name: SourceName, text: str) -> Secret:
    problem = flaw(text)
    if problem is not None:
        raise SecretUnavailable(f"secret source {name} {problem}")
    return Secret(text)


def _read(name: SourceName) -> str:
    """What a file or descriptor holds. The descriptor is closed in any case."""
    try:
        is_file = name.kind is SourceKind.FILE
        descriptor = os.open(name.rest, _OPEN_FLAGS) if is_file else int(name.rest)
        try:
            if is_file:
                _refuse_replaceable(name, os.fstat(descriptor))
            value = _read_all(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise SecretUnavailable(f"secret source {name} is unreadable: {error.strerror}") from None
    # latin-1 takes every byte: a UnicodeDecodeError would carry the whole value in its `object`.
    return _without_line_end(value).decode("latin-1")


def _refuse_replaceable(name: SourceName, status: os.stat_result) -> None:
    """What every user can write, every user can replace. That every user can read it is how Docker and
    Kubernetes mount secrets, where there is no other user: start-up warns, and goes on."""
    if not stat.S_ISREG(status.st_mode):
        raise SecretUnavailable(f"secret source {name} is not a regular file")
    if status.st_mode & stat.S_IWOTH:
        raise SecretUnavailable(f"secret source {name} can be written by every user: chmod o-w it")


def is_open_to_all(name: SourceName) -> bool:
    """Whether every user of this machine may read the file behind the source."""
    try:
        return name.kind is SourceKind.FILE and bool(os.stat(name.rest).st_mode & stat.S_IROTH)
    except OSError:
        return False


def _read_all(descriptor: int) -> bytes:
    value = b""
    while len(value) < _READ_LIMIT_BYTES and (part := os.read(descriptor, _READ_LIMIT_BYTES)):
        value += part
    return value


def _without_line_end(value: bytes) -> bytes:
    """Without one line end, which editors and `echo` add."""
    return value[:-2] if value.endswith(b"\r\n") else value.removesuffix(b"\n")
