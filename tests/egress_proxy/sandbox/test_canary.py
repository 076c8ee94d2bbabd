"""Unconfined the canary can do all that it must not: else what it cannot do would prove nothing."""

import socket
import subprocess
import sys
from pathlib import Path

from egress_proxy.sandbox import canary


def test_unconfined_every_attempt_succeeds(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX) as unix,
        subprocess.Popen(("cat",), stdin=subprocess.PIPE, env={"M": "marker"}) as victim,
    ):
        udp.bind(("127.0.0.1", 0))
        unix.bind(str(tmp_path / "unix"))
        unix.listen()
        ports = (str(sock.getsockname()[1]) for sock in (tcp, udp))
        arguments = (*ports, str(tmp_path / "unix"), "marker", str(victim.pid), str(tmp_path), "-")
        words = (sys.executable, "-I", "-S", str(canary.__file__), str(tmp_path / "outside"), str(tmp_path))
        done = subprocess.run((*words, *arguments), capture_output=True, text=True, check=True)
    wanted = ["write", "home", "tcp", "udp", "unix", "marker", "signal", "root"]
    assert done.stdout.splitlines() == [f"{name} ok" for name in wanted]
    assert victim.returncode == -9
    assert (tmp_path / "outside").exists()


def test_it_says_which_error_stood_in_the_way(tmp_path: Path) -> None:
    nothing = str(tmp_path / "none" / "file")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = str(closed.getsockname()[1])
    arguments = (nothing, nothing, port, port, nothing, "no such marker", "999999999", nothing, port)
    words = (sys.executable, "-I", "-S", str(canary.__file__))
    done = subprocess.run((*words, *arguments), capture_output=True, text=True, check=True)
    told = dict(line.split() for line in done.stdout.splitlines())
    assert told == {
        "write": "FileNotFoundError",
        "home": "FileNotFoundError",
        "tcp": "ConnectionRefusedError",
        "udp": "ok",
        "unix": "FileNotFoundError",
        "marker": "FileNotFoundError",
        "signal": "ProcessLookupError",
        "root": "FileNotFoundError",
        "proxy": "ConnectionRefusedError",
    }
