"""A port for one user: its own processes are served there, others are turned away in words."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from egress_proxy.core.decision import Reason
from egress_proxy.core.events import Decided
from egress_proxy.proxy.listener import listen_tcp
from tests.conftest import Start
from tests.support.byte_stream import read_exactly
from tests.support.data_port import DataPort
from tests.support.http import read_head
from tests.support.origins import EchoOrigin
from tests.support.service_answers import connect_request


@pytest.fixture
def echo() -> Iterator[EchoOrigin]:
    with EchoOrigin() as origin:
        yield origin


def test_a_port_for_the_same_user_serves_that_user(start: Start, echo: EchoOrigin) -> None:
    port = start(DataPort(allow=[echo.address]))
    with listen_tcp("127.0.0.1", 0) as listener:
        port.call(lambda: port.intake.listen(listener, same_user=True))
        with socket.create_connection(listener.getsockname(), 5) as sock:
            sock.sendall(connect_request(echo.address) + b"HELLO")
            assert read_head(sock).status == 200
            assert read_exactly(sock, 5) == b"HELLO"
    assert port.log.only(Decided).verdict == "allow"


def test_another_user_is_turned_away_from_such_a_port_in_words(
    start: Start, echo: EchoOrigin, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = start(DataPort(allow=[echo.address]))
    ours = os.geteuid()
    with listen_tcp("127.0.0.1", 0) as listener:
        port.call(lambda: port.intake.listen(listener, same_user=True))
        monkeypatch.setattr("os.geteuid", lambda: ours + 1)  # as the service of another user sees us
        with socket.create_connection(listener.getsockname(), 5) as sock:
            assert read_head(sock).status == 407
    refused = port.log.only(Decided)
    assert (refused.reason, refused.status) == (Reason.CLIENT_UNKNOWN, 407)
    assert f"it is of user {ours}, and this port takes" in refused.detail
