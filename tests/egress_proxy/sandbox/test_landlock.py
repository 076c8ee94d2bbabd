"""Landlock rulesets: what they hold of each ABI, and what this kernel then lets a command do."""

import errno
import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from egress_proxy.sandbox.bpf import Branch, Comparison, Label, Load, Return, assemble
from egress_proxy.sandbox.landlock import NEWEST_ABI, Files, Net, abi, inside_namespace, ruleset
from egress_proxy.sandbox.plan import LandlockRules, PathRule, PortRule
from egress_proxy.sandbox.spec import Egress, NoNetwork, OpenNetwork, PortsOnly, ThroughProxy
from tests.support.locked import run_locked, run_python

ABIS = range(1, NEWEST_ABI + 1)
HERE = abi()
PROXY = ThroughProxy("/run/attach", 8080)
DEVICE = Files.READ_FILE | Files.WRITE_FILE | Files.TRUNCATE | Files.IOCTL_DEV
FILE_RIGHTS = DEVICE | Files.EXECUTE | Files.RESOLVE_UNIX
NEEDS_LANDLOCK = pytest.mark.skipif(not HERE, reason="Landlock is of Linux")


def rules_for(
    number: int = HERE,
    root: str = "/root-of-a-test",
    egress: Egress | None = None,
    masks: tuple[str, ...] = (),
    terminal: str | None = None,
) -> LandlockRules:
    return ruleset(number, [root], "/private", egress or NoNetwork(), masks, terminal)


# As data.


@pytest.mark.parametrize(("number", "size"), [(1, 8), (3, 8), (4, 16), (5, 16), (6, 24), (10, 24)])
def test_the_attribute_is_as_long_as_in_that_abi(number: int, size: int) -> None:
    assert rules_for(number).attribute_bytes == size


@pytest.mark.parametrize("number", ABIS)
def test_a_ruleset_has_no_bit_that_its_abi_does_not_know(number: int) -> None:
    rules = rules_for(number, egress=PortsOnly(frozenset({443})))
    newest = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16, 6: 16, 7: 16, 8: 16, 9: 17, 10: 17}[number]
    assert rules.handled_fs == 2**newest - 1
    assert rules.handled_net == (0 if number < 4 else 3 if number < 10 else 15)
    assert rules.scoped == (3 if number >= 6 else 0)
    assert all(rule.access and rule.access & ~rules.handled_fs == 0 for rule in rules.paths)
    assert all(rule.access & ~rules.handled_net == 0 for rule in rules.ports)


@pytest.mark.parametrize("number", ABIS)
@pytest.mark.parametrize("egress", [NoNetwork(), PROXY])
def test_no_port_is_granted_where_nothing_or_the_supervisor_connects(number: int, egress: Egress) -> None:
    rules = rules_for(number, egress=egress)
    assert not rules.ports
    assert bool(rules.handled_net) == (number >= 4)


def test_ports_are_granted_for_connects_alone() -> None:
    rules = rules_for(4, egress=PortsOnly(frozenset({443, 80})))
    assert rules.ports == (PortRule(Net.CONNECT_TCP, 80), PortRule(Net.CONNECT_TCP, 443))
    assert rules_for(3, egress=PortsOnly(frozenset({443}))).ports == ()


def test_an_open_network_is_not_handled() -> None:
    assert rules_for(10, egress=OpenNetwork()).handled_net == 0


def test_roots_and_the_private_folder_must_be_there_and_devices_need_not() -> None:
    required = {rule.path for rule in rules_for().paths if rule.required}
    assert required == {"/root-of-a-test", "/private"}


def test_nothing_shared_can_be_written_on_the_landlock_rung() -> None:
    writable = {rule.path for rule in rules_for(10).paths if rule.access & ~(Files.EXECUTE | 0b1100)}
    devices = {f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "ptmx", "tty")}
    assert writable == {"/root-of-a-test", "/private", *devices}


def test_a_terminal_is_granted_by_its_own_path() -> None:
    granted = {rule.path for rule in rules_for(terminal="/dev/pts/3").paths}
    assert {"/dev/pts/3", "/dev/tty"} <= granted
    assert "/dev/pts" not in granted


