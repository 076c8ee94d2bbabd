"""The filter as a program: what becomes of a call, on both machines, judged by a BPF machine of the tests."""

import itertools
import platform
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress_proxy.sandbox.seccomp import Network, Surroundings, program, supported
from egress_proxy.sandbox.syscall_numbers import NAMES, Machine, number
from egress_proxy.sandbox.syscall_rules import Action
from tests.support.bpf_machine import run, seccomp_data

ALLOW, REFUSE, UNKNOWN, ASK, KILL = Action
ARCHITECTURES = {Machine.X86_64: 0xC000003E, Machine.AARCH64: 0xC00000B7}
HOST = Surroundings(Network.STREAMS, own_ipc=False, own_pids=False)
SUPERVISED = Surroundings(Network.SUPERVISED, own_ipc=False, own_pids=False)
NONE = Surroundings(Network.NONE, own_ipc=False, own_pids=False)
OPEN = Surroundings(Network.OPEN, own_ipc=True, own_pids=True)
OWN = Surroundings(Network.OWN_NAMESPACE, own_ipc=True, own_pids=True)
EVERYWHERE = [Surroundings(*each) for each in itertools.product(Network, (True, False), (True, False))]
PROGRAMS = {(machine, around): program(machine, around) for machine in Machine for around in EVERYWHERE}

machines = st.sampled_from(Machine)
surroundings = st.sampled_from(EVERYWHERE)
words = st.integers(0, 2**64 - 1)
arguments = st.lists(words, min_size=6, max_size=6)


def judged(machine: Machine, around: Surroundings, number: int, *arguments: int) -> Action:
    given = seccomp_data(ARCHITECTURES[machine], number, arguments)
    return Action(run(PROGRAMS[machine, around], given))


STREAM, DGRAM, RAW, SEQPACKET, CLOEXEC = 1, 2, 3, 5, 0o2000000
UNIX, INET, INET6, NETLINK, PACKET, ALG, VSOCK, XDP, SMC = 1, 2, 10, 16, 17, 38, 40, 44, 43
FASTOPEN = 0x20000000
PRIO_PROCESS, PRIO_USER = 0, 2

