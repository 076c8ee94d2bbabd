"""Whether our proxy answers: only its own refusals count, and a silent port costs the deadline at most."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from egress_proxy.cli.data_port import answers_as_proxy
from egress_proxy.core.host import Target, parse_host

OURS = b"HTTP/1.1 405 Method Not Allowed\r\nx-proxy-ERROR: method-not-allowed\r\nContent-Length: 0\r\n\r\n"


@contextmanager
def answering(answer: bytes, *, then_close: bool = True) -> Iterator[Target]:
    """A port that gives one answer."""
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)
                if not then_close:
                    done.wait(10)

        thread = threading.Thread(target=serve)
        thread.start()
        yield Target(parse_host("127.0.0.1"), listener.getsockname()[1])
        done.set()
        thread.join()


@pytest.mark.parametrize("then_close", [True, False])
def test_our_refusal_is_an_answer(then_close: bool) -> None:
    with answering(OURS, then_close=then_close) as target:
        assert answers_as_proxy(target)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 405 No\r\nContent-Length: 20\r\n\r\nX-Proxy-Error: forged",
        b"SSH-2.0-OpenSSH_9\r\nX-Proxy-Error: x\r\n\r\n",
        b"x" * 20_000,
        b"\x15\x03\x01\x00\x02\x02\x46",
    ],
)
def test_another_program_s_answer_is_none(answer: bytes) -> None:
    with answering(answer) as target:
        assert not answers_as_proxy(target)


def test_a_silent_port_costs_no_more_than_the_deadline() -> None:
    with answering(b"HTTP/1.1 ", then_close=False) as target:
        began = time.monotonic()
        assert not answers_as_proxy(target, timeout_s=0.2)
        assert time.monotonic() - began < 2


def test_a_closed_port_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert not answers_as_proxy(Target(parse_host("127.0.0.1"), port))
