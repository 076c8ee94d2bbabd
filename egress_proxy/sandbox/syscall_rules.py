"""Which system calls a confined command is refused, and why: the table that seccomp.py compiles.

What stands in no rule is allowed. Only what Landlock or the namespaces do not hold stands here. Arguments
are compared by their low 32 bits, as the kernel reads these arguments: high bits cannot hide a value.
"""

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from egress_proxy.sandbox.bpf import WORD


class Network(enum.Enum):
    """Which sockets a command may have, and where its connects go."""

    NONE = enum.auto()
    OWN_NAMESPACE = enum.auto()  # a network namespace of its own: the namespace is the wall
    STREAMS = enum.auto()  # the host's stack, TCP alone; Landlock judges the ports
    SUPERVISED = enum.auto()  # the same, and a supervisor makes each connect
    OPEN = enum.auto()  # the host's stack as it is


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What holds the command besides the filter; ``own_…``: a namespace of that kind, not the host's."""

    network: Network
    own_ipc: bool
    own_pids: bool


class Action(enum.Enum):
    """What becomes of a call; the values are the kernel's, SECCOMP_RET_… of <linux/seccomp.h>."""

    ALLOW = 0x7FFF_0000
    REFUSE = 0x0005_0000 | 1  # EPERM, which tools know how to report
    UNKNOWN = 0x0005_0000 | 38  # ENOSYS, on which C libraries take the older call
    ASK = 0x7FC0_0000  # the supervisor answers
    KILL = 0x8000_0000


@dataclass(frozen=True, slots=True)
class Is:
    """An argument, of which only the bits of ``mask`` count, is one of the values."""

    argument: int
    values: tuple[int, ...]
    mask: int = WORD


@dataclass(frozen=True, slots=True)
class HasAny:
    """An argument has at least one of the bits."""

    argument: int
    bits: int


