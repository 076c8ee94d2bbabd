"""The filter installed for real, by the launcher: what a command then gets from this kernel."""

import json
import platform
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from egress_proxy.sandbox import seccomp
from egress_proxy.sandbox.seccomp import Network, Surroundings
from tests.support.locked import run_locked, run_python

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="seccomp is of Linux")

TRY = """
import errno, json, os, socket, sys
def outcome(attempt):
    try:
        attempt()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"
def say(**attempts):
    print(json.dumps({name: outcome(attempt) for name, attempt in attempts.items()}))
"""
DONE, EPERM = "done", "EPERM"


def attempted(network: Network, source: str, *arguments: str, own: bool = False) -> dict[str, str]:
    """What became of each attempt that the source hands to `say`."""
    program = seccomp.program(platform.machine(), Surroundings(network, own_ipc=own, own_pids=own))
    said: dict[str, str] = json.loads(run_python(TRY + source, *arguments, program=program))
    return said


def test_only_streams_are_left_of_the_hosts_sockets() -> None:
    assert attempted(
        Network.STREAMS,
        """say(
        tcp=lambda: socket.socket(), tcp6=lambda: socket.socket(socket.AF_INET6),
        udp=lambda: socket.socket(type=socket.SOCK_DGRAM), mptcp=lambda: socket.socket(proto=262),
        files=lambda: socket.socket(socket.AF_UNIX), vsock=lambda: socket.socket(socket.AF_VSOCK),
        listen=lambda: socket.socket().listen(),
        fast_open=lambda: socket.socket().sendto(b"x", socket.MSG_FASTOPEN, ("127.0.0.1", 9)),
        routes=lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0),
        )""",
    ) == {
        "tcp": DONE,
        "tcp6": DONE,
        "udp": EPERM,
        "mptcp": EPERM,
        "files": EPERM,
        "vsock": EPERM,
        "listen": EPERM,
        "fast_open": EPERM,
        "routes": DONE,
    }


def test_a_pair_of_sockets_reaches_no_socket_file(tmp_path: Path) -> None:
    path = str(tmp_path / "daemon")
    reach = """
    def reach(kind):
        ours, theirs = socket.socketpair(type=kind)
        ours.sendto(b"found", sys.argv[1])
    say(datagrams=lambda: reach(socket.SOCK_DGRAM), stream=lambda: reach(socket.SOCK_STREAM))
    """
    source = "\n".join(line.removeprefix("    ") for line in reach.splitlines())
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as daemon:
        daemon.bind(path)
        daemon.setblocking(False)
        unconfined = subprocess.run(
            [sys.executable, "-c", TRY + source, path], capture_output=True, check=True
        )
        assert json.loads(unconfined.stdout)["datagrams"] == DONE
        assert daemon.recv(9) == b"found"
        assert attempted(Network.OWN_NAMESPACE, source, path, own=True)["datagrams"] == EPERM
        assert attempted(Network.OWN_NAMESPACE, source, path, own=True)["stream"] == "EISCONN"
        with pytest.raises(BlockingIOError):
            daemon.recv(9)


def test_a_tcp_socket_sends_nowhere_but_where_it_connects() -> None:
    assert attempted(
        Network.SUPERVISED,
        """
one, route = socket.socket(), bytes([131, 7, 4, 203, 0, 113, 7, 0])
say(
    source_route=lambda: one.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, route),
    device=lambda: one.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo"),
    group=lambda: one.setsockopt(socket.IPPROTO_IP, 42, bytes(136)),
    no_delay=lambda: one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    keep_alive=lambda: one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    reuse=lambda: one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1),
    service=lambda: one.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 16),
)""",
    ) == {
        "source_route": EPERM,
        "device": EPERM,
        "group": EPERM,
        "no_delay": DONE,
        "keep_alive": DONE,
        "reuse": DONE,
        "service": DONE,
    }


def test_connects_fail_when_no_supervisor_answers() -> None:
    source = 'say(connect=lambda: socket.create_connection(("127.0.0.1", 9)))'
    assert attempted(Network.SUPERVISED, source) == {"connect": "ENOSYS"}


