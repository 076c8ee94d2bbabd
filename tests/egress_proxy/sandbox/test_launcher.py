"""What the launcher does before the command's exec, in real processes, and that it fails closed."""

import errno
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from egress_proxy.core import attach
from egress_proxy.sandbox import connects, launcher
from egress_proxy.sandbox.plan import LandlockRules, LaunchPlan, PathRule, PortRule, encode
from egress_proxy.sandbox.seccomp import Network
from tests.support import bwrap_shell, launches
from tests.support.launches import GREETING, LAUNCHER, Ended, launched

CONNECT = (
    "import socket, sys; print(socket.create_connection(('127.0.0.1', int(sys.argv[1]))).recv(99).decode())"
)


def run(plan: LaunchPlan | bytes, *command: str, **how: object) -> Ended:
    with launched(plan, command, **how) as launch:  # type: ignore[arg-type]
        return launch.finish()


def status_lines(ended: Ended) -> dict[str, str]:
    return {
        name: value.strip() for name, _, value in (line.partition(":") for line in ended.output.split("\n"))
    }


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# The command's own end


@pytest.mark.parametrize("code", [0, 1, 42, 125, 126, 127, 137, 143])
def test_the_commands_exit_code_comes_through_with_nothing_on_the_error_pipe(code: int) -> None:
    assert run(LaunchPlan(), "sh", "-c", f"exit {code}") == Ended(code, "", "")


def test_the_commands_death_by_a_signal_is_a_death_by_that_signal() -> None:
    assert run(LaunchPlan(), "sh", "-c", "kill -TERM $$").status == -signal.SIGTERM


def test_what_the_command_prints_is_not_taken_for_a_failure() -> None:
    ended = run(LaunchPlan(), "sh", "-c", "echo sandbox-run: no; exit 125")
    assert ended == Ended(125, "", "sandbox-run: no\n")


@pytest.mark.parametrize(
    ("command", "status", "line"),
    [
        ("no-such-command", 127, "exec ENOENT no-such-command: No such file or directory\n"),
        ("/etc/passwd/x", 127, "exec ENOTDIR /etc/passwd/x: Not a directory\n"),
        ("/etc/passwd", 126, "exec EACCES /etc/passwd: Permission denied\n"),
        ("a\nconfine b", 127, "exec ENOENT a?confine b: No such file or directory\n"),
    ],
)
def test_a_command_that_cannot_be_executed_says_why_on_the_error_pipe(
    command: str, status: int, line: str
) -> None:
    assert run(LaunchPlan(), command) == Ended(status, line, "")


def test_without_an_error_pipe_failures_are_one_line_on_stderr() -> None:
    ended = run(LaunchPlan(), "no-such-command", report=False)
    assert ended == Ended(127, "", "sandbox-run: no-such-command: No such file or directory\n")
    ended = run(LaunchPlan(cwd="/no-such"), "true", report=False)
    assert ended == Ended(125, "", "sandbox-run: working folder: /no-such: No such file or directory\n")


def test_a_long_name_is_cut_so_that_the_error_pipe_needs_no_reader() -> None:
    ended = run(LaunchPlan(), "x" * 100_000)
    assert ended.status == 126
    assert len(ended.errors) == launcher.LINE_BYTES + 1


# Failing closed


