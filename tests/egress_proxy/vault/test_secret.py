"""What a Secret refuses to be, and the ways in which it shows nothing.

No sources here. That reveal() has one caller is checked in tests/test_layout.py.
See egress_proxy/vault/secret.py.
"""

import copy
import dataclasses
import json
import pickle
from collections.abc import Callable

import pytest

from egress_proxy.vault.secret import LIMIT_CHARACTERS, Secret, flaw

VALUE = "sk-CANARY-123"

UNFIT = [
    ("", "is empty"),
    ("CANARY\n", "holds a line end"),
    ("CANARY\r\nX: 1", "holds a line end"),
    ("CANARY\r", "holds a line end"),
    ("CANARY\0", "holds a control character"),
    ("CANARY\tx", "holds a control character"),
    ("CANARY\x1b[2J", "holds a control character"),
    ("CANARY\x7f", "holds a control character"),
    ("CANARYé", "holds a character that is not ASCII"),
    ("CANARY\udcff", "holds a character that is not ASCII"),
    (" CANARY", "begins or ends with a blank"),
    ("CANARY ", "begins or ends with a blank"),
    (" ", "begins or ends with a blank"),
    ("C" * (LIMIT_CHARACTERS + 1), f"is longer than {LIMIT_CHARACTERS} characters"),
]


@dataclasses.dataclass
class Owner:
    secret: Secret


@pytest.mark.parametrize("value", [VALUE, "a", "Bearer a b", "~!\"#%\\{}'", "C" * LIMIT_CHARACTERS])
def test_a_printable_ascii_value_is_revealed_as_it_was_given(value: str) -> None:
    assert Secret(value).reveal() == value


@pytest.mark.parametrize(("value", "words"), UNFIT)
def test_an_unfit_value_is_refused_in_words_that_do_not_quote_it(value: str, words: str) -> None:
    assert flaw(value) == words
    with pytest.raises(ValueError, match="the secret ") as refused:
        Secret(value)
    assert refused.value.args == (f"the secret {words}",)


@pytest.mark.parametrize(
    "show",
    [
        repr,
        str,
        ascii,
        format,
        "{}".format,
        "{0!r:>40}".format,
        "%s".__mod__,
        lambda secret: repr({"secret": [secret]}),
        lambda secret: repr(Owner(secret)),
        lambda secret: repr(ValueError(secret)),
    ],
)
def test_no_way_of_printing_shows_the_value(show: Callable[[Secret], str]) -> None:
    text = show(Secret(VALUE))
    assert "CANARY" not in text
    assert "***" in text


@pytest.mark.parametrize(
    "take",
    [
        *(lambda secret, n=n: pickle.dumps(secret, n) for n in range(pickle.HIGHEST_PROTOCOL + 1)),
        copy.copy,
        copy.deepcopy,
        json.dumps,
        vars,
        dataclasses.asdict,
        lambda secret: dataclasses.asdict(Owner(secret)),
        lambda secret: secret.__reduce__(),
        lambda secret: secret.__getstate__(),
        lambda secret: format(secret, ">20"),
        list,
        bytes,
        len,
    ],
)
def test_a_secret_cannot_be_copied_pickled_or_taken_apart(take: Callable[[object], object]) -> None:
    with pytest.raises(TypeError) as refused:
        take(Secret(VALUE))
    assert "CANARY" not in str(refused.value)


def test_secrets_of_one_value_are_neither_equal_nor_of_one_hash() -> None:
    one, two = Secret(VALUE), Secret(VALUE)
    assert one != two
    assert len({one, two, VALUE}) == 3
    assert hash(one) != hash(VALUE)


@pytest.mark.parametrize("value", [b"", b"sk-CANARY-12", b"sk-CANARY-1234", b"SK-canary-123", b"\xff"])
def test_a_secret_holds_its_own_value_and_no_other(value: bytes) -> None:
    assert not Secret(VALUE).holds(value)
    assert Secret(VALUE).holds(VALUE.encode())
