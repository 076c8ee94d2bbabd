"""A command under the supervisor: its connects, its end, and that nothing of it stays behind."""

import contextlib
import errno
import fcntl
import os
import pty
import re
import select
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from egress_proxy.sandbox import connects, supervisor
from egress_proxy.sandbox.plan import LandlockRules, LaunchPlan
from egress_proxy.sandbox.seccomp import Network
from tests.support import launches
from tests.support.deadline import eventually
from tests.support.launches import GREETING, PYTHON, SUPERVISOR, Ended, Launch, is_gone, launched

PORT = 8899
PLAN = LaunchPlan(
    port=PORT,
    landlock=launches.read_only(),
    program=launches.program(Network.SUPERVISED),
    cwd="/",
    new_session=True,
)
OFFLINE = LaunchPlan(program=launches.program(Network.NONE), new_session=True)
SCRIPT = (SUPERVISOR,)
GREETED = f"{GREETING!r}\n"

# A daemon as they are made: out of the session and of its parent's hands. Prints its number.
DAEMON = """
import os, sys, time
ends = os.pipe()
if os.fork(): os.read(ends[0], 1); {then}
os.setsid()
if os.fork(): os._exit(0)
print(os.getpid(), flush=True)
null = os.open('/dev/null', os.O_RDWR); os.dup2(null, 1); os.dup2(null, 2)
os.write(ends[1], b'.')
time.sleep(60)
"""


@contextlib.contextmanager
def supervised(plan: LaunchPlan, *command: str, **how: object) -> Iterator[Launch]:
    with launched(plan, command, **{"script": SCRIPT, **how}) as launch:  # type: ignore[arg-type]
        yield launch


def run(plan: LaunchPlan, *command: str, **how: object) -> Ended:
    """To its end, with a proxy that greets when the plan has a port."""
    with supervised(plan, *command, **how) as launch:
        if plan.port is None:
            return launch.finish()
        with launch.serve():
            return launch.finish()


def python(code: str, *words: str) -> tuple[str, ...]:
    return (*PYTHON, "-c", code, *words)


def number_of(launch: Launch) -> int:
    assert launch.process.stdout is not None
    return int(launch.process.stdout.readline())


# Connects


def test_a_connect_to_the_proxys_own_address_reaches_it() -> None:
    code = f"import socket; print(socket.create_connection(('127.0.0.1', {PORT})).recv(99))"
    assert run(PLAN, *python(code)) == Ended(0, "", GREETED)


def test_clients_that_do_not_block_reach_it_by_the_hundred() -> None:
    code = """
import asyncio, sys
async def one():
    reader, writer = await asyncio.open_connection('127.0.0.1', int(sys.argv[1]))
    greeting = await reader.read(); writer.close(); return greeting
async def main(): return await asyncio.gather(*[one() for _ in range(200)])
print({*asyncio.run(main())})
"""
    assert run(PLAN, *python(code, str(PORT))) == Ended(0, "", f"{{{GREETING!r}}}\n")


def test_threads_that_block_reach_it_at_once() -> None:
    code = """
import concurrent.futures, socket, sys
def one(_): return socket.create_connection(('127.0.0.1', int(sys.argv[1]))).recv(99)
with concurrent.futures.ThreadPoolExecutor(32) as pool: print({*pool.map(one, range(100))})
"""
    assert run(PLAN, *python(code, str(PORT))) == Ended(0, "", f"{{{GREETING!r}}}\n")


def test_every_other_connect_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = server.getsockname()[1]
        code = f"""
import ctypes, socket
inet, inet6 = socket.AF_INET, socket.AF_INET6
for family, address in [
    (inet, ('127.0.0.1', {there})), (inet, ('127.0.0.2', {PORT})), (inet, ('0.0.0.0', {PORT})),
    (inet, ('198.51.100.1', 443)), (inet6, ('::1', {PORT})), (inet6, ('::ffff:127.0.0.1', {PORT})),
]:
    print(socket.socket(family).connect_ex(address))
libc = ctypes.CDLL(None, use_errno=True)
stream = socket.socket()
short = bytes([2, 0, {PORT >> 8}, {PORT & 255}, 127, 0, 0, 1])
for raw in (b'', bytes(16), b'\\2', b'\\1\\0/run/x.sock', short):
    print(libc.connect(stream.fileno(), raw, len(raw)) and ctypes.get_errno())
print(socket.socketpair()[0].connect_ex('/run/x.sock'))
"""
        ended = run(PLAN, *python(code))
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()
    assert ended == Ended(0, "", "1\n" * 12)