@dataclass(frozen=True, slots=True)
class Case:
    """What to do when every condition holds."""

    action: Action
    conditions: tuple[Is | HasAny, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """The first case that fits decides; when none does, the call is allowed."""

    calls: tuple[str, ...]
    cases: tuple[Case, ...]


def rules(around: Surroundings) -> Iterator[Rule]:
    """No call stands in two rules."""
    yield _refuse(*_OTHER_PROCESSES, *_FILE_SYSTEMS, *_KERNEL)
    yield from _NAMESPACES
    yield from _MODE_BITS
    yield from _LEFT_FOR_OTHERS
    yield _terminal(around.network)
    if not around.own_ipc:
        yield _refuse(*_SYSTEM_V)
    if not around.own_pids:
        yield from _OTHERS_LIMITS
    # Makes and connects sockets, and opens files with any mode, where no filter sees it.
    yield _refuse("io_uring_setup", "io_uring_enter", "io_uring_register")
    yield from _socket_rules(around.network)


def _refuse(*calls: str) -> Rule:
    return Rule(calls, (Case(Action.REFUSE),))


def _refuse_when(calls: tuple[str, ...], *conditions: Is | HasAny) -> Rule:
    return Rule(calls, (Case(Action.REFUSE, conditions),))


# Reaching into processes: those of the same user on the host, and bwrap's pid 1, whose descriptors and memory
# are outside the policy. Moving pages of others is the same right by another name.
_OTHER_PROCESSES = (
    "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_getfd", "kcmp",
    "move_pages", "migrate_pages",
)  # fmt: skip

# New views of files: mounts that are writable again, another root, files by number past every path check,
# and fanotify, which hands out descriptors of what others open.
_FILE_SYSTEMS = (
    "mount", "umount2", "pivot_root", "chroot", "open_tree", "open_tree_attr", "move_mount", "fsopen",
    "fsconfig", "fsmount", "fspick", "mount_setattr", "open_by_handle_at", "fanotify_init",
)  # fmt: skip

# Parts of the kernel that a build or a test never needs and where its bugs have been: keyrings (which outlive
# the command), programs in the kernel, and what belongs to the machine's administrator.
_KERNEL = (
    "add_key", "keyctl", "request_key", "bpf", "perf_event_open", "userfaultfd", "modify_ldt", "iopl",
    "ioperm", "init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot",
    "acct", "swapon", "swapoff", "quotactl", "quotactl_fd", "syslog", "vhangup", "settimeofday",
    "clock_settime", "clock_adjtime", "sethostname", "setdomainname",
)  # fmt: skip

# The host's segments, semaphores and queues; Landlock has no hook on them.
_SYSTEM_V = (
    "shmget", "shmat", "shmctl", "semget", "semop", "semtimedop", "semctl", "msgget", "msgsnd", "msgrcv",
    "msgctl", "mq_open", "mq_unlink",
)  # fmt: skip

# <linux/sched.h>: every CLONE_NEW…; in clone() the low byte is a signal, so NEWTIME cannot be asked there.
_NEW_NAMESPACE, _NEW_TIME = 0x7E02_0000, 0x80
_NAMESPACES = (
    # A new user namespace gives every capability back, inside it.
    _refuse_when(("unshare",), HasAny(0, _NEW_NAMESPACE | _NEW_TIME)),
    _refuse_when(("clone",), HasAny(0, _NEW_NAMESPACE)),
    # Their flags lie behind a pointer, where a filter cannot look.
    Rule(("clone3", "openat2"), (Case(Action.UNKNOWN),)),
    _refuse("setns"),
)

# A program left in a root with S_ISUID runs as its owner for everyone who starts it, and with S_ISGID as its
# owner's group. Of folders S_ISGID is ordinary: what is made in them has their group. A filter does not see
# which of both a path is, so chmod may set it, and set_group.py looks at what is left behind. What the others
# create is a file (mkdir: a folder), of which it means nothing as long as the group may not execute it.
_SET_USER, _SET_GROUP, _GROUP_EXECUTES = 0o4000, 0o2000, 0o010
_CREATES = 0o100 | 0o20_000_000  # O_CREAT, __O_TMPFILE: without them the mode argument is whatever was there


def _refuse_program(calls: tuple[str, ...], mode: int, *conditions: HasAny) -> Rule:
    """``mode``: which argument is the new file's mode."""
    for_its_group = (HasAny(mode, _SET_GROUP), HasAny(mode, _GROUP_EXECUTES))
    return Rule(
        calls,
        (
            Case(Action.REFUSE, (*conditions, HasAny(mode, _SET_USER))),
            Case(Action.REFUSE, (*conditions, *for_its_group)),
        ),
    )


_MODE_BITS = (
    _refuse_when(("chmod", "fchmod", "mkdir"), HasAny(1, _SET_USER)),
    _refuse_when(("fchmodat", "fchmodat2", "mkdirat"), HasAny(2, _SET_USER)),
    _refuse_program(("creat", "mknod"), 1),
    _refuse_program(("mknodat",), 2),
    _refuse_program(("open",), 2, HasAny(1, _CREATES)),
    _refuse_program(("openat",), 3, HasAny(2, _CREATES)),
)

# A lease keeps programs outside waiting when they open the file (F_SETLEASE); a whiteout is a device node and
# hides a name from layered file systems (RENAME_WHITEOUT). <linux/fcntl.h>, <linux/fs.h>
_LEFT_FOR_OTHERS = (
    _refuse_when(("fcntl",), Is(1, (1024,))),
    _refuse_when(("renameat2",), HasAny(4, 1 << 2)),
)

# <asm-generic/ioctls.h>: TIOCSTI and TIOCLINUX type into the terminal, for the shell that comes after us;
# TIOCSETD loads line disciplines. TIOCGPTPEER opens the terminal of a pty that the caller made: the
# supervisor does it, as Landlock has no rule for a terminal that is not there yet, and may not grant all.
_TYPES, _OPENS_PEER = Is(1, (0x5412, 0x541C, 0x5423)), Is(1, (0x5441,))


def _terminal(network: Network) -> Rule:
    asks = (Case(Action.ASK, (_OPENS_PEER,)),) if network is Network.SUPERVISED else ()
    return Rule(("ioctl",), (Case(Action.REFUSE, (_TYPES,)), *asks))


# Limits, niceness and processors of the host's processes; Landlock has no hook on them. 0 is the caller.
_OWN = (0,)
_PRIO_PROCESS, _IOPRIO_WHO_PROCESS = 0, 1  # and no others: "user 0" is every process of this user
_OTHERS_LIMITS = (
    Rule(
        ("prlimit64", "sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler"),
        (Case(Action.ALLOW, (Is(0, _OWN),)), Case(Action.REFUSE)),
    ),
    Rule(("setpriority",), (Case(Action.ALLOW, (Is(0, (_PRIO_PROCESS,)), Is(1, _OWN))), Case(Action.REFUSE))),
    Rule(
        ("ioprio_set",),
        (Case(Action.ALLOW, (Is(0, (_IOPRIO_WHO_PROCESS,)), Is(1, _OWN))), Case(Action.REFUSE)),
    ),
)

_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16  # <linux/socket.h>
_STREAM, _DGRAM, _RAW, _SEQPACKET, _TYPE_MASK = 1, 2, 3, 5, 0xF  # <linux/net.h>; above it: CLOEXEC, NONBLOCK
_IPPROTO_IP, _IPPROTO_TCP, _IPPROTO_IPV6, _SOL_SOCKET = 0, 6, 41, 1
_DATAGRAMS = (0, 17, 1, 58)  # UDP, and the echo requests of ping
_MSG_FASTOPEN = 0x2000_0000
_ON_HOST = {Network.NONE, Network.STREAMS, Network.SUPERVISED}


def _socket_rules(network: Network) -> Iterator[Rule]:
    yield Rule(("socket",), (*_sockets(network), Case(Action.ALLOW, _ROUTES), Case(Action.REFUSE)))
    yield _PAIRS
    if network in _ON_HOST:
        # Fast open connects without a connect, which no hook of Landlock and no supervisor sees.
        yield _refuse_when(("sendto", "sendmmsg"), HasAny(3, _MSG_FASTOPEN))
        yield _refuse_when(("sendmsg",), HasAny(2, _MSG_FASTOPEN))
        # On a socket without a bind it takes a port by itself; Landlock judges bind alone.
        yield _refuse("listen")
        yield _HOST_OPTIONS
    else:
        yield _refuse_when(("setsockopt",), *_ATTACHES_PROGRAM)
    if network is Network.SUPERVISED:
        yield Rule(("connect",), (Case(Action.ASK),))
        # Where listeners nest, one of the command's own could answer in the supervisor's stead.
        # SECCOMP_SET_MODE_FILTER with SECCOMP_FILTER_FLAG_NEW_LISTENER.
        yield _refuse_when(("seccomp",), Is(0, (1,)), HasAny(1, 1 << 3))


# Addresses and routes of the machine: getaddrinfo and every runtime ask. NETLINK_ROUTE is protocol 0.
_ROUTES = (Is(0, (_NETLINK,)), Is(2, (0,)))

# Socket files and abstract names lead to docker, the session bus, agents: code on the host. So no socket of
# that family, but pairs. No pairs of datagrams: their ends can be sent and connected to any socket file.
_PAIRS = Rule(
    ("socketpair",),
    (Case(Action.ALLOW, (Is(0, (_UNIX,)), Is(1, (_STREAM, _SEQPACKET), _TYPE_MASK))), Case(Action.REFUSE)),
)


def _sockets(network: Network) -> Iterator[Case]:
    """What is left out besides: packet, vsock (other machines of this host), ALG, XDP, Bluetooth, …"""
    internet = Is(0, (_INET, _INET6))
    if network in {Network.STREAMS, Network.SUPERVISED}:
        # No UDP, no ICMP, no raw. Protocol 0 or TCP: Landlock does not judge the connects of MPTCP, SCTP
        # and SMC, which are streams too.
        yield Case(Action.ALLOW, (internet, Is(1, (_STREAM,), _TYPE_MASK), Is(2, (0, _IPPROTO_TCP))))
    elif network is not Network.NONE:
        # No others: whoever asks for SCTP, DCCP, L2TP, UDP-Lite has the kernel load modules for it.
        yield Case(Action.ALLOW, (internet, Is(1, (_STREAM,), _TYPE_MASK), Is(2, (0, _IPPROTO_TCP))))
        yield Case(Action.ALLOW, (internet, Is(1, (_DGRAM,), _TYPE_MASK), Is(2, _DATAGRAMS)))
        yield Case(Action.ALLOW, (internet, Is(1, (_RAW,), _TYPE_MASK)))  # for who may, as the kernel has it


def _option(level: int, *names: int) -> tuple[Is, Is]:
    return Is(1, (level,)), Is(2, names)


# <asm-generic/socket.h>: SO_ATTACH_FILTER, _BPF, _REUSEPORT_CBPF, _REUSEPORT_EBPF: programs in the kernel.
_ATTACHES_PROGRAM = _option(_SOL_SOCKET, 26, 50, 51, 52)

# Options that make a TCP socket send elsewhere than where it connects. Allowed of IP: TOS, TTL,
# MTU_DISCOVER, RECVERR, BIND_ADDRESS_NO_PORT; of IPv6: UNICAST_HOPS, MTU_DISCOVER, RECVERR, V6ONLY, TCLASS.
# So none of: IP_OPTIONS (a source route: the first packet goes to any host, even when the supervisor connects
# to loopback), routing headers, multicast groups (joining one sends to the network), IP_UNICAST_IF.
_HOST_OPTIONS = Rule(
    ("setsockopt",),
    (
        Case(Action.REFUSE, _ATTACHES_PROGRAM),
        # SO_BINDTODEVICE, SO_BINDTOIFINDEX: packets to loopback addresses leave through that device.
        Case(Action.REFUSE, _option(_SOL_SOCKET, 25, 62)),
        # TCP_ULP "smc" turns it into a socket of another family, which Landlock does not judge.
        Case(Action.REFUSE, _option(_IPPROTO_TCP, 31)),
        Case(Action.ALLOW, _option(_IPPROTO_IP, 1, 2, 10, 11, 24)),
        Case(Action.ALLOW, _option(_IPPROTO_IPV6, 16, 23, 25, 26, 67)),
        Case(Action.REFUSE, (Is(1, (_IPPROTO_IP, _IPPROTO_IPV6)),)),
    ),
)
