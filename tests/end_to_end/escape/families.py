"""Attempts with other kinds of sockets: raw, packet, netlink, vsock, and options that lead astray.

Run inside. Next: network.py, sockets.py (AF_UNIX).
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct

from tests.end_to_end.escape.attempts import Blocked, Escaped, Ground, Kind, attempt

NET = attempt(Kind.NET)
SURFACE = attempt(Kind.SURFACE)
AF_NETLINK, AF_PACKET, AF_ALG, AF_VSOCK = 16, 17, 38, 40
# X25, RDS, CAN, TIPC, Bluetooth, RxRPC, ISDN, NFC, KCM, QIPCRTR, XDP
EXOTIC = (9, 21, 29, 30, 31, 33, 34, 36, 39, 41, 42, 44)


def on_host(ground: Ground, what: str) -> None:
    """In a network of its own these reach nobody."""
    if os.readlink("/proc/self/ns/net") == ground.network_space:
        raise Escaped(f"{what}, in the host's network")
    raise Blocked("only in its own network")


@NET
def sctp_socket(ground: Ground) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132):
        on_host(ground, "an SCTP socket")


@NET
def icmp_ping_socket(ground: Ground) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP) as sock:
        sock.settimeout(1)
        sock.sendto(struct.pack("!BBHHH", 8, 0, 0, 1, 1) + b"x" * 8, ("127.0.0.1", 0))
        sock.recv(100)
    on_host(ground, "a ping was answered")


@NET
def raw_socket(ground: Ground) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP):
        on_host(ground, "a raw socket")


@NET
def packet_socket(ground: Ground) -> None:
    with socket.socket(AF_PACKET, socket.SOCK_RAW, socket.htons(3)):
        on_host(ground, "a packet socket")


@NET
def vsock_socket(ground: Ground) -> None:
    """Reaches the machine that this one is a guest of."""
    with socket.socket(AF_VSOCK, socket.SOCK_STREAM, 0):
        raise Escaped("a vsock socket, not connected")


@SURFACE
def netlink_route(ground: Ground) -> None:
    with socket.socket(AF_NETLINK, socket.SOCK_RAW, 0) as sock:
        sock.bind((0, 0))
        on_host(ground, "interfaces and routes can be read")


@SURFACE
def netlink_other(ground: Ground) -> None:
    with socket.socket(AF_NETLINK, socket.SOCK_RAW, 15):
        raise Escaped("a kobject-uevent socket")


@SURFACE
def netlink_sock_diag(ground: Ground) -> None:
    """Lists the host's connections, and ends them for who may."""
    with socket.socket(AF_NETLINK, socket.SOCK_RAW, 4):
        raise Escaped("a sock_diag socket")


@SURFACE
def af_alg_socket(ground: Ground) -> None:
    with socket.socket(AF_ALG, socket.SOCK_SEQPACKET, 0):
        raise Escaped("the kernel's cryptography")


@SURFACE
def exotic_families(ground: Ground) -> None:
    found = []
    for family in EXOTIC:
        for kind in (1, 2, 3, 5):
            try:
                socket.socket(family, kind, 0).close()
            except OSError:
                continue
            found.append(family)
            break
    if found:
        raise Escaped(f"families {found}")
    raise Blocked(f"none of {len(EXOTIC)}")


def set_option(ground: Ground, level: int, option: int, value: bytes, what: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.setsockopt(level, option, value)
        on_host(ground, what)


@NET
def ip_source_route(ground: Ground) -> None:
    """The first packet goes to the first host of the list, whatever the connect says: IP_OPTIONS."""
    loose = bytes((131, 7, 4, 127, 0, 0, 9, 0))
    set_option(ground, socket.IPPROTO_IP, 4, loose, "a source route")


@NET
def bind_to_device(ground: Ground) -> None:
    set_option(ground, socket.SOL_SOCKET, 25, b"lo\0", "bound to a device")


@SURFACE
def socket_filter_attach(ground: Ground) -> None:
    code = ctypes.create_string_buffer(struct.pack("=HBBI", 6, 0, 0, 0xFFFF))
    program = struct.pack("HP", 1, ctypes.addressof(code))
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, 26, program)
    raise Escaped("a program in the kernel")
