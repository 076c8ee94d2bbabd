"""Connects made for another process, with the kernel's own notifications: none waits for another's."""

import contextlib
import os
import socket
import subprocess
import threading
from collections.abc import Iterator

import pytest

from egress_proxy.sandbox import connects
from egress_proxy.sandbox.seccomp import Network
from tests.support import launches
from tests.support.deadline import eventually
from tests.support.launches import PYTHON

ASKED = 8899
# Installs the filter, says its descriptor's number, and goes on when it is told to.
FILTERED = """
import sys; sys.path.append(sys.argv[1])
import connects, launcher, os, socket, threading
launcher.libc.prctl(38, 1, 0, 0, 0)
print(connects.supervised_filter(bytes.fromhex(sys.argv[2])), flush=True)
sys.stdin.readline()
def attempt(port):
    answer = socket.socket().connect_ex(('127.0.0.1', port))
    os.write(1, b'%d %d\\n' % (port, answer))
"""


@contextlib.contextmanager
def filtered(code: str, backlog: int = 100) -> Iterator[tuple[subprocess.Popen[str], socket.socket]]:
    """A process that runs this code with its connects made by threads of ours, and where they go."""
    program = launches.program(Network.SUPERVISED).hex()
    words = [*PYTHON, "-c", FILTERED + code, str(launches.SANDBOX), program]
    before = set(os.listdir("/proc/self/task"))
    with (
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
        socket.create_server(("127.0.0.1", 0), backlog=backlog) as there,
    ):
        assert process.stdout is not None
        notifications = connects.take_from(process.pid, int(process.stdout.readline()))
        connects.Connects(notifications, ASKED, there.getsockname()[1]).start()
        try:
            tell(process, "go")
            yield process, there
        finally:
            process.kill()
    eventually(lambda: set(os.listdir("/proc/self/task")) <= before, what="the threads to end")
    os.close(notifications)


def tell(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def answers(process: subprocess.Popen[str], count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline().rstrip() for _ in range(count)]


def test_the_address_that_is_asked_for_is_not_the_one_that_is_connected_to() -> None:
    with filtered(f"attempt({ASKED}); attempt(int(sys.stdin.readline()))") as (process, there):
        assert answers(process, 1) == [f"{ASKED} 0"]
        there.accept()[0].close()
        port = there.getsockname()[1]
        tell(process, str(port))
        assert answers(process, 1) == [f"{port} 1"]


def test_a_connect_that_waits_for_a_full_queue_holds_nobody_up() -> None:
    code = f"""
for _ in range(6): threading.Thread(target=attempt, args=({ASKED},)).start()
sys.stdin.readline()
for port in (1, 2, 3): attempt(port)
"""
    with filtered(code, backlog=0) as (process, there):
        (first,) = answers(process, 1)  # the queue holds one; the rest wait until the kernel tries again
        assert first == f"{ASKED} 0"
        tell(process, "go")
        assert answers(process, 3) == ["1 1", "2 1", "3 1"]
        accepted = [there.accept()[0] for _ in range(6)]
        assert answers(process, 5) == [f"{ASKED} 0"] * 5
        for connection in accepted:
            connection.close()


def test_a_socket_that_does_not_block_is_told_that_its_connect_goes_on() -> None:
    code = f"""
import errno, select
client = socket.socket(); client.setblocking(False)
first = client.connect_ex(('127.0.0.1', {ASKED}))
select.select([], [client], [])
failed = client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
print(first == errno.EINPROGRESS, failed, client.getpeername()[0], flush=True)
"""
    with filtered(code) as (process, _there):
        assert answers(process, 1) == ["True 0 127.0.0.1"]


def test_signals_do_not_make_a_connect_be_made_twice() -> None:
    """libc's own connect, which the kernel starts again after each handler, as it does for Go programs."""
    code = f"""
import ctypes, signal, struct
signal.signal(signal.SIGALRM, lambda *_: None)
signal.siginterrupt(signal.SIGALRM, False)
signal.setitimer(signal.ITIMER_REAL, .0003, .0003)
libc = ctypes.CDLL(None, use_errno=True)
address = struct.pack('=H', 2) + struct.pack('!H4B8x', {ASKED}, 127, 0, 0, 1)
def connected():
    with socket.socket() as client:
        return libc.connect(client.fileno(), address, 16) and ctypes.get_errno()
print({{connected() for _ in range(1000)}}, flush=True)
"""
    with filtered(code, backlog=4000) as (process, _there):
        assert answers(process, 1) == ["{0}"]


def test_no_descriptor_is_left_of_the_connects_that_were_made() -> None:
    code = f"for _ in range(50): attempt({ASKED}); attempt(1)\nsys.stdin.readline()"
    with filtered(code) as (process, _there):
        before = len(os.listdir("/proc/self/fd"))
        answers(process, 100)
        eventually(lambda: len(os.listdir("/proc/self/fd")) <= before, what="the descriptors to be closed")


def test_the_numbers_are_the_kernels() -> None:
    def request(direction: int, number: int, size: int) -> int:
        return direction << 30 | size << 16 | ord("!") << 8 | number  # asm-generic/ioctl.h, linux/seccomp.h

    assert request(3, 0, connects.NOTICE.size) == connects.NOTIF_RECV
    assert request(3, 1, connects.ANSWER.size) == connects.NOTIF_SEND
    assert request(1, 2, 8) == connects.NOTIF_ID_VALID


def test_a_threads_process_is_found_by_the_threads_number() -> None:
    found: list[int] = []

    def look() -> None:
        found.extend((threading.get_native_id(), connects.thread_group(threading.get_native_id())))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found[0] != found[1]
    assert found[1] == os.getpid()
    with pytest.raises(OSError, match="No such"):
        connects.thread_group(0)
