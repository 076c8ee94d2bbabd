"""What single values may be: numbers out of text only where everything is text, lines without line ends."""

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from egress_proxy.settings.origins import Text
from egress_proxy.settings.scalars import (
    UNIX_PATH_LIMIT_BYTES,
    Count,
    Entry,
    Label,
    Line,
    NotYet,
    Port,
    PortOrAny,
    Seconds,
    SecretReference,
    Switch,
    SwitchNotYet,
    UnixPath,
)


def read(kind: Any, value: object) -> object:
    return TypeAdapter[object](kind).validate_python(value)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (Seconds, Text("0.5"), 0.5),
        (Seconds, Text(".5"), 0.5),
        (Seconds, Text("10"), 10.0),
        (Seconds, 10, 10.0),
        (Count, Text("4096"), 4096),
        (Count, 1, 1),
        (Port, Text("443"), 443),
        (PortOrAny, Text("0"), 0),
        (Switch, Text("TRUE"), True),
        (Switch, Text("off"), False),
        (Switch, True, True),
        (Line, Text("a b"), "a b"),
        (Entry, Text(" \tapi.example.com "), "api.example.com"),
        (Label, "build-1", "build-1"),
        (UnixPath, "/" + "a" * (UNIX_PATH_LIMIT_BYTES - 1), "/" + "a" * (UNIX_PATH_LIMIT_BYTES - 1)),
        (NotYet, "", ""),
        (NotYet, None, None),
        (SwitchNotYet, Text("false"), False),
    ],
)
def test_a_good_value_is_read(kind: object, value: object, expected: object) -> None:
    result = read(kind, value)
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *[
            (Seconds, Text(text))
            for text in ("0", "-1", "nan", "inf", "1_0", "1e3", "٣", "", " 1", "9" * 400)
        ],
        *[(Seconds, value) for value in (0, -1.5, float("nan"), float("inf"), True, "10", None, [1])],
        *[(Count, Text(text)) for text in ("0", "-1", "1.0", "1_0", "٣", "", "9" * 5000)],
        *[(Count, value) for value in (0, 1.0, True, "1", 10**10)],
        *[(Port, value) for value in (0, 65536, Text("65536"), Text("http"))],
        *[(PortOrAny, value) for value in (-1, 65536, False)],
        *[(Switch, value) for value in (Text("maybe"), "true", 1, 0, None)],
        *[(Line, value) for value in ("a\n", "a\rb", "\x00", "\x1b[2J", "a\u2028b", 5, None)],
        *[(Entry, value) for value in ("a\n", "a\nb", "\ra", 5)],
        *[(Label, value) for value in ("", "-a", "a b", "a\n", "a" * 65, "é", "../x")],
        (UnixPath, "/" + "a" * UNIX_PATH_LIMIT_BYTES),
        (NotYet, "socks5://127.0.0.1:1"),
        (NotYet, 5),
        (SecretReference, ""),
        (SecretReference, 5),
        (SwitchNotYet, Text("true")),
        (SwitchNotYet, True),
    ],
)
def test_a_bad_value_is_refused(kind: object, value: object) -> None:
    with pytest.raises(ValidationError):
        read(kind, value)
