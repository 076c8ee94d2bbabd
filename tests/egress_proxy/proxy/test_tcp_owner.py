"""Whose a TCP connection is: this user's, another's, nobody's any more; which listeners others reach."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from egress_proxy.proxy import tcp_owner
from egress_proxy.proxy.tcp_owner import is_in_own_network, peer_uid
from tests.support.ordinary_user import UID

FAMILIES = [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="cannot be installed here: another user")


@contextlib.contextmanager
def listening(family: int, host: str) -> Iterator[socket.socket]:
    with socket.socket(family) as listener:
        listener.bind((host, 0))
        listener.listen()
        yield listener


@pytest.mark.parametrize(("family", "host"), FAMILIES)
@pytest.mark.parametrize("way", ["netlink", "listing"])
def test_a_connection_of_our_own_is_ours_until_it_is_let_go_of(
    family: int, host: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "listing":  # as where a container's filter refuses the question

        def refuse(*_: object) -> None:
            raise PermissionError

        monkeypatch.setattr(tcp_owner, "_by_netlink", refuse)
    with listening(family, host) as listener:
        with socket.create_connection(listener.getsockname()[:2]) as client:
            accepted, _ = listener.accept()
            assert peer_uid(accepted) == os.geteuid()
            client.shutdown(socket.SHUT_WR)
            assert peer_uid(accepted) == os.geteuid()
        # What the kernel says of it now is user 0, whoever it was.
        assert peer_uid(accepted) is None
        accepted.close()


@needs_root
@pytest.mark.parametrize(("family", "host"), FAMILIES)
def test_another_users_connection_is_theirs(family: int, host: str) -> None:
    script = "import socket, sys; c = socket.create_connection((sys.argv[1], int(sys.argv[2]))); c.recv(1)"
    with listening(family, host) as listener:
        words = ("/usr/bin/python3", "-I", "-c", script, host, str(listener.getsockname()[1]))
        with subprocess.Popen(words, user=UID, group=UID, extra_groups=()) as process:
            accepted, _ = listener.accept()
            assert peer_uid(accepted) == UID
            accepted.close()
            process.wait(10)


@pytest.mark.parametrize(("family", "host"), FAMILIES)
def test_a_connection_that_is_over_is_nobodys(family: int, host: str) -> None:
    with listening(family, host) as listener, socket.create_connection(listener.getsockname()[:2]):
        accepted, _ = listener.accept()
        accepted.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            accepted.getpeername()
        assert peer_uid(accepted) is None


@pytest.mark.parametrize(("family", "host"), FAMILIES)
def test_a_listener_of_this_network_can_be_reached_by_others(family: int, host: str) -> None:
    with listening(family, host) as listener:
        assert is_in_own_network(listener)


@needs_root
def test_a_listener_of_a_network_of_its_own_cannot() -> None:
    """At the very port where another listens here."""
    script = (
        "import socket, subprocess, sys; subprocess.run(('ip', 'link', 'set', 'lo', 'up'), check=True);"
        " s = socket.socket(); s.bind(('127.0.0.1', int(sys.argv[1]))); s.listen();"
        " socket.send_fds(socket.socket(fileno=int(sys.argv[2])), [b'L'], [s.fileno()])"
    )
    ours, theirs = socket.socketpair()
    with listening(*FAMILIES[0]) as here, ours, theirs:
        port, number = str(here.getsockname()[1]), str(theirs.fileno())
        words = ("unshare", "--net", sys.executable, "-c", script, port, number)
        subprocess.run(words, pass_fds=(theirs.fileno(),), check=True, timeout=30)
        _, [descriptor], _, _ = socket.recv_fds(ours, 1, 1)
        with socket.socket(fileno=descriptor) as listener:
            assert listener.getsockname() == here.getsockname()
            assert not is_in_own_network(listener)
            assert is_in_own_network(here)
