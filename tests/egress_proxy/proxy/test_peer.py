"""Who is at the other end: the address as text, and the process and user that the kernel vouches for."""

from __future__ import annotations

import os
import socket

import pytest

from egress_proxy.core.access import Client
from egress_proxy.proxy.peer import Owner, Peer, is_own_user, owner_of, peer_of

SANDBOX = Client("sandbox-1")


@pytest.mark.parametrize(
    ("address", "text"),
    [(("127.0.0.1", 5), "127.0.0.1:5"), (("::1", 5, 0, 0), "[::1]:5"), ("", "unix"), (b"", "unix")],
)
def test_an_address_is_shown_as_it_is_written(address: object, text: str) -> None:
    assert peer_of(address) == Peer(text)
    assert peer_of(address, SANDBOX) == Peer(text, SANDBOX)


def test_the_kernel_names_the_process_and_its_user() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert owner_of(ours) == Owner(os.getpid(), os.geteuid())
        assert is_own_user(owner_of(ours))


def test_another_user_is_not_ours_and_where_nobody_says_the_mode_holds() -> None:
    assert not is_own_user(Owner(1, os.geteuid() + 1))
    assert is_own_user(None)
