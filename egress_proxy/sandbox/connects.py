"""Makes the connects of a supervised command: to the proxy, and to nothing else. And opens its own terminals.

The command's filter hands each connect(2) over and holds the caller until it is answered: seccomp_unotify(2).
The address it gave decides the answer and is never used: the caller's own socket is taken with pidfd_getfd
and connected to one constant address, so there is nothing to swap between check and use. The same with the
master of a pty: what is opened is its own terminal, whatever else the caller says. Next: supervisor.py.
"""

import _socket
import _thread
import ctypes
import errno
import os
import select
import struct

if __package__:
    from egress_proxy.sandbox import launcher
else:  # supervisor.py runs as a script and has put this folder on the path
    import launcher  # type: ignore[import-not-found,no-redef]

# A connect to a full queue blocks its thread; when all do, further callers wait as they would without us.
WORKERS = 16

# linux/seccomp.h
FLAG_NEW_LISTENER, FLAG_WAIT_KILLABLE_RECV = 1 << 3, 1 << 5
NOTIF_RECV, NOTIF_SEND, NOTIF_ID_VALID = 0xC0502100, 0xC0182101, 0x40082102
NOTICE = struct.Struct("=QIIiIQ3Q24x")  # seccomp_notif: id, tid, flags, then seccomp_data with six arguments
ANSWER = struct.Struct("=QqiI")  # seccomp_notif_resp: id, value, error, flags
# asm/unistd.h, one number on every machine
SYS_PIDFD_OPEN, SYS_PIDFD_GETFD = 434, 438

NOTIF_ADDFD, ADDFD_FLAG_SEND = 0x40182103, 1 << 1
ADD = struct.Struct("=QIIII")  # seccomp_notif_addfd: id, flags, descriptor here, there (any), its flags
SYS_IOCTL = {"x86_64": 16, "aarch64": 29}
TIOCGPTPEER = 0x5441  # asm-generic/ioctls.h

ADDRESS_BYTES = 16  # sizeof(struct sockaddr_in)


def loopback(port: int) -> bytes:
    """struct sockaddr_in of 127.0.0.1, without the zeros at its end, which callers may leave unset."""
    return struct.pack("=H", _socket.AF_INET) + struct.pack("!H4B", port, 127, 0, 0, 1)


def supervised_filter(program: bytes) -> int:
    """Install the filter on this thread; answers the descriptor that its notifications are read from."""
    try:  # else every signal of a Go program restarts its connect, which has been made already
        return launcher.filter_calls(program, FLAG_NEW_LISTENER | FLAG_WAIT_KILLABLE_RECV)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return launcher.filter_calls(program, FLAG_NEW_LISTENER)  # before Linux 5.19


def take_descriptor(pidfd: int, number: int) -> int:
    """A copy of another process's descriptor. Needs ptrace rights over it: containers may refuse that."""
    return launcher.system_call(SYS_PIDFD_GETFD, pidfd, number, 0)


def take_from(process: int, number: int) -> int:
    """The same of a process that is ours to wait for, so that its number cannot be another's meanwhile."""
    pidfd = launcher.system_call(SYS_PIDFD_OPEN, process, 0)
    try:
        return take_descriptor(pidfd, number)
    finally:
        os.close(pidfd)


