"""The last program before a confined command: hands the listener out, confines itself, becomes the command.

Run as `[python, -I, -S, THIS FILE, inner, PLAN_FD, CHANNEL_FD, ERROR_FD, --, COMMAND…]`, -1: no descriptor; a
long command comes by one, as `COMMAND_FD` in place of `-- COMMAND…`, each word ended by a NUL.
Standard library alone and little of it: its start is every command's. Next: plan.py (what it is told),
supervisor.py and outer.py (share its functions).

A failure is one line on ERROR_FD, `confine WHAT: WHY` (exit 125) or `exec ERRNO WHAT: WHY` (126; 127 when it
is not found); with no ERROR_FD it is `sandbox-run: WHAT: WHY` on stderr. ERROR_FD at its end without a byte:
the command is running.
"""

import _signal  # type: ignore[import-not-found]  # signal itself imports enum: 3 ms
import _socket
import ctypes
import errno
import os
import select
import struct
import sys

if __package__:
    from egress_proxy.sandbox import mount_check
    from egress_proxy.sandbox.told import Plan, entries, read_plan
else:  # run as a script, isolated: the path holds the standard library alone
    sys.path.append(os.path.dirname(os.path.realpath(__file__)))
    import mount_check  # type: ignore[import-not-found,no-redef]
    from told import Plan, entries, read_plan  # type: ignore[import-not-found,no-redef]

__all__ = ["Plan", "entries", "read_plan"]

HAND_OUT, TAKEN = b"L", b"K"  # core/attach.py
CANNOT_CONFINE, CANNOT_EXECUTE, NOT_FOUND = 125, 126, 127  # as env(1), nohup(1) and POSIX shells have them
BACKLOG = 4096  # cut to net.core.somaxconn: a burst of clients must not meet a full queue
LINE_BYTES = 1000  # of an error: less than PIPE_BUF, so that no reader is needed for it to be written whole

# linux/prctl.h
PR_SET_PDEATHSIG, PR_CAPBSET_READ, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 1, 23, 24, 38, 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
CAPABILITY_VERSION_3 = 0x20080522  # linux/capability.h
# asm/unistd.h: the newer calls have one number on every machine, seccomp has its own on each
SYS_LANDLOCK_CREATE_RULESET, SYS_LANDLOCK_ADD_RULE, SYS_LANDLOCK_RESTRICT_SELF = 444, 445, 446
SYS_CLOSE_RANGE, SYS_SECCOMP = 436, {"x86_64": 317, "aarch64": 277}
S_IFMT, S_IFSOCK = 0o170000, 0o140000  # inode(7)
RULE_PATH_BENEATH, RULE_NET_PORT = 1, 2  # linux/landlock.h
SECCOMP_SET_MODE_FILTER = 1  # linux/seccomp.h

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]


def checked(answer: int) -> int:
    """What a C function answered; raises OSError for a negative one."""
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return answer


def system_call(number: int, *arguments: int | bytes | None) -> int:
    """Numbers are passed at full width, bytes as a pointer to them. Raises OSError."""
    wide = (ctypes.c_ulong(a & (1 << 64) - 1) if isinstance(a, int) else a for a in arguments)
    return checked(libc.syscall(ctypes.c_long(number), *wide))


