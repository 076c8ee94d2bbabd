"""Where options end."""

import pytest

from egress_proxy.safety.values import words_of
from egress_proxy.safety.wrapper_options import after_options
from egress_proxy.safety.wrapper_table import Wrapper


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("-u a X", 2),
        ("-ua X", 1),
        ("-nu a X", 2),
        ("--user a X", 2),
        ("--user=a X", 1),
        ("-- -X", 1),
        ("-n", 1),
        ("X", 0),
        ("-", 0),
    ],
)
def test_values_belong_to_their_options(text: str, at: int) -> None:
    assert after_options(Wrapper("u", ("--user",)), words_of(text.split())) == at


@pytest.mark.parametrize(("text", "at"), [("-it X", 1), ("-v a X", 2), ("--rm X", 1), ("--name a X", 2)])
def test_where_flags_are_listed_other_options_take_a_value(text: str, at: int) -> None:
    assert after_options(Wrapper(flags="it", long_flags=("--rm",)), words_of(text.split())) == at
