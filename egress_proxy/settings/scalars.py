"""The types of single settings: what a number, a switch or a line of text may be.

No keys and no sources here. Words of a refusal follow the key's name ("... holds a line end"); none
holds the value, which may be a secret in the wrong place. Next: tree.py (the keys).
"""

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from egress_proxy.core.attach_place import SOCKET_PATH_LIMIT_BYTES
from egress_proxy.settings.origins import Text

# The longest path that fits sun_path on Linux is 107 bytes, on macOS 103.
UNIX_PATH_LIMIT_BYTES = SOCKET_PATH_LIMIT_BYTES

_SWITCH_WORDS = {
    **dict.fromkeys(("true", "1", "yes", "on"), True),
    **dict.fromkeys(("false", "0", "no", "off"), False),
}

# float() also takes `1_0`, blanks and digits of other scripts.
_NUMBER = re.compile(r"[0-9]{1,20}(?:\.[0-9]{0,20})?|\.[0-9]{1,20}")
_WHOLE = re.compile(r"[0-9]{1,20}")


def _plain(value: object) -> object:
    return str(value) if isinstance(value, Text) else value


def _float(value: object) -> object:
    if not isinstance(value, Text):
        return value
    return float(value) if _NUMBER.fullmatch(value) else _plain(value)


def _int(value: object) -> object:
    if not isinstance(value, Text):
        return value
    return int(value) if _WHOLE.fullmatch(value) else _plain(value)


def _switch(value: object) -> object:
    return _SWITCH_WORDS.get(value.lower(), _plain(value)) if isinstance(value, Text) else value


def _one_line(value: str) -> str:
    # Values are shown in messages and logs; a path or header with a line end is always a mistake.
    if "\n" in value or "\r" in value:
        raise ValueError("holds a line end")
    return value


def _printable(value: str) -> str:
    if not _one_line(value).isprintable():
        raise ValueError("holds a control character")
    return value


def _entry(value: str) -> str:
    return _one_line(value).strip(" \t")


def _unix_path(value: str) -> str:
    if len(value.encode()) > UNIX_PATH_LIMIT_BYTES:
        raise ValueError(f"is longer than the {UNIX_PATH_LIMIT_BYTES} bytes of a socket's path")
    return value


Seconds = Annotated[
    float,
    Field(strict=True, gt=0, allow_inf_nan=False, description="a number of seconds greater than 0"),
    BeforeValidator(_float),
]
Count = Annotated[
    int,
    Field(strict=True, ge=1, le=10**9, description="a whole number from 1 to 1000000000"),
    BeforeValidator(_int),
]
# 32767 is the most that Linux takes.
KeepAlive = Annotated[
    int,
    Field(strict=True, ge=1, le=32767, description="a whole number of seconds from 1 to 32767"),
    BeforeValidator(_int),
]
PortOrAny = Annotated[
    int,
    Field(strict=True, ge=0, le=65535, description="a port, or 0 for any free one"),
    BeforeValidator(_int),
]
Port = Annotated[
    int,
    Field(strict=True, ge=1, le=65535, description="a port, 1 to 65535"),
    BeforeValidator(_int),
]
Switch = Annotated[bool, Field(strict=True, description="true or false"), BeforeValidator(_switch)]
Line = Annotated[
    str,
    Field(strict=True, description="a text of one line"),
    AfterValidator(_printable),
    BeforeValidator(_plain),
]
# Blanks round an entry come from lists in scripts; inside they are an error of the entry's grammar.
Entry = Annotated[
    str,
    Field(strict=True, description="a host, HOST or HOST:PORT"),
    AfterValidator(_entry),
    BeforeValidator(_plain),
]
UnixPath = Annotated[Line, AfterValidator(_unix_path)]
Label = Annotated[
    str,
    Field(
        strict=True,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\z",
        description="a name of letters, digits, dots, - and _",
    ),
    BeforeValidator(_plain),
]
# Where a secret is, never the secret: cli/secret_source.py reads it.
SecretReference = Annotated[
    str,
    Field(strict=True, min_length=1, description="where a secret is, such as env:NAME"),
    BeforeValidator(_plain),
]


def _not_yet(value: object) -> object:
    if value in (None, False, ""):
        return value
    raise ValueError("is not available in this version")


# Keys of later versions: refused by name, so that nobody takes them for settings that work.
NotYet = Annotated[object, BeforeValidator(_not_yet)]
SwitchNotYet = Annotated[Switch, AfterValidator(_not_yet)]
