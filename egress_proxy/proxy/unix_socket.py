"""A listening unix socket in the file system, made where nobody can replace it and removed while it is ours.

Of two services one starts while the other ends. Both look and act under a lock on the folder, and an end
looks before it closes its socket: as long as that is open, no other file can have its inode. Who may speak
there is peer.py's. Next: listener.py (accepts), attach_socket.py (a folder of its own).
"""

import contextlib
import errno
import fcntl
import os
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from egress_proxy.path_trust import open_folder_above

BACKLOG = 1024
# Others hold the lock for a few system calls; whoever holds it for longer must not stop a start or an end.
_LOCK_S = 2.0
_LOCK_AT_END_S = 0.2
_LOCK_STEP_S = 0.005

_Identity = tuple[int, int]


class ListenError(Exception):
    """A listener cannot be opened. The message says which and why."""


class UnixListener(socket.socket):
    """Its `close` takes the name out of the file system first, if that is still its own."""

    _place: tuple[Path, _Identity] | None = None

    def bind_at(self, path: Path) -> None:
        """The mode, 0600, is there before the name is: nobody gets in between bind and chmod."""
        before = os.umask(0o177)
        try:
            self.bind(str(path))
        finally:
            os.umask(before)
        self._place = path, _identity_of(path)

    def close(self) -> None:
        if self._place is not None:
            (path, identity), self._place = self._place, None
            with contextlib.suppress(OSError), _locked(path.parent, _LOCK_AT_END_S):
                if _identity_of(path) == identity:
                    path.unlink()
        super().close()


def listen_unix(path: Path) -> UnixListener:
    """A listening socket in the file system, mode 0600; a stale one is replaced. Raises ListenError."""
    path = path.absolute()
    folder = open_folder_above(str(path))
    if folder is not None:
        words = f"everybody may write to {folder} and put another in its place; chmod o-w it, or name another"
        raise ListenError(f"cannot listen on {path}: {words}")
    sock = UnixListener(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _locked(path.parent, _LOCK_S):
            _remove_stale(path)
            sock.bind_at(path)
            sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise ListenError(f"cannot listen on {path}: {(error.strerror or str(error)).lower()}") from None
    sock.setblocking(False)
    return sock


def _identity_of(path: Path) -> _Identity:
    status = path.lstat()
    return status.st_dev, status.st_ino


def _remove_stale(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise OSError(errno.EEXIST, "a file that is no socket is there")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            if probe.connect_ex(str(path)) == 0:
                raise OSError(errno.EADDRINUSE, "another process is listening there")
        path.unlink()


@contextlib.contextmanager
def _locked(folder: Path, limit_s: float) -> Iterator[None]:
    """One service at a time looks and acts here: two would each remove the other's socket."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    end = time.monotonic() + limit_s
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise OSError(errno.EBUSY, "another process holds its folder") from None
                time.sleep(_LOCK_STEP_S)
        yield
    finally:
        os.close(descriptor)
