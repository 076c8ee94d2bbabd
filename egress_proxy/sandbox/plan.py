"""What the launcher and the supervisor are told, as values and as the bytes that they read.

They import nothing of ours, so the form is plain: `key=value` entries, each ended by a NUL. Next: launcher.py
and supervisor.py (read a plan), outer.py (reads a recipe), bwrap.py and landlock_rung.py (make both),
descriptors.py (opens what the words stand for).
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PathRule:
    """Landlock access below (or to) one path. A path that is not ``required`` and not there is left out."""

    access: int
    path: str
    required: bool = True


@dataclass(frozen=True, slots=True)
class PortRule:
    """Landlock network access to one TCP port."""

    access: int
    port: int


@dataclass(frozen=True, slots=True)
class LandlockRules:
    """A ruleset, all masks already cut down to what the kernel's ABI knows.

    ``attribute_bytes``: the length of struct landlock_ruleset_attr in that ABI: 8, 16 or 24.
    """

    attribute_bytes: int
    handled_fs: int
    handled_net: int
    scoped: int
    paths: tuple[PathRule, ...]
    ports: tuple[PortRule, ...] = ()


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """What happens between the sandbox's start and the command's exec, in this order.

    ``port``: listen on 127.0.0.1 there and hand the listener out; None: no listener. ``cwd``: where the
    command starts; None: where it is. ``program``: the seccomp filter, struct sock_filter after another.
    """

    port: int | None = None
    landlock: LandlockRules | None = None
    program: bytes = b""
    cwd: str | None = None
    new_session: bool = False
    answer_ms: int = 10_000
    """How long the proxy may take to say that it accepts on the listener."""
    private_tmp: str | None = None
    """The supervisor's alone: the run's TMPDIR, which it makes and removes. Canonical, and not there yet."""
    mount_points: tuple[str, ...] = ()
    writable_places: Mapping[str, str] = field(default_factory=dict)
    """bwrap's alone: what must be mounted, and what may be writable, as mount_check.py compares it."""

    def encode(self) -> bytes:
        return encode(self._entries())

    def _entries(self) -> Iterable[tuple[str, str]]:
        if self.port is not None:
            yield "port", str(self.port)
            yield "answer_ms", str(self.answer_ms)
        if self.landlock is not None:
            rules = self.landlock
            masks = (rules.attribute_bytes, rules.handled_fs, rules.handled_net, rules.scoped)
            yield "ruleset", ":".join(map(str, masks))
            for path in rules.paths:
                yield "path" if path.required else "path?", f"{path.access}:{path.path}"
            for port in rules.ports:
                yield "tcp", f"{port.access}:{port.port}"
        if self.program:
            yield "program", self.program.hex()
        if self.cwd is not None:
            yield "cwd", self.cwd
        if self.new_session:
            yield "session", "new"
        if self.private_tmp is not None:
            yield "tmp", self.private_tmp
        yield from (("mount", point) for point in self.mount_points)
        for point, place in self.writable_places.items():
            yield "at", point
            yield "place", place


ARGS, LAUNCH, FILTER, CHANNEL, SYNC, ERRORS, STATUS, COMMAND = (
    "@args", "@launch", "@filter", "@channel", "@sync", "@errors", "@status", "@command",
)  # fmt: skip
"""Words of a recipe that stand for a descriptor's number."""
_WORD_CHARACTERS = 120_000
"""Of a recipe on a command line: Linux takes 128 KiB a word (MAX_ARG_STRLEN)."""
LONG_WORDS, LONG_BYTES = 1_000, 65_536
"""A command of more is long: bwrap takes 9,000 words, and the kernel some 2 MB, with ours among them."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one rung is started: an argv in which the words above stand for descriptors, and what those hold.

    ``args``: what ``@args`` reads, NUL-separated (may hold further such words). ``launch``: what ``@launch``
    reads, an encoded LaunchPlan. ``program``: what ``@filter`` reads. ``attach``: the proxy's attach socket,
    which ``@channel`` and ``@sync`` are two descriptors of. ``long_words``: instead of ``words`` and a long
    command behind them; ``@command`` in it reads the command, each word ended by a NUL.

    ``hidden``: folders that the sandbox has its own of, where the command starts in the spawner's folder.
    ``shown``: what is visible in them all the same.
    """

    backend: str
    words: tuple[str, ...]
    args: tuple[str, ...] = ()
    launch: bytes = b""
    program: bytes = b""
    attach: str | None = None
    roots: tuple[str, ...] = ()
    """Folders that must still be what they were when the recipe was made, not a link to somewhere."""
    long_words: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    answer_ms: int = 10_000
    """How long the proxy may take to answer the hello."""

    def on_command_line(
        self,
        kept: Iterable[str],
        variables: Mapping[str, str],
        hello: bytes = b"",
        welcome: bytes = b"",
        withheld: Iterable[str] = (),
    ) -> tuple[str, ...]:
        """The recipe as words for outer.py, where nobody of ours is there to open descriptors.

        ``kept``: names of the environment that the command gets, `LC_*` for all that begin so, but for those
        with one of the ``withheld`` words; ``variables``: what is set besides. ``hello``: the line for the
        attach socket; ``welcome``: how the answer begins when it is a yes.
        """
        environment = (
            *(("keep", name) for name in kept),
            *(("withhold", word) for word in withheld),
            *(("set", f"{name}={value}") for name, value in variables.items()),
        )
        text = encode((*self._entries(hello, welcome), *environment)).hex()
        return tuple(text[at : at + _WORD_CHARACTERS] for at in range(0, len(text), _WORD_CHARACTERS))

    def encoded(self, command: Sequence[str]) -> bytes:
        """What ``@command`` reads for a long command; for others, which follow ``words``, it is empty."""
        encoded = b"".join(os.fsencode(word) + b"\0" for word in command)
        if encoded.count(b"\0") != len(command):
            raise ValueError("a word of the command holds a NUL")
        is_long = len(command) > LONG_WORDS or len(encoded) > LONG_BYTES
        return encoded if is_long and self.long_words else b""

    def _entries(self, hello: bytes, welcome: bytes) -> Iterator[tuple[str, str]]:
        yield from (("word", word) for word in self.words)
        yield from (("long", word) for word in self.long_words)
        yield from (("arg", word) for word in self.args)
        yield from (("launch", self.launch.hex()), ("program", self.program.hex()))
        yield from (("root", root) for root in self.roots)
        yield from (("hidden", folder) for folder in self.hidden)
        yield from (("shown", path) for path in self.shown)
        if self.attach is not None:
            yield from (("attach", self.attach), ("answer_ms", str(self.answer_ms)))
            yield from (("hello", hello.hex()), ("welcome", welcome.hex()))


def interpreter() -> str:
    """Where Python really is: a virtual environment's link may lie in a workspace."""
    return os.path.realpath(sys.executable)


def isolated_python(script: str) -> tuple[str, ...]:
    """A command line for a script of ours: it looks nowhere but in Python's own tree, since a workspace may
    hold a planted ctypes.py, and leaves no bytecode."""
    return (interpreter(), "-I", "-S", "-B", script)


def encode(entries: Iterable[tuple[str, str]]) -> bytes:
    """Entries as the launcher reads them, with an end that shows that none is missing. Raises ValueError
    for a NUL, which no path and no name has."""
    parts = []
    for key, value in (*entries, ("end", "")):
        if "\0" in value or "=" in key:
            raise ValueError(f"{key}: a value holds a NUL")
        parts.append(f"{key}={value}".encode("utf-8", "surrogateescape") + b"\0")
    return b"".join(parts)
