"""The settings file: which one, what is in it, and in which line.

Never found through the working directory, where an agent could put one. Next: toml_lines.py (the
lines), short_keys.py (flag names as keys), origins.py (Layer).
"""

import os
import re
import shlex
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass

from egress_proxy.path_trust import open_folder_above, writable_by_others
from egress_proxy.settings.origins import Key, Layer, Origin, SettingsError, Source
from egress_proxy.settings.short_keys import expand
from egress_proxy.settings.toml_lines import find_lines, line_of
from egress_proxy.settings.variables import CONFIG_VARIABLE

# Far above any list of hosts that a person keeps; /dev/zero has no end.
FILE_LIMIT_BYTES = 4 * 1024 * 1024

_WHERE = re.compile(r"\s*\(at (?:line (?P<line>\d+), column \d+|end of document)\)$")


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """``named``: somebody asked for just this one, so it must be there."""

    path: str
    named: bool


def choose_file(flag: str | None, environ: Mapping[str, str]) -> SettingsFile | None:
    """--config, else $EGRESS_CONFIG, else the one in the user's settings folder."""
    named = flag if flag is not None else environ.get(CONFIG_VARIABLE)
    if named:
        return SettingsFile(named, True)
    if flag is not None:
        raise SettingsError("--config must name a file")
    folder = environ.get("XDG_CONFIG_HOME", "")
    # The XDG specification: relative paths there are to be ignored.
    if not os.path.isabs(folder):
        home = environ.get("HOME", "")
        if not os.path.isabs(home):
            return None
        folder = os.path.join(home, ".config")
    return SettingsFile(os.path.join(folder, "egress", "egress.toml"), False)


def file_layer(file: SettingsFile) -> Layer | None:
    """None when a file that nobody named is not there. Raises SettingsError."""
    content = _read(file)
    if content is None:
        return None
    text = _decode(file.path, content)
    expanded = expand(_parse(file.path, text))
    lines = find_lines(text)

    def locate(key: Key) -> Origin:
        line = line_of(expanded.written(key), lines)
        return Origin(Source.FILE, file.path if line is None else f"{file.path}:{line}")

    return Layer(expanded.tree, locate)


def _read(file: SettingsFile) -> bytes | None:
    try:
        # A pipe without a writer would hold us for ever; a terminal too.
        descriptor = os.open(file.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as stream:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise SettingsError(f"the settings file {file.path} is no regular file")
            _refuse_if_open_to_others(file.path, os.fstat(stream.fileno()))
            content = stream.read(FILE_LIMIT_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        if not file.named:
            return None
        raise SettingsError(f"the settings file {file.path} does not exist") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "its name holds a zero byte"
        raise SettingsError(f"the settings file {file.path} is unreadable: {reason}") from None
    if len(content) > FILE_LIMIT_BYTES:
        raise SettingsError(f"the settings file {file.path} is longer than 4 MiB")
    return content


def _refuse_if_open_to_others(path: str, status: os.stat_result) -> None:
    """Whoever can write the file decides what may be reached, with whose credentials."""
    mode = writable_by_others(status)
    if mode is not None:
        raise SettingsError(
            f"the settings file {path} can be written by others (mode {mode}): chmod go-w {shlex.quote(path)}"
        )
    folder = open_folder_above(path)
    if folder is not None:
        raise SettingsError(
            f"the settings file {path} can be replaced by everybody, who may write to {folder} "
            f"(mode {stat.S_IMODE(os.stat(folder).st_mode):04o}): chmod o-w {shlex.quote(folder)}"
        )


def _decode(path: str, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
    raise SettingsError(f"{path}:{line}: not UTF-8 text")


def _parse(path: str, text: str) -> dict[str, object]:
    # tomllib quotes at most a single character of the text, never a value.
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
    except RecursionError:
        message = "lists or tables nest too deep"
    except ValueError:  # what int() says to 5,000 digits
        message = "a number is too long"
    where = _WHERE.search(message)
    line = where["line"] if where and where["line"] else text.rstrip("\n").count("\n") + 1
    raise SettingsError(f"{path}:{line}: not valid TOML: {_WHERE.sub('', message)}")
