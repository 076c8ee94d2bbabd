"""What sockets are set to, those that a listener hands on too."""

import select
import socket

import pytest

from egress_proxy.proxy import socket_options
from egress_proxy.proxy.socket_options import TCP_KEEPALIVE_S, prepare, prepare_accepted


def test_a_prepared_socket_waits_for_nothing() -> None:
    for family in (socket.AF_INET, socket.AF_INET6):
        with socket.socket(family) as sock:
            prepare(sock, 7)
            assert not sock.getblocking()
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert sock.getsockopt(socket.IPPROTO_TCP, socket_options._IDLE) == 7


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_an_accepted_socket_is_prepared_like_any_other(host: str) -> None:
    with socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as server:
        prepare(server, 7)
        with socket.create_connection(server.getsockname()[:2]):
            select.select([server], [], [])
            with server.accept()[0] as sock:
                prepare_accepted(sock, 7)
                assert not sock.getblocking()
                assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
                assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                assert sock.getsockopt(socket.IPPROTO_TCP, socket_options._IDLE) == 7
                assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE)


def test_a_quiet_connection_is_probed_within_a_minute() -> None:
    assert TCP_KEEPALIVE_S < 60
    with socket.socket() as sock:
        prepare(sock)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket_options._IDLE) == TCP_KEEPALIVE_S