CASES: list[tuple[Surroundings, str, tuple[int, ...], Action]] = [
    # Streams of TCP on the host's stack, and nothing that goes past Landlock.
    (HOST, "socket", (INET, STREAM, 0), ALLOW),
    (HOST, "socket", (INET6, STREAM | CLOEXEC, 6), ALLOW),
    (HOST, "socket", (INET, STREAM, 262), REFUSE),  # MPTCP
    (HOST, "socket", (INET, STREAM, 132), REFUSE),  # SCTP
    (HOST, "socket", (INET, STREAM, 256), REFUSE),  # SMC
    (HOST, "socket", (INET, DGRAM, 0), REFUSE),
    (HOST, "socket", (INET6, DGRAM, 17), REFUSE),
    (HOST, "socket", (INET, DGRAM, 1), REFUSE),  # ping
    (HOST, "socket", (INET, RAW, 255), REFUSE),
    (HOST, "socket", (INET, 10, 0), REFUSE),  # SOCK_PACKET
    (HOST, "socket", (INET, 1 << 32 | DGRAM, 0), REFUSE),
    (SUPERVISED, "socket", (INET, STREAM, 6), ALLOW),
    (SUPERVISED, "socket", (INET, DGRAM, 0), REFUSE),
    (NONE, "socket", (INET, STREAM, 0), REFUSE),
    (NONE, "socket", (INET6, STREAM, 0), REFUSE),
    (NONE, "socket", (NETLINK, RAW, 0), ALLOW),
    (OWN, "socket", (INET, DGRAM, 0), ALLOW),
    (OPEN, "socket", (INET6, RAW, 58), ALLOW),
    (OPEN, "socket", (VSOCK, STREAM, 0), REFUSE),
    *((around, "socket", (NETLINK, RAW, 0), ALLOW) for around in (HOST, SUPERVISED, OWN, OPEN)),
    *((around, "socket", (NETLINK, RAW, 9), REFUSE) for around in (HOST, SUPERVISED, OWN, OPEN)),
    # No socket files, not by pairs of datagrams either.
    *((around, "socket", (UNIX, STREAM, 0), REFUSE) for around in EVERYWHERE),
    *((around, "socketpair", (UNIX, STREAM | CLOEXEC, 0), ALLOW) for around in EVERYWHERE),
    *((around, "socketpair", (UNIX, SEQPACKET, 0), ALLOW) for around in EVERYWHERE),
    *((around, "socketpair", (UNIX, DGRAM, 0), REFUSE) for around in EVERYWHERE),
    *((around, "socketpair", (UNIX, RAW, 0), REFUSE) for around in EVERYWHERE),  # becomes a datagram one
    *((OWN, "socket", (family, RAW, 0), REFUSE) for family in (PACKET, ALG, VSOCK, XDP, SMC)),
    # Connects without connect, servers without bind.
    (HOST, "sendto", (3, 0, 0, FASTOPEN, 0, 0), REFUSE),
    (HOST, "sendto", (3, 0, 0, 0x4000, 0, 0), ALLOW),
    (HOST, "sendmsg", (3, 0, FASTOPEN | 0x4000), REFUSE),
    (HOST, "sendmmsg", (3, 0, 1, FASTOPEN), REFUSE),
    (HOST, "listen", (3, 1), REFUSE),
    (OWN, "listen", (3, 1), ALLOW),
    (OPEN, "listen", (3, 1), ALLOW),
    (HOST, "connect", (3,), ALLOW),
    (SUPERVISED, "connect", (3,), ASK),
    # Options that send elsewhere than the address says.
    (SUPERVISED, "setsockopt", (3, 0, 4), REFUSE),  # IP_OPTIONS
    (SUPERVISED, "setsockopt", (3, 0, 42), REFUSE),  # MCAST_JOIN_GROUP
    (SUPERVISED, "setsockopt", (3, 41, 57), REFUSE),  # IPV6_RTHDR
    (SUPERVISED, "setsockopt", (3, 1, 25), REFUSE),  # SO_BINDTODEVICE
    (SUPERVISED, "setsockopt", (3, 6, 31), REFUSE),  # TCP_ULP
    (SUPERVISED, "setsockopt", (3, 1, 50), REFUSE),  # SO_ATTACH_BPF
    (SUPERVISED, "setsockopt", (3, 6, 1), ALLOW),  # TCP_NODELAY
    (SUPERVISED, "setsockopt", (3, 1, 9), ALLOW),  # SO_KEEPALIVE
    (SUPERVISED, "setsockopt", (3, 0, 1), ALLOW),  # IP_TOS
    (SUPERVISED, "setsockopt", (3, 41, 26), ALLOW),  # IPV6_V6ONLY
    (OWN, "setsockopt", (3, 0, 4), ALLOW),
    (OWN, "setsockopt", (3, 1, 26), REFUSE),  # SO_ATTACH_FILTER
    (SUPERVISED, "seccomp", (1, 1 << 3, 0), REFUSE),  # a listener of its own
    (SUPERVISED, "seccomp", (1, 1, 0), ALLOW),
    # Namespaces.
    *((OWN, "unshare", (flag,), REFUSE) for flag in (0x10000000, 0x40000000, 0x20000, 0x80)),
    (OWN, "unshare", (0x400,), ALLOW),  # CLONE_FILES
    (OWN, "clone", (0x10000000 | 17,), REFUSE),
    (OWN, "clone", (0x01200011,), ALLOW),  # fork
    (OWN, "clone", (0x003D0F00,), ALLOW),  # a thread
    (OWN, "clone3", (), UNKNOWN),
    (OWN, "openat2", (), UNKNOWN),
    # Mode bits, where there is a mode.
    (OWN, "fchmod", (3, 0o4755), REFUSE),
    (OWN, "fchmod", (3, 0o1777), ALLOW),
    (OWN, "socket", (INET, STREAM, 6), ALLOW),
    (OWN, "socket", (INET, 2, 17), ALLOW),
    (OWN, "socket", (INET, 2, 1), ALLOW),  # ping
    (OWN, "socket", (INET, STREAM, 262), REFUSE),  # MPTCP
    (OWN, "socket", (INET, STREAM, 132), REFUSE),  # SCTP
    (OWN, "socket", (INET, 2, 136), REFUSE),  # UDP-Lite
    (OWN, "socket", (INET, 2, 115), REFUSE),  # L2TP
    (OWN, "socket", (INET, 6, 33), REFUSE),  # DCCP
    (OWN, "fcntl", (3, 1024, 0), REFUSE),  # F_SETLEASE
    (OWN, "fcntl", (3, 2, 1), ALLOW),
    (OWN, "renameat2", (3, 0, 3, 0, 4), REFUSE),  # RENAME_WHITEOUT
    (OWN, "renameat2", (3, 0, 3, 0, 2), ALLOW),  # RENAME_EXCHANGE
    (OWN, "fchmodat", (3, 0, 0o2755), ALLOW),
    (OWN, "fchmodat2", (3, 0, 0o6000, 0), REFUSE),
    (OWN, "mkdirat", (3, 0, 0o2755), ALLOW),
    (OWN, "mkdirat", (3, 0, 0o4755), REFUSE),
    (OWN, "mknodat", (3, 0, 0o102755, 0), REFUSE),
    (OWN, "openat", (3, 0, 0o100, 0o2755), REFUSE),
    (OWN, "openat", (3, 0, 0o100, 0o2644), ALLOW),
    (OWN, "openat", (3, 0, 0, 0o2755), ALLOW),
    (OWN, "mknodat", (3, 0, 0o104755), REFUSE),
    (OWN, "openat", (3, 0, 0o101, 0o4755), REFUSE),
    (OWN, "openat", (3, 0, 0o20200002, 0o4755), REFUSE),  # O_TMPFILE
    (OWN, "openat", (3, 0, 0o101, 0o755), ALLOW),
    (OWN, "openat", (3, 0, 0, 0o6777), ALLOW),  # no file is made: the mode is noise
    # The terminal, by the low word alone.
    *((OWN, "ioctl", (0, 1 << 32 | code), REFUSE) for code in (0x5412, 0x541C, 0x5423)),
    (OWN, "ioctl", (0, 0x5401), ALLOW),  # TCGETS
    (OWN, "ioctl", (0, 425), ALLOW),  # an argument is no number of a call, io_uring_setup here
    # Others' limits, where others are in sight.
    (HOST, "prlimit64", (0, 7), ALLOW),
    (HOST, "prlimit64", (1, 7), REFUSE),
    (HOST, "sched_setaffinity", (1,), REFUSE),
    (HOST, "setpriority", (PRIO_PROCESS, 0, 5), ALLOW),
    (HOST, "setpriority", (PRIO_PROCESS, 1, 5), REFUSE),
    (HOST, "setpriority", (PRIO_USER, 0, 5), REFUSE),  # every process of this user
    (HOST, "ioprio_set", (1, 0), ALLOW),
    (HOST, "ioprio_set", (3, 0), REFUSE),
    (OWN, "prlimit64", (1, 7), ALLOW),
    (HOST, "shmget", (), REFUSE),
    (OWN, "shmget", (), ALLOW),
    # What a sandbox in the sandbox needs stays.
    (OWN, "seccomp", (1, 1 << 3, 0), ALLOW),
]
LEGACY: list[tuple[str, tuple[int, ...], Action]] = [
    ("open", (0, 0o101, 0o4755), REFUSE),
    ("open", (0, 0, 0o4755), ALLOW),
    ("creat", (0, 0o4755), REFUSE),
    ("chmod", (0, 0o2755), ALLOW),
    ("mkdir", (0, 0o2755), ALLOW),
    ("mkdir", (0, 0o4755), REFUSE),
    ("creat", (0, 0o2755), REFUSE),
    ("creat", (0, 0o2744), ALLOW),
    ("mkdir", (0, 0o755), ALLOW),
    ("mknod", (0, 0o104755), REFUSE),
]
REFUSED_ALWAYS = [
    "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_getfd", "kcmp",
    "move_pages", "migrate_pages", "mount", "umount2", "pivot_root", "chroot", "open_tree",
    "open_tree_attr", "move_mount", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr",
    "open_by_handle_at", "fanotify_init", "setns", "add_key", "keyctl", "request_key", "bpf",
    "perf_event_open", "userfaultfd", "init_module", "finit_module", "delete_module", "kexec_load",
    "kexec_file_load", "reboot", "acct", "swapon", "swapoff", "quotactl", "quotactl_fd", "syslog",
    "settimeofday", "clock_settime", "clock_adjtime", "io_uring_setup", "io_uring_enter",
    "io_uring_register",
]  # fmt: skip


