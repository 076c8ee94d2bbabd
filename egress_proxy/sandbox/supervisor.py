"""Runs a command under Landlock and seccomp, makes its connects for it, and leaves nothing of it behind.

Run as `[python, -I, -S, THIS FILE, PLAN_FD, CHANNEL_FD, ERROR_FD, --, COMMAND…]`; descriptors, long commands
and failures are launcher.py's, and this is the standard library alone, too. It ends as the command does: same
status, same signal. Next: connects.py (which connects, and how), launcher.py (how the command is confined).

When it is killed, so is the command; what that has put into sessions of their own lives on, confined and
with no network, and the private folder stays.
"""

import _signal  # type: ignore[import-not-found]
import _socket
import fcntl
import os
import struct
import sys
import time

if __package__:
    from egress_proxy.sandbox import connects, launcher
else:  # run as a script, isolated: the path holds the standard library alone
    sys.path.append(os.path.dirname(os.path.realpath(__file__)))
    import connects  # type: ignore[import-not-found,no-redef]
    import launcher  # type: ignore[import-not-found,no-redef]

FOLDER_NAME = b"egress-sandbox-"  # landlock_rung.py
FRESH_S = 5  # a folder is made before it is locked
GO = b"G"  # from us to the command's process, before it is the command
NONE = -1  # no descriptor
PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 4, 36  # linux/prctl.h
PARENT_ENDED = _signal.SIGRTMAX  # one that nobody sends
FORWARDED = frozenset(
    (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP, _signal.SIGQUIT, _signal.SIGUSR1, _signal.SIGUSR2)
)
AWAITED = FORWARDED | {_signal.SIGCHLD, PARENT_ENDED}


def main() -> None:
    sys.excepthook = report = launcher.Report(-1)
    plan_number, channel_number, report.descriptor, command = launcher.arguments(sys.argv[1:])
    report.step = "plan"
    plan = launcher.read_plan(plan_number)
    launcher.close_others(channel_number, report.descriptor)
    report.step = "supervisor"
    watch_over_children()
    # Held until the end, which is how the proxy learns of it.
    channel = _socket.socket(fileno=channel_number) if channel_number >= 0 else None
    port = hand_out_listener(plan, channel, report)
    report.step = "capabilities"
    launcher.drop_capabilities()
    if plan.private_tmp is not None:
        report.step = "private folder"
        make_private_folder(plan, plan.private_tmp)
    link, far_end = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
    supervisor = os.getpid()
    child = os.fork()
    if child == 0:
        report.step = "supervisor"
        launcher.die_with(supervisor, _signal.SIGKILL)
        run_command(plan, command, far_end, report)
    far_end.close()
    report.step = "taking the command's sockets (pidfd_getfd)"
    start_command(child, link, plan.port, port)
    let_go_of_streams(report.descriptor)
    status = wait_for(child, plan.new_session)
    end_descendants()
    if plan.private_tmp is not None:
        remove_folder(plan.private_tmp)
    end_alike(status)


def make_private_folder(plan: launcher.Plan, named: bytes) -> None:
    """Of this run alone: one command line may be started several times at once."""
    remove_stale_folders(os.path.dirname(named))
    folder = named + b"-%d" % os.getpid()
    os.mkdir(folder, 0o700)
    # Held until we end, however that comes: whoever can lock it knows that nobody has it any more.
    fcntl.flock(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), fcntl.LOCK_EX)
    plan.private_tmp = folder
    plan.paths = [(access, folder if path == named else path, must) for access, path, must in plan.paths]


