"""A composed data port fails its test for whatever nobody expected, and leaves nothing behind.

What the product does is not tested here.
"""

from __future__ import annotations

import os
import socket

import pytest

from egress_proxy.core.events import Decided, Faulted
from egress_proxy.proxy.connection import Connection
from tests.support.byte_stream import End, read_end
from tests.support.data_port import DataPort
from tests.support.proc_figures import open_descriptors
from tests.support.service_answers import connect_request


async def _break(self: Connection) -> None:
    await self.stream.receive()
    raise RuntimeError("nobody expected this")


def _meet_the_fault(port: DataPort) -> None:
    sock = port.open()
    sock.sendall(b"x")
    assert read_end(sock) is not End.OPEN


def test_a_fault_in_a_connection_fails_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "serve", _break)
    port = DataPort()
    port.__enter__()
    _meet_the_fault(port)
    with pytest.raises(AssertionError, match="RuntimeError"):
        port.__exit__(None, None, None)


def test_a_fault_that_is_expected_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "serve", _break)
    with DataPort(expect_faults=True) as port:
        _meet_the_fault(port)
        assert [event.error for event in port.log.wait_for(Faulted)] == ["RuntimeError"]


def test_an_error_that_reaches_the_loop_fails_the_block() -> None:
    def fail() -> None:
        raise RuntimeError("nobody expected this")

    port = DataPort()
    port.__enter__()
    port.call(lambda: port.loop.call_soon(fail))
    port.call(lambda: None)
    with pytest.raises(AssertionError, match="nobody expected this"):
        port.__exit__(None, None, None)


def test_a_failing_test_is_told_what_the_port_saw() -> None:
    port = DataPort()
    port.__enter__()
    assert port.ask(connect_request("evil.test:443")).status == 403
    port.log.wait_for(Decided)
    failure = AssertionError("the test's own")
    port.__exit__(AssertionError, failure, None)
    assert "evil.test" in "".join(failure.__notes__)


@pytest.mark.parametrize("relay", ["loop", "epoll"])
def test_nothing_is_left_of_a_port(relay: str) -> None:
    with DataPort(relay=relay) as port:  # what Python opens once is open from here on
        port.ask(connect_request("evil.test:443"))
    before = open_descriptors(os.getpid())
    with DataPort(relay=relay) as port:
        port.open()
        port.ask(connect_request("evil.test:443"))
    assert open_descriptors(os.getpid()) == before
    with socket.socket() as late:
        assert late.connect_ex(("127.0.0.1", port.port)) != 0