def test_an_address_that_is_no_memory_or_no_descriptor_gives_the_kernels_own_answer() -> None:
    code = f"""
import ctypes, struct
libc = ctypes.CDLL(None, use_errno=True)
address = struct.pack('=H', 2) + struct.pack('!H4B8x', {PORT}, 127, 0, 0, 1)
for descriptor, pointer in ((0, 8), (0, 1 << 63), (99, address), (-1, address), (0, address)):
    wide = ctypes.c_ulong(pointer) if isinstance(pointer, int) else pointer
    print(libc.connect(descriptor, wide, 16) and ctypes.get_errno())
"""
    assert run(PLAN, *python(code)).output == "14\n14\n9\n9\n88\n"  # EFAULT, EBADF, ENOTSOCK


def test_programs_the_command_starts_reach_the_proxy_too() -> None:
    code = f"import socket; print(socket.create_connection(('127.0.0.1', {PORT})).recv(99))"
    assert run(PLAN, "sh", "-c", '"$@" | cat', "sh", *python(code)).output == GREETED


def test_with_the_proxy_gone_connects_are_refused_and_the_command_goes_on() -> None:
    code = f"import socket, sys; sys.stdin.read(); print(socket.socket().connect_ex(('127.0.0.1', {PORT})))"
    read_end, write_end = os.pipe()
    with supervised(PLAN, *python(code), stdin=read_end) as launch:
        launch.take_listener().close()
        launch.proxy.send(b"K")
        os.close(read_end)
        assert launch.errors() == ""
        os.close(write_end)
        output, _ = launch.process.communicate(timeout=10)
    assert output == "111\n"


def test_an_ordinary_users_connects_are_made_alike() -> None:
    if os.geteuid() != 0:
        return  # all of these tests are run so then
    python3 = ("/usr/bin/python3", "-I", "-S")
    code = f"import socket; print(socket.create_connection(('127.0.0.1', {PORT})).recv(99))"
    command = (*python3, "-c", code)
    with launches.ordinary_folder() as folder:
        ended = run(PLAN, *command, script=(f"{folder}/supervisor.py",), interpreter=python3, user=65534)
    assert ended == Ended(0, "", GREETED)


# Failing closed


def test_a_supervisor_that_cannot_take_sockets_starts_nothing(tmp_path: Path) -> None:
    code = (
        "import os, sys; sys.path.append(sys.argv[1]); import launcher;"
        "launcher.libc.prctl(38, 1, 0, 0, 0); launcher.filter_calls(bytes.fromhex(sys.argv[2]));"
        "os.execv(sys.argv[3], sys.argv[3:])"
    )
    refusing = launches.answering(connects.SYS_PIDFD_GETFD, 0x0005_0000 | 1)
    before = python(code, str(launches.SANDBOX), refusing.hex())
    ended = run(PLAN, "touch", str(tmp_path / "ran"), before=before)
    assert ended.errors == ("confine taking the command's sockets (pidfd_getfd): Operation not permitted\n")
    assert ended.status == 125
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("answer", [b"X", b""])
def test_a_listener_that_is_not_taken_ends_the_launch(answer: bytes, tmp_path: Path) -> None:
    with supervised(PLAN, "touch", str(tmp_path / "ran")) as launch:
        launch.take_listener().close()
        launch.proxy.send(answer)
        launch.proxy.shutdown(socket.SHUT_WR)
        ended = launch.finish()
    assert ended == Ended(125, "confine listener on 127.0.0.1: the proxy did not take the listener\n", "")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("plan", "line"),
    [
        (LaunchPlan(port=PORT), "confine listener on 127.0.0.1: it takes a channel and a seccomp filter\n"),
        (LaunchPlan(cwd="/no-such"), "confine working folder: /no-such: No such file or directory\n"),
        (LaunchPlan(program=b"\xff" * 8), "confine seccomp filter: Invalid argument\n"),
        (LaunchPlan(landlock=LandlockRules(8, 1 << 60, 0, 0, ())), "confine Landlock: Invalid argument\n"),
        (LaunchPlan(private_tmp="/no/a"), "confine private folder: /no/a-PID: No such file or directory\n"),
    ],
)
def test_what_cannot_be_confined_is_not_run(plan: LaunchPlan, line: str, tmp_path: Path) -> None:
    with supervised(plan, "touch", str(tmp_path / "ran")) as launch:
        assert launch.finish() == Ended(125, line.replace("PID", str(launch.process.pid)), "")
    assert not (tmp_path / "ran").exists()