@pytest.mark.parametrize("path", ["/root-of-a-test", "/private"])
def test_no_device_can_be_made_and_no_foreign_socket_reached_in_a_root(path: str) -> None:
    (access,) = {rule.access for rule in rules_for(10).paths if rule.path == path}
    assert not access & (Files.MAKE_CHAR | Files.MAKE_BLOCK | Files.IOCTL_DEV | Files.RESOLVE_UNIX)


@pytest.mark.parametrize("number", ABIS)
def test_inside_a_namespace_the_network_is_handled_only_by_ports(number: int) -> None:
    alone, shared = inside_namespace(number, ["/w"]), inside_namespace(number, ["/w"], [443])
    assert alone is not None
    assert shared is not None
    assert alone.handled_net == 0
    assert [rule.port for rule in shared.ports] == ([443] if number >= 4 else [])
    assert alone.scoped == shared.scoped == (3 if number >= 6 else 0)


def test_inside_a_namespace_proc_cannot_be_written() -> None:
    rules = inside_namespace(10, ["/w"])
    assert rules is not None
    assert PathRule(Files.EXECUTE | Files.READ_FILE | Files.READ_DIR, "/") in rules.paths
    assert not [rule for rule in rules.paths if rule.path.startswith("/proc")]


def test_without_landlock_the_namespace_is_alone() -> None:
    assert inside_namespace(0, ["/w"]) is None


# In this kernel.

ASK_ABI = "from egress_proxy.sandbox.landlock import abi; print(abi())"


@NEEDS_LANDLOCK
@pytest.mark.parametrize("error", [errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM])
def test_a_kernel_that_refuses_the_question_has_abi_0(error: int) -> None:
    allow, refuse = Return(0x7FFF0000), Return(0x50000 | error)
    program = assemble([Load(0), Branch(Comparison.EQUALS, 444, no="other"), refuse, Label("other"), allow])
    source = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[3])!r}); {ASK_ABI}"
    assert run_python(source, program=program) == "0\n"
    assert int(run_python(source, program=assemble([allow]))) == HERE


ORDINARY = """
set -e
mkdir a b
echo one > a/file; : > a/file; echo two >> a/file
mv a/file b/file; ln b/file a/hard; ln -s ../b/file a/soft
echo new > b/new; mv -f b/new b/file; cp b/file a/copy; rm a/copy
mkfifo a/fifo; rm a/fifo; truncate -s 9 b/file; rm -r a b
echo gone > /dev/null; echo gone 2> /dev/null > /dev/null; head -c 1 /dev/urandom > /dev/null
test -r /etc/passwd; exec 3< /dev/null
mkdir m; mv m n; rmdir n
python3 - <<'P'
import os
open("x", "w").close(); os.mkdir("d"); os.replace("x", "d/x"); os.rename("d/x", "x"); os.unlink("x")
P
"""


@NEEDS_LANDLOCK
@pytest.mark.parametrize("number", range(2, max(HERE, 2) + 1))
def test_ordinary_work_in_a_root_works(tmp_path: Path, number: int) -> None:
    private = tmp_path / "private"
    root = tmp_path / "root"
    private.mkdir()
    root.mkdir()
    rules = ruleset(number, [str(root)], str(private), NoNetwork())
    ended = run_locked(["bash", "-c", ORDINARY], rules, cwd=root)
    assert (ended.returncode, ended.stderr) == (0, "")


TRY = """
import errno, json, os, signal, socket, sys
folder, port, victim = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
def outcome(attempt):
    try:
        attempt()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"
def write(path):
    with open(path, "a") as file:
        file.write("more")
def move():
    os.mkdir("sub")
    open("sub/file", "w").close()
    os.rename("sub/file", "file")
attempts = {
    "write": lambda: write(folder + "/outside"), "create": lambda: write(folder + "/new"),
    "remove": lambda: os.unlink(folder + "/victim"), "truncate": lambda: os.truncate(folder + "/outside", 0),
    "read": lambda: open(folder + "/outside").read(), "mask": lambda: open(folder + "/masked").read(),
    "names": lambda: os.listdir(folder), "move": move, "signal": lambda: os.kill(victim, 0),
    "connect": lambda: socket.create_connection(("127.0.0.1", port)),
    "bind": lambda: socket.socket().bind(("127.0.0.1", 0)),
    "metadata": lambda: os.chmod(folder + "/outside", 0o600),
    "shm": lambda: write("/dev/shm/of-a-landlock-test"), "proc": lambda: write("/proc/self/comm"),
}
print(json.dumps({name: outcome(attempt) for name, attempt in attempts.items()}))
"""