def test_no_set_id_bit_is_left_behind_and_other_modes_are(tmp_path: Path) -> None:
    said = attempted(
        Network.OWN_NAMESPACE,
        """
os.chdir(sys.argv[1])
os.close(os.open("plain", os.O_CREAT | os.O_WRONLY, 0o755))
say(
    chmod=lambda: os.chmod("plain", 0o4755), fchmod=lambda: os.fchmod(os.open("plain", 0), 0o6755),
    group=lambda: os.open("grouped", os.O_CREAT | os.O_WRONLY, 0o2755),
    create=lambda: os.open("made", os.O_CREAT | os.O_WRONLY, 0o4755), node=lambda: os.mknod("node", 0o104755),
    folder=lambda: os.mkdir("folder", 0o4755),
    unnamed=lambda: os.open(".", os.O_TMPFILE | os.O_RDWR, 0o4755),
    sticky=lambda: os.mkdir("sticky", 0o1777), harmless=lambda: os.chmod("plain", 0o700),
    shared=lambda: os.mkdir("shared", 0o2755) or os.chmod("shared", 0o2775),
)""",
        str(tmp_path),
    )
    assert said.pop("sticky") == said.pop("harmless") == said.pop("shared") == DONE
    assert set(said.values()) == {EPERM}
    assert {path.name for path in tmp_path.iterdir()} == {"plain", "sticky", "shared"}
    assert (tmp_path / "shared").stat().st_mode & 0o7777 == 0o2775


def test_other_processes_limits_are_left_alone() -> None:
    said = attempted(
        Network.NONE,
        """
import resource
limit = resource.RLIMIT_CORE
say(
    own=lambda: resource.setrlimit(limit, resource.getrlimit(limit)), nice=lambda: os.nice(1),
    parent=lambda: resource.prlimit(os.getppid(), limit),
    everyone=lambda: os.setpriority(os.PRIO_USER, 0, os.getpriority(os.PRIO_USER, 0)),
    affinity=lambda: os.sched_setaffinity(os.getppid(), os.sched_getaffinity(0)),
)""",
    )
    assert said == {"own": DONE, "nice": DONE, "parent": EPERM, "everyone": EPERM, "affinity": EPERM}


def test_no_namespace_and_no_ring_can_be_made() -> None:
    source = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def call(*words):
    if libc.syscall(*words) < 0:
        raise OSError(ctypes.get_errno(), "")
unshare = 272 if os.uname().machine == "x86_64" else 97
say(
    user=lambda: call(unshare, 0x10000000), uring=lambda: call(425, 1, None),
    clone3=lambda: call(435, None, 0), openat2=lambda: call(437, -100, b"/", None, 0),
    tree=lambda: call(428, -100, b"/", 1), tree_attributes=lambda: call(467, -100, b"/", 1, 0, 0),
)
"""
    assert attempted(Network.OPEN, source, own=True) == {
        "user": EPERM,
        "uring": EPERM,
        "clone3": "ENOSYS",
        "openat2": "ENOSYS",
        "tree": EPERM,
        "tree_attributes": EPERM,
    }


def test_threads_and_children_and_pools_work() -> None:
    source = """
import concurrent.futures, multiprocessing, subprocess, threading
if __name__ == "__main__":
    thread = threading.Thread(target=print, args=("thread",), kwargs={"flush": True})
    thread.start()
    thread.join()
    subprocess.run(["sh", "-c", "sleep 0 & wait; echo shell | cat"], check=True)
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=theirs.send, args=("child",))
    child.start()
    print(ours.recv(), flush=True)
    child.join()
"""
    program = seccomp.program(platform.machine(), Surroundings(Network.NONE, own_ipc=True, own_pids=True))
    assert run_python(source, program=program).split() == ["thread", "shell", "child"]


FOREIGN = {
    # mov eax, 20 (getpid of i386); int 0x80; ret
    "i386": "code = b'\\xb8\\x14\\0\\0\\0\\xcd\\x80\\xc3'",
    # mov eax, 0x40000027 (getpid of x32); syscall; ret
    "x32": "code = b'\\xb8\\x27\\0\\0\\x40\\x0f\\x05\\xc3'",
}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="Linux on x86-64 has these tables")
@pytest.mark.parametrize("table", FOREIGN)
def test_a_call_through_another_table_ends_the_process(table: str) -> None:
    call = (
        "import ctypes, mmap\n"
        + FOREIGN[table]
        + """
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(code)
ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
"""
    )
    program = seccomp.program("x86_64", Surroundings(Network.OPEN, own_ipc=True, own_pids=True))
    ended = run_locked([sys.executable, "-I", "-c", call], program=program)
    # SIGSEGV: a kernel that has no such table at all.
    assert -ended.returncode in {signal.SIGSYS, signal.SIGSEGV}
