"""What start-up passes in: a token that can be sent, and that shows nowhere."""

import dataclasses

import pytest

from tests.control_api.control_service import TOKEN, ControlService


def test_the_token_is_hidden_from_repr() -> None:
    assert TOKEN not in repr(ControlService().deps())


@pytest.mark.parametrize(
    "token", [b"", b" ", b"a b", b"a\n", b"\ta", b"a\r\nX: 1", b"\xff\xfe", "ä".encode()]
)
def test_a_token_that_no_header_can_carry_is_refused_without_showing_it(token: bytes) -> None:
    with pytest.raises(ValueError, match="control token must be") as caught:
        dataclasses.replace(ControlService().deps(), token=token)
    assert not token.strip() or repr(token)[2:-1] not in str(caught.value)
