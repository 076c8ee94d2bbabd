"""The attach socket: whose folder it may lie in, who goes first, and which descriptors are taken."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from egress_proxy.core.attach import AttachError
from egress_proxy.core.host import parse_authority
from egress_proxy.proxy.attach_socket import Received, adopt, listen_attach, receive
from egress_proxy.proxy.unix_socket import ListenError
from tests.support.proc_figures import open_descriptors


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="eg-"))  # pytest's own paths may be too long for a socket's name
    yield made
    shutil.rmtree(made)


def descriptors() -> int:
    return open_descriptors(os.getpid())


# Its place.


def test_missing_folders_and_the_socket_are_for_their_owner_alone(folder: Path) -> None:
    path = folder / "state" / "egress-proxy" / "attach.sock"
    before = os.umask(0)
    try:
        attach = listen_attach(path)
        assert os.umask(0) == 0
    finally:
        os.umask(before)
    for made in (folder / "state", folder / "state" / "egress-proxy"):
        assert stat.S_IMODE(made.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    attach.close()


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
def test_a_folder_that_others_may_write_to_is_refused(folder: Path, mode: int) -> None:
    folder.chmod(mode)
    before = descriptors()
    with pytest.raises(ListenError, match=r"others may write to its folder .*; chmod go-w it"):
        listen_attach(folder / "attach.sock")
    assert list(folder.iterdir()) == []
    assert descriptors() == before


def test_a_folder_of_another_user_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = os.geteuid()
    monkeypatch.setattr("os.geteuid", lambda: ours + 1)
    with pytest.raises(ListenError, match="belongs to another user"):
        listen_attach(folder / "attach.sock")


def test_a_folder_that_cannot_be_made_is_an_error_that_names_it(folder: Path) -> None:
    (folder / "file").write_text("")
    with pytest.raises(ListenError, match=r"cannot listen on .*/file/attach\.sock"):
        listen_attach(folder / "file" / "attach.sock")


def test_who_listens_there_keeps_it_and_a_stale_socket_is_replaced(folder: Path) -> None:
    path = folder / "attach.sock"
    with listen_attach(path), pytest.raises(ListenError, match="another process is listening there"):
        listen_attach(path)
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))
    with listen_attach(path), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


def test_one_service_at_a_time_looks_whether_a_socket_is_stale(folder: Path) -> None:
    made: list[socket.socket] = []
    second = threading.Thread(target=lambda: made.append(listen_attach(folder / "attach.sock")))
    first = os.open(folder, os.O_RDONLY)
    fcntl.flock(first, fcntl.LOCK_EX)
    second.start()
    second.join(0.2)
    assert made == []
    os.close(first)
    second.join(5)
    made[0].close()


# What comes through it.


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def test_octets_and_descriptors_come_together_and_close_together(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    before = descriptors()
    socket.send_fds(theirs, [b"L"], [0, 1, 2])
    received = receive(ours, 2)
    assert (received.octets, len(received.descriptors), received.cut) == (b"L", 3, False)
    assert not any(map(os.get_inheritable, received.descriptors))
    received.close()
    assert descriptors() == before
    theirs.close()
    assert receive(ours, 2) == Received(b"")


def test_all_that_one_message_can_carry_is_seen_and_closed(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    before = descriptors()
    socket.send_fds(theirs, [b"L"], [0] * 253)
    received = receive(ours, 2)
    assert len(received.descriptors) == 253
    received.close()
    assert descriptors() == before


def listening(host: str, family: int = socket.AF_INET) -> socket.socket:
    return socket.create_server((host, 0), family=family)


@pytest.mark.parametrize(
    ("host", "family"),
    [("127.0.0.1", socket.AF_INET), ("127.9.9.9", socket.AF_INET), ("::1", socket.AF_INET6)],
)
def test_a_tcp_socket_that_listens_on_loopback_is_adopted(host: str, family: int) -> None:
    made = listening(host, family)
    port = made.getsockname()[1]
    listener, target = adopt(made.detach())
    with listener:
        shown = f"[{host}]" if ":" in host else host
        assert target == parse_authority(f"{shown}:{port}")
        assert listener.getblocking() is False


def unix_listener() -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.bind("")  # an abstract name of the kernel's choice
    made.listen()
    return made


def bound(kind: int) -> socket.socket:
    made = socket.socket(socket.AF_INET, kind)
    made.bind(("127.0.0.1", 0))
    return made


def connected() -> socket.socket:
    with listening("127.0.0.1") as server:
        return socket.create_connection(server.getsockname())


NO_LISTENERS: dict[str, Callable[[], socket.socket]] = {
    "a unix listener": unix_listener,
    "unix that is not bound": lambda: socket.socket(socket.AF_UNIX),
    "udp": lambda: bound(socket.SOCK_DGRAM),
    "tcp that does not listen": lambda: bound(socket.SOCK_STREAM),
    "tcp that is connected": connected,
    "every address": lambda: listening("0.0.0.0"),
    "every IPv6 address": lambda: listening("::", socket.AF_INET6),
}


@pytest.mark.parametrize("make", NO_LISTENERS.values(), ids=NO_LISTENERS.keys())
def test_any_other_socket_is_refused_and_closed(make: Callable[[], socket.socket]) -> None:
    before = descriptors()
    with pytest.raises(AttachError, match="no TCP socket that listens on loopback"):
        adopt(make().detach())
    assert descriptors() == before


def test_what_is_no_socket_is_refused_and_closed() -> None:
    before = descriptors()
    with pytest.raises(AttachError, match="no socket"):
        adopt(os.open("/dev/null", os.O_RDONLY))
    assert descriptors() == before
