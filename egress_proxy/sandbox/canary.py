"""What the probe runs in the sandbox: tries what must fail and what must work, and says how it went.

Standard library alone, imports nothing of ours, started like launcher.py. Next: probe.py (starts it, and
watches from outside).

    python -I -S canary.py OUTSIDE HOME TCP_PORT UDP_PORT UNIX_PATH MARKER VICTIM_PID ROOT PROXY_PORT

One line on stdout per attempt: its name, and `ok` or what happened. OUTSIDE is a file that must not be made,
HOME a folder in which none may be made, not even one without a name, which would leave nothing behind;
VICTIM_PID is a process that must not be killed, MARKER a word that must be in no environment. ROOT is a
folder that can be written, PROXY_PORT where the proxy must answer, `-` where there is none.
"""

import _socket
import os
import signal
import sys
from collections.abc import Callable

_TIMEOUT_S = 2.0
_ARGUMENTS = 9


def _connect(family: int, kind: int, address: tuple[str, int] | str) -> _socket.socket:
    sock = _socket.socket(family, kind)
    sock.settimeout(_TIMEOUT_S)
    sock.connect(address)
    return sock


def _write(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))


def _write_nameless(folder: str) -> None:
    os.close(os.open(folder, os.O_WRONLY | os.O_TMPFILE, 0o600))


def _send_udp(port: int) -> None:
    sock = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    sock.sendto(b"canary", ("127.0.0.1", port))


def _read_marker(marker: str) -> None:
    """Raises OSError unless the prober's environment can be read somewhere."""
    wanted = marker.encode()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            descriptor = os.open(f"/proc/{pid}/environ", os.O_RDONLY)
        except OSError:
            continue
        try:
            if wanted in os.read(descriptor, 1 << 20):
                return
        except OSError:
            continue
        finally:
            os.close(descriptor)
    raise FileNotFoundError(marker)


def _reach_proxy(port: int) -> None:
    sock = _connect(_socket.AF_INET, _socket.SOCK_STREAM, ("127.0.0.1", port))
    sock.sendall(b"?")
    if sock.recv(1) != b"!":
        raise ConnectionError("no answer")


def _outcome(attempt: Callable[[], object]) -> str:
    """``ok`` when nothing went wrong, else the kind of the error."""
    try:
        attempt()
    except OSError as error:
        return type(error).__name__
    return "ok"


def main(arguments: list[str]) -> None:
    outside, home, tcp_port, udp_port, unix_path, marker, victim, root, proxy_port = arguments
    here = "127.0.0.1"
    attempts: dict[str, Callable[[], object]] = {
        "write": lambda: _write(outside),
        "home": lambda: _write_nameless(home),
        "tcp": lambda: _connect(_socket.AF_INET, _socket.SOCK_STREAM, (here, int(tcp_port))),
        "udp": lambda: _send_udp(int(udp_port)),
        "unix": lambda: _connect(_socket.AF_UNIX, _socket.SOCK_STREAM, unix_path),
        "marker": lambda: _read_marker(marker),
        "signal": lambda: os.kill(int(victim), signal.SIGKILL),
    }
    attempts["root"] = lambda: _write(f"{root}/canary")
    if proxy_port != "-":
        attempts["proxy"] = lambda: _reach_proxy(int(proxy_port))
    for name, attempt in attempts.items():
        sys.stdout.write(f"{name} {_outcome(attempt)}\n")


if __name__ == "__main__" and len(sys.argv) == _ARGUMENTS + 1:
    main(sys.argv[1:])