class Report:
    """Where a failure goes, and which step it would be of. As sys.excepthook nothing gets past it: an
    exit by traceback, with nothing on ERROR_FD, would read as the command's own exit 1."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.step = "start"

    def __call__(self, kind: type[BaseException], error: BaseException, trace: object) -> None:
        self.fail(CANNOT_CONFINE, "confine", f"{self.step}: {reason(error)}")

    def fail(self, status: int, word: str, text: str) -> None:
        """Say it and exit; never returns. ``word``: how the line on ERROR_FD begins."""
        start = f"{word} " if self.descriptor >= 0 else "sandbox-run: "
        line = os.fsencode(start + text).replace(b"\n", b"?")[:LINE_BYTES] + b"\n"
        try:
            os.write(self.descriptor if self.descriptor >= 0 else 2, line)
        finally:  # nobody may be listening
            os._exit(status)


def reason(error: BaseException) -> str:
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error) or type(error).__name__
    return (f"{os.fsdecode(error.filename)}: " if error.filename is not None else "") + error.strerror


def check_mounts(plan: Plan) -> None:
    """Nothing has been done yet, and nobody can change a mount of this namespace any more."""
    wrong = mount_check.fault(mount_check.read_table(), plan.mount_points, plan.writable_places)
    if wrong:
        raise OSError(errno.ESTALE, wrong)


def listen_on_loopback(port: int) -> _socket.socket:
    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", port))
    listener.listen(BACKLOG)
    return listener


def send_descriptor(channel: _socket.socket, message: bytes, descriptor: int) -> None:
    rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack("i", descriptor))
    channel.sendmsg([message], [rights])


def hand_out(listener: _socket.socket, channel: _socket.socket, answer_ms: int) -> None:
    """The proxy gets the listener, and the channel its answer. A poll, since the channel's other copies
    share its flags and time-outs."""
    send_descriptor(channel, HAND_OUT, listener.fileno())
    waiting = select.poll()
    waiting.register(channel.fileno(), select.POLLIN)
    if not waiting.poll(answer_ms):
        raise TimeoutError(errno.ETIMEDOUT, "the proxy did not answer in time")
    if channel.recv(1) != TAKEN:
        raise ConnectionError(errno.ECONNREFUSED, "the proxy did not take the listener")


def add_path(ruleset: int, access: int, path: bytes, required: bool) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        if required:
            raise
        return  # left out, the command may do less
    try:
        # Between the caller's check and now another command may have put a link in a root's place.
        if required and os.readlink(b"/proc/self/fd/%d" % place) != path:
            raise OSError(errno.ESTALE, "it is another file than the one that was checked", path)
        system_call(SYS_LANDLOCK_ADD_RULE, ruleset, RULE_PATH_BENEATH, struct.pack("=Qi", access, place), 0)
    finally:
        os.close(place)


def restrict_files(plan: Plan) -> None:
    size, *handled = plan.ruleset
    attribute = struct.pack("=QQQ", *handled)
    ruleset = system_call(SYS_LANDLOCK_CREATE_RULESET, attribute, size, 0)
    for access, path, required in plan.paths:
        add_path(ruleset, access, path, required)
    for access, port in plan.ports:
        system_call(SYS_LANDLOCK_ADD_RULE, ruleset, RULE_NET_PORT, struct.pack("=QQ", access, port), 0)
    system_call(SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0)


def drop_capabilities() -> None:
    """All sets. As root under Landlock alone a kept CAP_PERFMON read a host process's environment."""
    for capability in range(64):
        if libc.prctl(PR_CAPBSET_READ, capability, 0, 0, 0) == 1:
            # Refused to who lacks CAP_SETPCAP: then no_new_privs keeps this set from being used.
            libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    checked(libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0))
    checked(libc.capset(struct.pack("=Ii", CAPABILITY_VERSION_3, 0), bytes(24)))


def reset_signals() -> None:
    """Python ignores these two. Its SIGINT handler goes with exec, who ignores SIGINT stays so."""
    _signal.signal(_signal.SIGPIPE, _signal.SIG_DFL)
    _signal.signal(_signal.SIGXFSZ, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())