@pytest.mark.parametrize("machine", Machine)
@pytest.mark.parametrize(("around", "call", "arguments", "action"), CASES)
def test_a_call_is_judged_by_the_table(
    machine: Machine, around: Surroundings, call: str, arguments: tuple[int, ...], action: Action
) -> None:
    known = number(call, machine)
    assert known is not None
    assert judged(machine, around, known, *arguments) is action


@pytest.mark.parametrize(("call", "arguments", "action"), LEGACY)
def test_the_older_calls_of_x86_64_are_judged_alike(
    call: str, arguments: tuple[int, ...], action: Action
) -> None:
    known = number(call, Machine.X86_64)
    assert known is not None
    assert judged(Machine.X86_64, OWN, known, *arguments) is action
    assert number(call, Machine.AARCH64) is None


@given(machines, surroundings, st.sampled_from(REFUSED_ALWAYS), arguments)
def test_no_argument_opens_what_is_always_refused(
    machine: Machine, around: Surroundings, call: str, arguments: list[int]
) -> None:
    known = number(call, machine)
    assert known is not None
    assert judged(machine, around, known, *arguments) is REFUSE


@given(machines, surroundings, words, arguments)
def test_another_architectures_call_ends_the_process(
    machine: Machine, around: Surroundings, word: int, arguments: list[int]
) -> None:
    foreign = word & 0xFFFFFFFF
    if foreign != ARCHITECTURES[machine]:
        outcome = run(PROGRAMS[machine, around], seccomp_data(foreign, 1, arguments))
        assert Action(outcome) is KILL