def test_a_command_that_cannot_be_executed_says_why() -> None:
    missing = Ended(127, "exec ENOENT no-such-command: No such file or directory\n", "")
    assert run(PLAN, "no-such-command") == missing
    assert run(PLAN, "/etc/passwd") == Ended(126, "exec EACCES /etc/passwd: Permission denied\n", "")


def test_nothing_in_the_working_folder_is_imported(tmp_path: Path) -> None:
    for name in ("launcher", "connects", "ctypes", "struct", "os", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path)}
    assert run(OFFLINE, "true", cwd=tmp_path, environment=environment) == Ended(0, "", "")
    assert not (tmp_path / "ran").exists()


# The command's surroundings


def test_the_command_has_no_capability_no_descriptor_and_no_way_back() -> None:
    code = """
import os
lines = dict(line.split(':') for line in open('/proc/self/status') if ':' in line and 'Name' not in line)
print([lines[name].strip() for name in ('CapEff', 'CapPrm', 'NoNewPrivs', 'Seccomp', 'SigBlk', 'SigIgn')])
print(os.listdir('/proc/self/fd'), os.getsid(0) == os.getpid())
"""
    none = "0" * 16
    expected = (
        f"{[none, none, '1', '2', none, '0000000001001000']}\n['0', '1', '2', '3'] True\n"  # Python's two
    )
    with socket.socket() as left_open:
        assert run(PLAN, *python(code), more=(left_open.fileno(),)) == Ended(0, "", expected)


def test_the_supervisor_itself_keeps_no_capability_no_stream_and_no_other_descriptor() -> None:
    with (
        socket.socket() as left_open,
        supervised(PLAN, "sleep", "60", more=(left_open.fileno(),)) as launch,
        launch.serve(),
    ):
        assert launch.errors() == ""
        assert f"CapEff:\t{0:016x}\n" in Path(f"/proc/{launch.process.pid}/status").read_text()
        folder = f"/proc/{launch.process.pid}/fd"
        kept = sorted(os.readlink(f"{folder}/{number}").partition(":")[0] for number in os.listdir(folder))
    assert kept == ["/dev/null", "/dev/null", "/dev/null", "anon_inode", "socket"]  # notifications, channel


def test_the_channel_stays_open_for_the_run_and_ends_with_it() -> None:
    with supervised(PLAN, "cat", stdin=(ends := os.pipe())[0]) as launch, launch.serve():
        assert launch.errors() == ""
        assert select.select([launch.proxy], [], [], 0)[0] == []
        for end in ends:
            os.close(end)
        assert launch.proxy.recv(1) == b""


def test_a_stream_that_the_command_closes_ends_for_its_reader() -> None:
    with supervised(OFFLINE, "sh", "-c", "echo last; exec sleep 60 >&- 2>&-") as launch:
        assert launch.process.stdout is not None
        assert launch.process.stdout.read() == "last\n"
        assert launch.process.poll() is None