def filter_calls(program: bytes, flags: int = 0) -> int:
    """Install the seccomp filter; answers its listener's descriptor if the flags ask for one."""
    code = ctypes.create_string_buffer(program, len(program))
    pointed = struct.pack("HP", len(program) // 8, ctypes.addressof(code))  # struct sock_fprog
    return system_call(SYS_SECCOMP[os.uname().machine], SECCOMP_SET_MODE_FILTER, flags, pointed)


def close_others(*keep: int) -> None:
    """Close every descriptor from 3 up but these: bwrap and exec hand on what a careless caller left open."""
    first = 3
    for last in (*sorted(number - 1 for number in keep if number >= 3), 0xFFFFFFFF):
        if first <= last:
            close_range(first, last)
        first = last + 2


def close_range(first: int, last: int) -> None:
    try:
        system_call(SYS_CLOSE_RANGE, first, last, 0)
    except OSError:  # before Linux 5.9, or refused by a container's filter
        for number in map(int, os.listdir("/proc/self/fd")):
            if first <= number <= last:
                os.closerange(number, number + 1)  # one was the listing's own


def confine(plan: Plan, report: Report) -> None:
    """Everything but the filter and the descriptors, which its callers end with."""
    report.step = "streams"
    refuse_datagrams()
    if plan.new_session:
        report.step = "new session"  # away from the caller's terminal, which else could be given input
        if os.getsid(0) != os.getpid():
            os.setsid()
    report.step = "no_new_privs"
    checked(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    if plan.ruleset:
        report.step = "Landlock"
        restrict_files(plan)
    report.step = "capabilities"
    drop_capabilities()
    if plan.cwd is not None:
        report.step = "working folder"
        os.chdir(plan.cwd)
    reset_signals()


def refuse_datagrams() -> None:
    """A stream of that kind can be sent through to every socket file of the host, without a new socket."""
    for number in (0, 1, 2):
        try:
            if os.fstat(number).st_mode & S_IFMT != S_IFSOCK:
                continue
        except OSError:
            continue  # closed
        stream = _socket.socket(fileno=os.dup(number))
        if stream.family == _socket.AF_UNIX and stream.type == _socket.SOCK_DGRAM:
            raise OSError(errno.EPERM, f"descriptor {number} is a datagram socket; give a pipe")
        stream.close()


def die_with(parent: int, number: int) -> None:
    """Get a signal when the parent ends, or rather the thread of it that started us: prctl(2)."""
    checked(libc.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0))
    if os.getppid() != parent:
        raise ChildProcessError("the parent has ended")


def become(command: list[bytes], report: Report) -> None:
    """Exec, by PATH as a shell would. libc's own: os.execvp imports more than all of this file."""
    report.step = "descriptors"
    close_others(report.descriptor)
    if report.descriptor >= 0:
        os.set_inheritable(report.descriptor, False)
    libc.execvp(command[0], (ctypes.c_char_p * (len(command) + 1))(*command))
    number = ctypes.get_errno()
    status = NOT_FOUND if number in (errno.ENOENT, errno.ENOTDIR) else CANNOT_EXECUTE
    name = f"{errno.errorcode[number]} " if report.descriptor >= 0 else ""
    report.fail(status, "exec", f"{name}{os.fsdecode(command[0])}: {os.strerror(number)}")


def arguments(words: list[str]) -> tuple[int, int, int, list[bytes]]:
    """PLAN_FD CHANNEL_FD ERROR_FD, and COMMAND_FD or -- COMMAND…"""
    match words:
        case plan, channel, errors, "--", *command if command:
            return int(plan), int(channel), int(errors), [os.fsencode(word) for word in command]
        case plan, channel, errors, number:
            with open(int(number), "rb") as stream:
                return int(plan), int(channel), int(errors), stream.read().split(b"\0")[:-1]
    raise ValueError("expected PLAN_FD CHANNEL_FD ERROR_FD -- COMMAND")


def main() -> None:
    sys.excepthook = report = Report(-1)
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)  # Ctrl-C ends this as it would the command
    plan_number, channel_number, report.descriptor, command = arguments(sys.argv[2:])
    report.step = "plan"
    plan = read_plan(plan_number)
    if plan.mount_points:
        report.step = "mounts"
        check_mounts(plan)
    if plan.port is not None:
        report.step = f"listener on 127.0.0.1:{plan.port}"
        channel, listener = _socket.socket(fileno=channel_number), listen_on_loopback(plan.port)
        hand_out(listener, channel, plan.answer_ms)
    confine(plan, report)
    if plan.program:
        report.step = "seccomp filter"
        filter_calls(plan.program)
    become(command, report)


if __name__ == "__main__":
    main()
