"""What every sandbox must allow: one that breaks everything proves nothing.

Run inside. Next: files.py and the others (what it must refuse).
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import socket
import subprocess
import tempfile

from tests.end_to_end.escape.attempts import Ground, Missing, control
from tests.end_to_end.escape.calls import system_call, write

PTRACE = {"x86_64": 101, "aarch64": 117}


@control
def write_root(ground: Ground) -> None:
    write(f"{ground.root}/ok")
    os.rename(f"{ground.root}/ok", f"{ground.root}/ok2")
    os.chmod(f"{ground.root}/ok2", 0o700)
    os.utime(f"{ground.root}/ok2")


@control
def mkdir_link(ground: Ground) -> None:
    os.mkdir(f"{ground.root}/folder")
    write(f"{ground.root}/folder/a")
    os.link(f"{ground.root}/folder/a", f"{ground.root}/b")
    os.rename(f"{ground.root}/folder/a", f"{ground.root}/c")


@control
def dev_null(ground: Ground) -> None:
    write("/dev/null")
    with open("/dev/urandom", "rb") as stream:
        assert len(stream.read(4)) == 4


@control
def tmp(ground: Ground) -> None:
    with tempfile.TemporaryFile() as stream:
        stream.write(b"x")


@control
def execute(ground: Ground) -> None:
    words = ["/bin/sh", "-c", "ls / | wc -l; exit 3"]
    assert subprocess.run(words, stdout=subprocess.PIPE, check=False).returncode == 3


@control
def git(ground: Ground) -> None:
    words = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "init", "-q", f"{ground.root}/g"]
    environment = {**os.environ, "HOME": ground.root}
    done = subprocess.run(words, env=environment, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 0, done.stderr.decode()[-120:]


@control
def signal_own_child(ground: Ground) -> None:
    with subprocess.Popen(["sleep", "9"]) as child:
        child.kill()
        assert child.wait() == -9


@control
def multiprocessing_queue(ground: Ground) -> None:
    """Its locks are in /dev/shm, its pipe is a pipe."""
    queue = multiprocessing.get_context("fork").Queue()
    queue.put(1)
    assert queue.get(timeout=5) == 1


@control
def socketpair(ground: Ground) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.send(b"x")
        assert theirs.recv(1) == b"x"


@control
def proxy(ground: Ground) -> None:
    if not ground.through_proxy:
        raise Missing("no proxy in this sandbox")
    with socket.create_connection(("127.0.0.1", ground.ports["proxy"]), 2) as sock:
        sock.send(b"CONNECT refused.invalid:443 HTTP/1.1\r\nHost: refused.invalid:443\r\n\r\n")
        assert b" 403 " in sock.recv(100)


@control
def localhost_server(ground: Ground) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen(1)
        socket.create_connection(sock.getsockname(), 1).close()
        sock.accept()[0].close()


@control
def getaddrinfo(ground: Ground) -> None:
    assert socket.getaddrinfo("localhost", 80)


@control
def terminal_of_its_own(ground: Ground) -> None:
    master, terminal = os.openpty()
    os.write(terminal, b"x")
    assert os.read(master, 9) == b"x"


@control
def tmp_by_name(ground: Ground) -> None:
    """Programs that do not look at TMPDIR."""
    write(f"/tmp/by-name-{os.getpid()}")
    os.unlink(f"/tmp/by-name-{os.getpid()}")


@control
def trace_own_child(ground: Ground) -> None:
    """PTRACE_TRACEME, as strace and gdb have their child call it."""
    child = os.fork()
    if child == 0:
        try:
            system_call(PTRACE[os.uname().machine], 0, 0, 0, 0)
        except OSError:
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, "PTRACE_TRACEME refused"


@control
def node(ground: Ground) -> None:
    if not shutil.which("node"):
        raise Missing("no node")
    script = 'require("child_process").execSync("true"); console.log(require("os").cpus().length)'
    done = subprocess.run(["node", "-e", script], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[-160:]