@given(surroundings, st.integers(-(2**31), 2**31 - 1), arguments)
def test_an_x32_number_ends_the_process(around: Surroundings, number: int, arguments: list[int]) -> None:
    if number < 0 or number >= 0x40000000:
        assert judged(Machine.X86_64, around, number, *arguments) is KILL


@given(machines, surroundings, st.integers(0, 600), arguments)
def test_what_no_rule_is_about_is_allowed(
    machine: Machine, around: Surroundings, other: int, arguments: list[int]
) -> None:
    if other not in {number(name, machine) for name in NAMES}:
        assert judged(machine, around, other, *arguments) is ALLOW


@given(machines, surroundings, st.sampled_from(sorted(NAMES)), arguments)
def test_high_bits_of_arguments_hide_nothing(
    machine: Machine, around: Surroundings, call: str, arguments: list[int]
) -> None:
    if (known := number(call, machine)) is not None:
        low = [argument & 0xFFFFFFFF for argument in arguments]
        assert judged(machine, around, known, *arguments) is judged(machine, around, known, *low)


def test_landlock_is_left_to_sandboxes_inside() -> None:
    assert {judged(Machine.X86_64, around, call) for around in EVERYWHERE for call in (444, 445, 446)} == {
        ALLOW
    }


def test_this_machine_is_supported() -> None:
    assert supported(platform.machine())


@pytest.mark.parametrize("machine", ["i686", "armv7l", "riscv64", "aarch64_be", ""])
def test_other_machines_have_no_filter(machine: str) -> None:
    assert not supported(machine)
    with pytest.raises(ValueError, match="Machine"):
        program(machine, OWN)


def test_a_32_bit_python_has_none_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "maxsize", 2**31 - 1)
    assert not supported("x86_64")
