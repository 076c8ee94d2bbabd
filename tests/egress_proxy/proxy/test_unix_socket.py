"""Unix sockets in the file system: whose they are, what a start replaces, and what an end removes.

Who is heard there is in test_listener.py; the attach socket's own folder in test_attach_socket.py.
"""

import fcntl
import os
import shutil
import socket
import stat
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from egress_proxy.proxy import unix_socket
from egress_proxy.proxy.unix_socket import ListenError, listen_unix
from tests.support.proc_figures import open_descriptors


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="eg-"))  # pytest's own paths may be too long for a socket's name
    yield made
    shutil.rmtree(made)


def left_behind(path: Path) -> None:
    """A socket of a process that was killed."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))


def test_a_unix_socket_is_for_its_owner_alone(folder: Path) -> None:
    path = folder / "data.sock"
    before = os.umask(0)
    try:
        with listen_unix(path):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert stat.S_ISSOCK(path.stat().st_mode)
        assert os.umask(0) == 0  # the process's own mask is as it was
    finally:
        os.umask(before)


def test_a_stale_socket_is_replaced(folder: Path) -> None:
    path = folder / "data.sock"
    left_behind(path)
    with listen_unix(path), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


def test_a_socket_that_somebody_listens_on_is_left_alone(folder: Path) -> None:
    path = folder / "data.sock"
    with listen_unix(path) as first:
        with pytest.raises(ListenError, match="another process is listening there"):
            listen_unix(path)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            first.accept()[0].close()


@pytest.mark.parametrize("kind", ["file", "link to a socket", "link to a file", "folder"])
def test_whatever_else_is_there_is_left_alone(folder: Path, kind: str) -> None:
    path, other = folder / "data.sock", folder / "other"
    if kind == "folder":
        path.mkdir()
    elif kind == "link to a socket":
        left_behind(other)
        path.symlink_to(other.absolute())
    else:
        (other if "link" in kind else path).write_text("precious")
        if "link" in kind:
            path.symlink_to(other.absolute())
    with pytest.raises(ListenError, match="a file that is no socket is there"):
        listen_unix(path)
    assert path.is_symlink() == ("link" in kind)
    assert path.exists()


@pytest.mark.parametrize("name", ["missing/data.sock", "x" * 200])
def test_a_place_where_no_socket_can_be_is_an_error_that_names_it(folder: Path, name: str) -> None:
    before = open_descriptors(os.getpid())
    with pytest.raises(ListenError, match=f"cannot listen on .*{name[:20]}"):
        listen_unix(folder / name)
    assert open_descriptors(os.getpid()) == before


@pytest.mark.parametrize("mode", [0o777, 0o707, 0o702])
@pytest.mark.parametrize("below", ["data.sock", "inner/data.sock"])
def test_a_folder_in_which_everybody_may_replace_it_is_refused(folder: Path, mode: int, below: str) -> None:
    (folder / "inner").mkdir()
    folder.chmod(mode)
    with pytest.raises(ListenError, match=f"everybody may write to {folder} and put another in its place"):
        listen_unix(folder / below)
    assert not (folder / below).exists()


def test_a_folder_behind_a_link_counts(folder: Path) -> None:
    (folder / "open").mkdir()
    (folder / "open").chmod(0o777)
    (folder / "link").symlink_to(folder / "open")
    with pytest.raises(ListenError, match=f"everybody may write to {folder}/(open|link)"):
        listen_unix(folder / "link" / "data.sock")


@pytest.mark.parametrize("mode", [0o1777, 0o770, 0o755])
def test_a_folder_in_which_nobody_else_may_replace_it_is_taken(folder: Path, mode: int) -> None:
    folder.chmod(mode)
    listen_unix(folder / "data.sock").close()


def test_the_end_removes_the_name_once(folder: Path) -> None:
    path = folder / "data.sock"
    sock = listen_unix(path)
    sock.close()
    assert not path.exists()
    left_behind(path)
    sock.close()
    assert path.is_socket()


def test_the_end_leaves_the_socket_of_another_service_alone(folder: Path) -> None:
    path = folder / "data.sock"
    old = listen_unix(path)
    path.unlink()  # as somebody who starts another does it
    with listen_unix(path):
        old.close()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))


def test_neither_start_nor_end_waits_long_for_who_holds_the_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unix_socket, "_LOCK_S", 0.01)
    path = folder / "data.sock"
    sock = listen_unix(path)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        sock.close()
        assert path.is_socket()  # stale, and replaced by the next start
        with pytest.raises(ListenError, match="another process holds its folder"):
            listen_unix(path)
    finally:
        os.close(descriptor)
    listen_unix(path).close()


def test_however_starts_and_ends_overlap_the_one_that_listens_is_reached(folder: Path) -> None:
    """Each end is raced by the next start, which takes the place as soon as it is free."""
    path = folder / "data.sock"
    current = listen_unix(path)
    for _ in range(200):
        ending = threading.Thread(target=current.close)
        ending.start()
        while True:
            try:
                current = listen_unix(path)
                break
            except ListenError:  # the old one still listens
                continue
        ending.join()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
    current.close()
    assert not path.exists()