@NEEDS_LANDLOCK
@pytest.mark.parametrize("number", range(1, HERE + 1))
def test_what_an_abi_holds_outside_the_roots(tmp_path: Path, number: int) -> None:
    for name in ("root", "private"):
        (tmp_path / name).mkdir()
    for name in ("outside", "victim", "masked"):
        (tmp_path / name).write_text("content")
    masks = [str(tmp_path / "masked")]
    rules = ruleset(number, [str(tmp_path / "root")], str(tmp_path / "private"), NoNetwork(), masks)
    with socket.create_server(("127.0.0.1", 0)) as server, subprocess.Popen(["sleep", "60"]) as victim:
        port = str(server.getsockname()[1])
        said = run_python(TRY, str(tmp_path), port, str(victim.pid), rules=rules, cwd=tmp_path / "root")
        victim.kill()
    assert json.loads(said) == {
        **dict.fromkeys(["write", "create", "remove", "mask", "shm", "proc"], "EACCES"),
        **dict.fromkeys(["read", "names", "metadata"], "done"),
        "truncate": "EACCES" if number >= 3 else "done",
        "move": "done" if number >= 2 else "EXDEV",
        "connect": "EACCES" if number >= 4 else "done",
        "bind": "EACCES" if number >= 4 else "done",
        "signal": "EPERM" if number >= 6 else "done",
    }
    assert (tmp_path / "victim").exists()


@NEEDS_LANDLOCK
@pytest.mark.skipif(HERE < 4, reason="Landlock ports are of Linux 6.7")
def test_only_listed_ports_can_be_connected_to(tmp_path: Path) -> None:
    source = """
import socket, sys
for port in map(int, sys.argv[1:]):
    with socket.socket() as one:
        print(one.connect_ex(("127.0.0.1", port)))
"""
    with socket.create_server(("127.0.0.1", 0)) as listed, socket.create_server(("127.0.0.1", 0)) as other:
        ports = [server.getsockname()[1] for server in (listed, other)]
        rules = ruleset(HERE, [str(tmp_path)], str(tmp_path), PortsOnly(frozenset(ports[:1])))
        said = run_python(source, *map(str, ports), rules=rules)
    assert said.split() == ["0", str(errno.EACCES)]


@NEEDS_LANDLOCK
def test_a_rule_on_a_device_holds_no_right_of_folders() -> None:
    devices = [rule for rule in rules_for(terminal="/dev/pts/0").paths if rule.path.startswith("/dev/")]
    assert devices
    assert all(rule.access & ~int(FILE_RIGHTS) == 0 for rule in devices)


@NEEDS_LANDLOCK
def test_the_rules_inside_a_namespace_are_taken_by_the_kernel(tmp_path: Path) -> None:
    rules = inside_namespace(HERE, [str(tmp_path)])
    source = (
        "import os, pty; master, slave = pty.openpty(); print(os.isatty(slave)); open('/proc/self/comm', 'w')"
    )
    ended = run_locked([sys.executable, "-c", source], rules)
    assert ended.stdout == "True\n"
    assert "PermissionError" in ended.stderr


@pytest.mark.parametrize("number", [1, 10])
def test_of_the_devices_only_the_harmless_few_can_be_read(tmp_path: Path, number: int) -> None:
    """Root may open a disk or the console's screen, which show what masks hide."""
    paths = {rule.path for rule in ruleset(number, [str(tmp_path)], "/private", NoNetwork()).paths}
    harmless = ("null", "zero", "full", "random", "urandom", "tty", "ptmx")
    assert {path for path in paths if path.startswith("/dev")} <= {f"/dev/{name}" for name in harmless}