def remove_stale_folders(place: bytes) -> None:
    """Of supervisors of this user that were killed."""
    try:
        names = os.listdir(place)
    except OSError:
        return
    for name in names:
        if not name.startswith(FOLDER_NAME):
            continue
        folder = os.path.join(place, name)
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue  # somebody else's
        try:
            status = os.fstat(descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if status.st_uid == os.geteuid() and time.time() - status.st_ctime > FRESH_S:
                remove_folder(folder)
        except OSError:
            pass  # it is in use
        finally:
            os.close(descriptor)


def watch_over_children() -> None:
    """What loses its parent becomes our child, and the signals above are ours to wait for."""
    launcher.checked(launcher.libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)  # ignored, it would swallow the command's status
    _signal.pthread_sigmask(_signal.SIG_BLOCK, AWAITED)
    launcher.die_with(os.getppid(), PARENT_ENDED)


def hand_out_listener(
    plan: launcher.Plan, channel: _socket.socket | None, report: launcher.Report
) -> int | None:
    """Of this run alone, so that the proxy knows who connects; its port, unless there is no network."""
    if plan.port is None:
        return None
    report.step = "listener on 127.0.0.1"
    if channel is None or not plan.program:
        raise ValueError("it takes a channel and a seccomp filter")
    listener = launcher.listen_on_loopback(0)
    launcher.hand_out(listener, channel, plan.answer_ms)
    port: int = listener.getsockname()[1]
    listener.close()
    return port


def run_command(
    plan: launcher.Plan, command: list[bytes], link: _socket.socket, report: launcher.Report
) -> None:
    """The child's part, never returns. From the filter on its connects wait for the supervisor's answers."""
    if plan.private_tmp is not None:
        launcher.libc.setenv(b"TMPDIR", plan.private_tmp, 1)
    launcher.confine(plan, report)
    report.step = "seccomp filter"
    notifications = NONE
    if plan.port is not None:
        notifications = connects.supervised_filter(plan.program)
    elif plan.program:
        launcher.filter_calls(plan.program)
    report.step = "supervisor"
    link.send(struct.pack("i", notifications))
    if link.recv(1) != GO:
        raise ChildProcessError("it does not go on")
    launcher.become(command, report)


def start_command(child: int, link: _socket.socket, asked: int | None, port: int | None) -> None:
    """Let the child go on once its connects can be made. When it has failed it has said so itself."""
    message = link.recv(struct.calcsize("i"))
    if message:
        (number,) = struct.unpack("i", message)
        if asked is not None and port is not None:
            # Also the proof that sockets can be taken, without which the sandbox would have no way out.
            notifications = connects.take_from(child, number)
            connects.Connects(notifications, asked, port).start()
        link.send(GO)
    link.close()


def let_go_of_streams(errors: int) -> None:
    """They are the command's alone: a pipe that it closes must end, and the reader of errors must hear that
    the command runs."""
    nothing = os.open("/dev/null", os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.close(nothing)
    if errors >= 0:
        os.close(errors)


def wait_for(child: int, own_session: bool) -> int:
    """The command's wait status; signals that come meanwhile go on to it."""
    while True:
        arrived = _signal.sigwaitinfo(AWAITED)
        if arrived.si_signo == _signal.SIGCHLD:
            status = reap(child)
            if status is not None:
                return status
        elif arrived.si_signo == PARENT_ENDED:
            os.kill(child, _signal.SIGKILL)
        elif arrived.si_code <= 0:  # sent by a process
            os.kill(child, arrived.si_signo)
        elif own_session:  # sent by our terminal, which reaches those of our session without us
            os.killpg(child, arrived.si_signo)


def reap(child: int) -> int | None:
    """Take the statuses of what has ended; answers the child's if it is among them."""
    while True:
        ended, status = os.waitpid(-1, os.WNOHANG)
        if ended == child:
            return status
        if ended == 0:
            return None


def end_descendants() -> None:
    """Kill until nothing is left: what a killed process has started becomes our child and is next."""
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            if found := children():
                for child in found:
                    os.kill(child, _signal.SIGKILL)  # at least a zombie until we wait for it
                os.waitpid(-1, 0)
        except ChildProcessError:
            return


def children() -> list[int]:
    """By the kernel's own list, since a process may fork and end faster than /proc is searched."""
    if os.path.exists("/proc/thread-self/children"):
        lists = (content(f"/proc/self/task/{thread}/children") for thread in os.listdir("/proc/self/task"))
        return [int(child) for each in lists for child in each.split()]
    processes = (name for name in os.listdir("/proc") if name.isdigit())  # no CONFIG_PROC_CHILDREN
    return [int(process) for process in processes if parent_of(process) == os.getpid()]


def parent_of(process: str) -> int:
    """0 for one that has ended. Its name, in brackets, may hold anything."""
    _name, _bracket, rest = content(f"/proc/{process}/stat").rpartition(b") ")
    return int(rest.split()[1]) if rest else 0


def content(path: str) -> bytes:
    """Of a file about a process or thread, which may have ended meanwhile."""
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def remove_folder(top: bytes) -> None:
    """Level by level, subfolders moved up: what the command made may be deeper than any path is long.
    What cannot be removed stays: the command's status says more."""
    fresh = b"%s/%s-" % (top, os.urandom(8).hex().encode())
    moved = 0
    try:
        os.chmod(top, 0o700)
        while entries := list(os.scandir(top)):
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.path)
                    continue
                os.chmod(entry.path, 0o700)
                for inner in list(os.scandir(entry.path)):
                    if inner.is_dir(follow_symlinks=False):
                        os.chmod(inner.path, 0o700)  # a move writes its `..`
                        moved += 1
                        os.rename(inner.path, b"%s%d" % (fresh, moved))
                    else:
                        os.unlink(inner.path)
                os.rmdir(entry.path)
        os.rmdir(top)
    except OSError:
        return


def end_alike(status: int) -> None:
    """As the command ended; never returns."""
    if not os.WIFSIGNALED(status):
        os._exit(os.WEXITSTATUS(status))
    number = os.WTERMSIG(status)
    launcher.libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)  # one core file is enough
    if number != _signal.SIGKILL:
        _signal.signal(number, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, (number,))
    os.kill(os.getpid(), number)
    os._exit(128 + number)


if __name__ == "__main__":
    main()