@pytest.mark.parametrize(
    ("plan", "step"),
    [
        (b"", "plan: it is cut short"),
        (LaunchPlan(program=b"\0" * 8).encode()[:-5], "plan: it is cut short"),
        (encode([("rule-of-tomorrow", "1")]), "plan: unknown entry rule-of-tomorrow"),
        (encode([("program", "xyz")]), "plan: non-hexadecimal"),
        (encode([("ruleset", "8:x")]), "plan: invalid literal"),
        (LaunchPlan(cwd="/no-such"), "working folder: /no-such: No such file"),
        (LaunchPlan(program=b"\xff" * 8), "seccomp filter: Invalid argument"),
        (LaunchPlan(landlock=LandlockRules(8, 1 << 60, 0, 0, ())), "Landlock: Invalid argument"),
        (LaunchPlan(landlock=launches.writable("/no-such")), "Landlock: /no-such: No such file"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_confined_is_not_run(plan: LaunchPlan | bytes, step: str, tmp_path: Path) -> None:
    ended = run(plan, "touch", str(tmp_path / "ran"))
    assert ended.status == 125
    assert ended.errors.startswith(f"confine {step}")
    assert ended.errors.count("\n") == 1
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "words", [[], ["inner"], ["inner", "3", "-1", "-1", "true"], ["inner", "a", "b", "c", "--", "true"]]
)
def test_wrong_words_are_refused(words: list[str]) -> None:
    ended = subprocess.run([*launches.PYTHON, LAUNCHER, *words], capture_output=True, check=False)
    assert ended.returncode == 125
    assert ended.stderr.startswith(b"sandbox-run: start: ")
    assert ended.stderr.count(b"\n") == 1


# The listener


def test_the_messages_are_those_of_the_attach_protocol() -> None:
    assert (launcher.HAND_OUT, launcher.TAKEN) == (attach.HAND_OUT, attach.TAKEN)


def test_one_listener_on_loopback_is_handed_out_and_the_command_runs_when_it_is_taken() -> None:
    port = free_port()
    with launched(LaunchPlan(port=port), ["true"]) as launch:
        with launch.take_listener() as listener:
            assert (listener.family, listener.type) == (socket.AF_INET, socket.SOCK_STREAM)
            assert listener.getsockname() == ("127.0.0.1", port)
            assert listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1
            launch.proxy.send(b"K")
        assert launch.finish() == Ended(0, "", "")
        assert launch.proxy.recv(1) == b""  # nothing inside holds the channel


@pytest.mark.parametrize("answer", [b"X", b"k", b"\0", b""])
def test_a_listener_that_is_not_taken_ends_the_launch(answer: bytes, tmp_path: Path) -> None:
    with launched(LaunchPlan(port=free_port()), ["touch", str(tmp_path / "ran")]) as launch:
        launch.take_listener().close()
        if answer:
            launch.proxy.send(answer)
        else:
            launch.proxy.shutdown(socket.SHUT_WR)
        ended = launch.finish()
    assert ended.status == 125
    assert ended.errors.endswith(": the proxy did not take the listener\n")
    assert not (tmp_path / "ran").exists()


def test_a_proxy_that_does_not_answer_is_not_waited_for(tmp_path: Path) -> None:
    plan = LaunchPlan(port=free_port(), answer_ms=50)
    with launched(plan, ["touch", str(tmp_path / "ran")]) as launch:
        ended = launch.finish()
    assert ended.status == 125
    assert ended.errors == f"confine listener on 127.0.0.1:{plan.port}: the proxy did not answer in time\n"
    assert not (tmp_path / "ran").exists()


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = run(LaunchPlan(port=port), "true")
    assert ended == Ended(125, f"confine listener on 127.0.0.1:{port}: Address already in use\n", "")


def test_a_listener_needs_a_channel() -> None:
    plan = launches.memory_file(LaunchPlan(port=free_port()).encode())
    words = [*launches.PYTHON, LAUNCHER, "inner", str(plan), "-1", "-1", "--", "true"]
    ended = subprocess.run(words, pass_fds=[plan], capture_output=True, check=False)
    os.close(plan)
    assert ended.returncode == 125


def test_ctrl_c_while_the_proxy_is_awaited_ends_it_as_it_would_a_command() -> None:
    with launched(LaunchPlan(port=free_port()), ["true"]) as launch:
        launch.take_listener().close()
        launch.process.send_signal(signal.SIGINT)
        assert launch.finish() == Ended(-signal.SIGINT, "", "")


def test_sandboxes_with_networks_of_their_own_are_reached_on_one_port_number() -> None:
    if reason := bwrap_shell.unavailable():
        pytest.skip(reason)
    bwrap = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-user"]
    bwrap += [
        "--unshare-net",
        "--unshare-pid",
        "--cap-drop",
        "ALL",
        "--die-with-parent",
        "--new-session",
        "--",
    ]
    plan = LaunchPlan(
        port=8899,
        landlock=launches.read_only(),
        program=launches.program(Network.OWN_NAMESPACE),
        cwd="/",
        new_session=True,
    )
    command = [*launches.PYTHON, "-c", CONNECT, "8899"]
    with (
        launched(plan, command, before=bwrap) as one,
        launched(plan, command, before=bwrap) as two,
        one.serve(),
        two.serve(),
    ):
        greeted = f"{GREETING.decode()}\n"
        assert (one.finish(), two.finish()) == (Ended(0, "", greeted), Ended(0, "", greeted))


# Confinement


LISTING = (*launches.PYTHON, "-c", "import os; print(os.listdir('/proc/self/fd'))")
THREE_STREAMS = "['0', '1', '2', '3']\n"  # the last is the listing's


def test_the_command_has_the_three_streams_and_no_other_descriptor(tmp_path: Path) -> None:
    with socket.socket() as connection, (tmp_path / "file").open("w") as file:
        folder = os.open(tmp_path, os.O_DIRECTORY)
        more = (folder, connection.fileno(), file.fileno())
        ended = run(LaunchPlan(), *LISTING, more=more)
        os.close(folder)
    assert ended == Ended(0, "", THREE_STREAMS)


def test_descriptors_are_closed_where_close_range_is_refused() -> None:
    refusing = LaunchPlan(program=launches.answering(launcher.SYS_CLOSE_RANGE, 0x0005_0000 | errno.ENOSYS))
    code = (
        "import os, sys; os.dup2(1, 9); os.dup2(1, 11); plan = os.memfd_create('plan', 0);"
        "os.write(plan, b'end=\\0'); os.lseek(plan, 0, 0);"
        "os.execv(sys.argv[1], [*sys.argv[1:7], str(plan), '-1', '11', '--', *sys.argv[7:]])"
    )
    nested = (*launches.PYTHON, "-c", code, *launches.PYTHON, LAUNCHER, "inner")
    assert run(refusing, *nested, *LISTING) == Ended(0, "", THREE_STREAMS)


PLANTED = (
    "ctypes",
    "struct",
    "select",
    "errno",
    "os",
    "_socket",
    "_signal",
    "sitecustomize",
    "encodings",
    "json",
)


def test_nothing_in_the_working_folder_is_imported(tmp_path: Path) -> None:
    for name in PLANTED:
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(tmp_path),
        "PYTHONSTARTUP": str(tmp_path / "os.py"),
    }
    ended = run(LaunchPlan(), "true", cwd=tmp_path, environment=environment)
    assert ended == Ended(0, "", "")
    assert not (tmp_path / "ran").exists()


def test_no_capability_no_new_privileges_and_the_filter_are_the_commands() -> None:
    plan = LaunchPlan(program=launches.program(Network.NONE))
    lines = status_lines(run(plan, "cat", "/proc/self/status"))
    sets = ("CapInh", "CapPrm", "CapEff", "CapAmb", *(("CapBnd",) if os.geteuid() == 0 else ()))
    assert {name: int(lines[name], 16) for name in sets} == dict.fromkeys(sets, 0)
    assert (lines["NoNewPrivs"], lines["Seccomp"]) == ("1", "2")


def test_an_ordinary_user_is_confined_alike() -> None:
    if os.geteuid() != 0:
        return  # all of these tests are run so then
    plan = LaunchPlan(landlock=launches.read_only(), program=launches.program(Network.NONE))
    python3 = ("/usr/bin/python3", "-I", "-S")
    with launches.ordinary_folder() as folder:
        script = (f"{folder}/launcher.py", "inner")
        ended = run(plan, "cat", "/proc/self/status", script=script, interpreter=python3, user=65534)
    lines = status_lines(ended)
    assert (ended.status, int(lines["CapEff"], 16), lines["NoNewPrivs"], lines["Seccomp"]) == (0, 0, "1", "2")


def test_signals_are_as_a_program_expects_them() -> None:
    before = ("sh", "-c", 'trap "" USR1; exec "$@"', "sh")
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    try:
        lines = status_lines(run(LaunchPlan(), "cat", "/proc/self/status", before=before))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    assert int(lines["SigBlk"], 16) == 0
    assert int(lines["SigIgn"], 16) == 1 << signal.SIGUSR1 - 1  # the caller's own wish


@pytest.mark.parametrize("leads", [False, True])
def test_a_new_session_is_had_when_asked_for(leads: bool) -> None:
    code = "import os; print(os.getsid(0) == os.getpid())"
    plan = LaunchPlan(new_session=True)
    assert run(plan, *launches.PYTHON, "-c", code, own_session=leads).output == "True\n"
    assert run(LaunchPlan(), *launches.PYTHON, "-c", code).output == "False\n"


def test_the_command_starts_in_the_working_folder(tmp_path: Path) -> None:
    assert run(LaunchPlan(cwd=str(tmp_path)), "pwd").output == f"{tmp_path}\n"


# Landlock and seccomp, as the kernel carries them out


def test_files_are_written_in_the_roots_alone(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    plan = LaunchPlan(landlock=launches.writable(root))
    assert run(plan, "touch", str(root / "a")).status == 0
    assert run(plan, "touch", str(outside / "a")).status == 1
    assert not (outside / "a").exists()


@pytest.mark.parametrize("under_bwrap", [False, True])
def test_a_file_on_stdin_cannot_be_opened_again_for_writing(under_bwrap: bool, tmp_path: Path) -> None:
    if under_bwrap and (reason := bwrap_shell.unavailable()):
        pytest.skip(reason)
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.write_text("kept")
    bwrap = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-user"]
    bwrap += ["--unshare-pid", "--bind", str(root), str(root), "--die-with-parent", "--"]
    with outside.open() as stdin:
        how = {"stdin": stdin.fileno(), "before": bwrap if under_bwrap else ()}
        rules = launches.writable(root)
        ended = run(LaunchPlan(landlock=rules), "sh", "-c", "cat; echo lost > /proc/self/fd/0", **how)
    assert ended.output.startswith("keptsh: ")
    assert outside.read_text() == "kept"


def test_a_path_that_is_not_required_and_not_there_is_left_out(tmp_path: Path) -> None:
    rules = launches.read_only()
    more = (*rules.paths, PathRule(rules.handled_fs, str(tmp_path / "no-such"), required=False))
    plan = LaunchPlan(landlock=LandlockRules(8, rules.handled_fs, 0, 0, more))
    assert run(plan, "true") == Ended(0, "", "")


def test_a_root_that_another_command_has_put_a_link_in_the_place_of_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "root").symlink_to("elsewhere")
    ended = run(LaunchPlan(landlock=launches.writable(tmp_path / "root")), "true")
    assert ended.status == 125
    assert ended.errors.endswith(": it is another file than the one that was checked\n")


def test_tcp_reaches_the_listed_ports_alone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listed, socket.create_server(("127.0.0.1", 0)) as other:
        ports = [server.getsockname()[1] for server in (listed, other)]
        connect_tcp = 2
        rules = LandlockRules(16, 0, connect_tcp, 0, (), (PortRule(connect_tcp, ports[0]),))
        attempt = "socket.socket().connect_ex(('127.0.0.1', int(port)))"
        code = f"import socket, sys; print(*({attempt} for port in sys.argv[1:]))"
        ended = run(LaunchPlan(landlock=rules), *launches.PYTHON, "-c", code, *map(str, ports))
    assert ended.output == f"0 {errno.EACCES}\n"


def test_the_filter_holds_from_the_commands_first_call_on() -> None:
    plan = LaunchPlan(program=launches.program(Network.NONE))
    ended = run(plan, *launches.PYTHON, "-c", "import socket; socket.socket()")
    assert ended.status == 1
    assert "PermissionError" in ended.output


def test_the_numbers_of_system_calls_are_the_kernels() -> None:
    lines = (Path(launches.__file__).parent / "kernel_syscalls.txt").read_text().splitlines()
    kernel = {line.split()[0]: line.split()[1:] for line in lines if not line.startswith("#")}
    for name in ("landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self", "close_range"):
        number = str(getattr(launcher, f"SYS_{name.upper()}"))
        assert kernel[name] == [number, number]
    assert kernel["seccomp"] == [str(launcher.SYS_SECCOMP[machine]) for machine in ("x86_64", "aarch64")]
    for call, name in ((connects.SYS_PIDFD_OPEN, "pidfd_open"), (connects.SYS_PIDFD_GETFD, "pidfd_getfd")):
        assert kernel[name] == [str(call)] * 2


def test_the_scripts_import_little() -> None:
    """Its start is every command's: what is imported besides the interpreter's own has been counted."""
    code = (
        "import sys; before = set(sys.modules); sys.path.append(sys.argv[1]); import launcher;"
        "print(sorted(name for name in set(sys.modules) - before if '.' not in name))"
    )
    folder = str(launches.SANDBOX)
    ended = subprocess.run([*launches.PYTHON, "-c", code, folder], capture_output=True, text=True, check=True)
    own = {
        "launcher",
        "told",
        "mount_check",
        "_socket",
        "_ctypes",
        "ctypes",
        "errno",
        "select",
        "struct",
        "_struct",
        "types",
    }
    own |= {"os", "posixpath", "genericpath", "stat", "_stat", "_collections_abc", "abc", "_abc"}
    assert set(ended.stdout.strip("[]\n").replace("'", "").split(", ")) <= own


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_datagram_socket_is_no_stream_as_it_leads_to_every_socket_file(number: int) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    read_end, write_end = os.pipe()
    plan = launches.memory_file(LaunchPlan().encode())
    streams = {0: subprocess.DEVNULL, 1: subprocess.DEVNULL, 2: subprocess.DEVNULL, number: theirs.fileno()}
    with ours, theirs, os.fdopen(read_end) as errors:
        words = (*launches.PYTHON, LAUNCHER, "inner", str(plan), "-1", str(write_end), "--", "true")
        done = subprocess.run(
            words,
            pass_fds=(plan, write_end),
            stdin=streams[0],
            stdout=streams[1],
            stderr=streams[2],
            check=False,
        )
        os.close(write_end)
        assert done.returncode == 125
        assert errors.read() == f"confine streams: descriptor {number} is a datagram socket; give a pipe\n"
    os.close(plan)