class Connects:
    """``asked``: the port on 127.0.0.1 that the command may name; ``port``: where its connects go instead."""

    def __init__(self, notifications: int, asked: int, port: int) -> None:
        self._notifications = notifications
        self._asked = loopback(asked)
        self._address = loopback(port).ljust(ADDRESS_BYTES, b"\0")

    def start(self) -> None:
        """Threads that end with the process, or with the last one that has the filter."""
        for _ in range(WORKERS):
            _thread.start_new_thread(self._serve, ())

    def _serve(self) -> None:
        while True:
            notice = ctypes.create_string_buffer(NOTICE.size)  # the kernel wants zeros
            try:
                self._control(NOTIF_RECV, notice)
            except OSError:  # a caller that is gone again, or all of them
                if self._ended():
                    return
                continue
            self._answer(*NOTICE.unpack(notice.raw))

    def _ended(self) -> bool:
        hang_up = select.poll()
        hang_up.register(self._notifications, 0)
        return bool(hang_up.poll(0))

    def _answer(self, notice: int, thread: int, *call: int) -> None:
        _flags, number, _machine, _instruction, descriptor, pointer, third = call
        error, is_answered = errno.EPERM, False
        try:
            if number == SYS_IOCTL.get(os.uname().machine):
                self._open_terminal(notice, thread, descriptor, third)
                is_answered = True
            else:
                error = self._connect(notice, thread, descriptor, pointer, third)
        except OSError as failure:
            error = failure.errno or errno.EPERM
        finally:  # whatever happens here, nobody waits for ever
            if not is_answered:
                self._send(notice, error)

    def _connect(self, notice: int, thread: int, descriptor: int, pointer: int, length: int) -> int:
        """The errno for the caller, 0 for a connection."""
        if length & 0xFFFFFFFF < ADDRESS_BYTES or not read_memory(thread, pointer).startswith(self._asked):
            return errno.EPERM
        taken = self._take(notice, thread, descriptor)
        try:
            failed = launcher.libc.connect(taken, self._address, ADDRESS_BYTES)
            return ctypes.get_errno() if failed else 0
        finally:
            os.close(taken)

    def _open_terminal(self, notice: int, thread: int, master: int, flags: int) -> None:
        """The caller gets it as the answer. Never ours: O_NOCTTY."""
        taken = self._take(notice, thread, master)
        try:
            mode = ctypes.c_long(flags & (os.O_ACCMODE | os.O_NONBLOCK) | os.O_NOCTTY | os.O_CLOEXEC)
            peer = launcher.checked(launcher.libc.ioctl(taken, ctypes.c_ulong(TIOCGPTPEER), mode))
        finally:
            os.close(taken)
        try:
            self._control(NOTIF_ADDFD, ADD.pack(notice, ADDFD_FLAG_SEND, peer, 0, flags & os.O_CLOEXEC))
        finally:
            os.close(peer)

    def _take(self, notice: int, thread: int, descriptor: int) -> int:
        pidfd = launcher.system_call(SYS_PIDFD_OPEN, thread_group(thread), 0)
        try:
            # Still waiting, so what was read and opened was of this caller and not of a later one's number.
            self._control(NOTIF_ID_VALID, struct.pack("=Q", notice))
            return take_descriptor(pidfd, descriptor & 0xFFFFFFFF)
        finally:
            os.close(pidfd)

    def _send(self, notice: int, error: int) -> None:
        try:
            self._control(NOTIF_SEND, ANSWER.pack(notice, 0, -error, 0))
        except OSError:  # the caller was killed meanwhile
            return

    def _control(self, request: int, argument: bytes | ctypes.Array[ctypes.c_char]) -> None:
        libc = launcher.libc
        launcher.checked(libc.ioctl(self._notifications, ctypes.c_ulong(request), argument))


def read_memory(thread: int, pointer: int) -> bytes:
    """What stands at a caller's address pointer; raises OSError with EFAULT where nothing does."""
    memory = os.open(f"/proc/{thread}/mem", os.O_RDONLY)
    try:
        return os.pread(memory, ADDRESS_BYTES, pointer)
    except (OSError, OverflowError) as error:
        raise OSError(errno.EFAULT, os.strerror(errno.EFAULT)) from error
    finally:
        os.close(memory)


def thread_group(thread: int) -> int:
    """The process of a thread: pidfd_open takes no other."""
    with open(f"/proc/{thread}/status", "rb") as stream:
        for line in stream:
            if line.startswith(b"Tgid:"):
                return int(line.split()[1])
    raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