def test_its_folder_for_temporary_files_is_its_own_and_goes_with_it(tmp_path: Path) -> None:
    folder = tmp_path / "private"
    plan = LaunchPlan(landlock=launches.writable(folder), private_tmp=str(folder))
    ended = run(plan, "sh", "-c", 'stat -c "%a %n" "$TMPDIR" && mktemp -d >/dev/null && touch "$TMPDIR/a"')
    assert re.fullmatch(rf"700 {re.escape(str(folder))}-\d+\n", ended.output)
    assert ended.status == 0
    assert not list(tmp_path.iterdir())


def test_no_tree_is_too_deep_or_too_closed_to_be_removed(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "private", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    code = """
import os, sys
os.chdir(os.environ['TMPDIR']); os.symlink(sys.argv[1], 'link'); os.mkfifo('pipe')
os.mkdir('closed'); os.mkdir('closed/in'); os.chmod('closed/in', 0); os.chmod('closed', 0)
deep = 'd' * 200
for _ in range(40): os.mkdir(deep); os.symlink(sys.argv[1], 'link2'); os.chdir(deep)
"""
    plan = LaunchPlan(landlock=launches.writable(folder), private_tmp=str(folder))
    assert run(plan, *python(code, str(elsewhere))) == Ended(0, "", "")
    assert list(tmp_path.iterdir()) == [elsewhere]
    assert (elsewhere / "kept").exists()


# The end


@pytest.mark.parametrize("code", [0, 1, 42, 125, 126, 127, 137, 143])
def test_the_commands_exit_code_is_the_supervisors(code: int) -> None:
    assert run(OFFLINE, "sh", "-c", f"exit {code}") == Ended(code, "", "")


@pytest.mark.parametrize("name", ["KILL", "TERM", "SEGV", "USR1", "INT", "QUIT", "PIPE"])
def test_the_commands_death_by_a_signal_is_the_supervisors(name: str) -> None:
    status = run(OFFLINE, "sh", "-c", f"ulimit -c 0; kill -{name} $$").status
    assert status == -signal.Signals[f"SIG{name}"]


def test_a_daemon_does_not_outlive_the_command() -> None:
    with supervised(PLAN, *python(DAEMON.format(then="os._exit(3)"))) as launch, launch.serve():
        daemon = number_of(launch)
        assert launch.process.wait(10) == 3
        assert is_gone(daemon)


def test_a_crowd_of_daemons_does_not_outlive_the_command() -> None:
    """They hold the command's stdout, whose end is waited for here."""
    code = """
import os, time
for _ in range(40):
    if os.fork() == 0:
        os.setsid()
        for _ in range(4): os.fork()
        time.sleep(60)
"""
    assert run(OFFLINE, *python(code)) == Ended(0, "", "")


def test_a_process_that_forks_and_ends_without_end_is_caught() -> None:
    runner = "setpgrp; if (!fork) { while (1) { exit if fork } }"
    assert run(OFFLINE, "perl", "-e", runner) == Ended(0, "", "")


def test_a_kernel_without_lists_of_children_is_searched_for_them() -> None:
    """Whatever a process calls itself."""
    name = "import ctypes, time; ctypes.CDLL(None).prctl(15, b') R 1 ('); print(flush=True); time.sleep(60)"
    with subprocess.Popen(python(name), stdout=subprocess.PIPE) as named:
        assert named.stdout is not None
        named.stdout.readline()
        assert supervisor.parent_of(str(named.pid)) == os.getpid()
        named.kill()
    assert supervisor.parent_of(str(named.pid)) == 0


def test_signals_are_forwarded_and_the_commands_answer_counts() -> None:
    code = """
import signal, sys
seen = []
for name in ('TERM', 'INT', 'HUP', 'QUIT', 'USR1', 'USR2'):
    signal.signal(getattr(signal, 'SIG' + name), lambda number, _: seen.append(number))
print(0, flush=True)
while len(seen) < 6: signal.pause()
sys.exit(len({*seen}))
"""
    with supervised(OFFLINE, *python(code)) as launch:
        number_of(launch)
        for name in ("TERM", "INT", "HUP", "QUIT", "USR1", "USR2"):
            launch.process.send_signal(signal.Signals[f"SIG{name}"])
        assert launch.process.wait(10) == 6


@pytest.mark.parametrize("own_session", [True, False])
def test_a_key_of_the_terminal_reaches_the_command_once(own_session: bool) -> None:
    code = """
import os, signal
seen = []
signal.signal(signal.SIGINT, lambda *_: os.write(1, b'7\\n' if seen.append(0) is None else b''))
signal.signal(signal.SIGUSR1, lambda *_: os._exit(len(seen)))
print(6, flush=True)
while True: signal.pause()
"""
    master, terminal = pty.openpty()
    plan = LaunchPlan(program=OFFLINE.program, new_session=own_session)
    with supervised(plan, *python(code), before=("setsid", "-c"), stdin=terminal) as launch:
        assert number_of(launch) == 6
        os.write(master, b"\x03")
        assert number_of(launch) == 7
        launch.process.send_signal(signal.SIGUSR1)
        assert launch.process.wait(10) == 1
    os.close(master)
    os.close(terminal)


def test_an_interactive_command_stays_in_its_callers_process_group() -> None:
    """So that the terminal's stop key stops both, and the shell's fg continues both."""
    plan = LaunchPlan(program=OFFLINE.program)
    with supervised(plan, *python("import os; print(os.getpgid(0), flush=True)"), own_session=True) as launch:
        assert number_of(launch) == launch.process.pid


def test_a_killed_supervisor_takes_the_command_with_it() -> None:
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    with supervised(PLAN, *python(code)) as launch, launch.serve():
        command = number_of(launch)
        launch.process.kill()
        eventually(lambda: is_gone(command), what="the command to end")


def test_what_outlives_a_killed_supervisor_has_no_network(tmp_path: Path) -> None:
    answer = tmp_path / "answer"
    code = f"""
import os, signal, socket, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
if os.fork(): signal.sigwait([signal.SIGUSR2])
os.setsid()
print(os.getpid(), flush=True)
signal.sigwait([signal.SIGUSR1])
with open(sys.argv[1], 'w') as file: print(socket.socket().connect_ex(('127.0.0.1', {PORT})), file=file)
"""
    plan = LaunchPlan(port=PORT, landlock=launches.writable(tmp_path), program=PLAN.program)
    with supervised(plan, *python(code, str(answer))) as launch, launch.serve():
        daemon = number_of(launch)
        launch.process.kill()
        launch.process.wait()
        os.kill(daemon, signal.SIGUSR1)
        eventually(lambda: is_gone(daemon), what="the daemon's one attempt")
    assert answer.read_text() == f"{errno.ENOSYS}\n"


def test_the_end_of_the_supervisors_parent_ends_everything() -> None:
    code = DAEMON.format(then="time.sleep(60)")
    with supervised(OFFLINE, *python(code), before=("sh", "-c", '"$@" & wait', "sh")) as launch:
        daemon = number_of(launch)
        assert not is_gone(daemon)
        launch.process.kill()
        eventually(lambda: is_gone(daemon), what="the daemon to end")


def test_a_caller_that_ignores_its_childrens_ends_gets_the_status_all_the_same() -> None:
    ignoring = "signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    before = python(f"import os, signal, sys; {ignoring}")
    assert run(OFFLINE, "sh", "-c", "exit 42", before=before) == Ended(42, "", "")


def test_the_folder_of_a_killed_supervisor_is_removed_by_the_next_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "FRESH_S", -1)
    folders = [tmp_path / f"egress-sandbox-{name}" for name in ("stale", "used")]
    for folder in (*folders, tmp_path / "other"):
        (folder / "deep/er").mkdir(parents=True)
    (tmp_path / "egress-sandbox-link").symlink_to(tmp_path / "other")
    held = os.open(folders[1], os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    supervisor.remove_stale_folders(os.fsencode(tmp_path))
    os.close(held)
    assert {path.name for path in tmp_path.iterdir()} == {
        "egress-sandbox-link",
        "egress-sandbox-used",
        "other",
    }
    assert (tmp_path / "other/deep/er").exists()
    supervisor.remove_stale_folders(b"/nowhere")
