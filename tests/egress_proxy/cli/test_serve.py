"""Starting the service: where it listens, what it says, and what keeps it from starting."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Start
from tests.support.byte_stream import connect, read_exactly
from tests.support.http import read_head
from tests.support.origins import EchoOrigin
from tests.support.program import run_cli
from tests.support.sandbox_caller import SandboxCaller
from tests.support.service import Service
from tests.support.service_answers import connect_request

TOKEN = {"TOKEN": "control-token"}


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def fails_to_start(*args: str) -> str:
    """The one line that says why, of a service that could have served."""
    done = run_cli("serve", "--allow", "ok.example", *args, env=TOKEN)
    assert (done.returncode, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("error: ")
    return line


def test_a_taken_data_port_is_named(taken: int) -> None:
    assert f"127.0.0.1:{taken}" in fails_to_start("--bind", f"127.0.0.1:{taken}")


def test_a_taken_control_port_is_named(taken: int) -> None:
    args = ("--bind", "127.0.0.1:0", "--control-port", str(taken), "--control-token-env", "TOKEN")
    assert f"127.0.0.1:{taken}" in fails_to_start(*args)


@pytest.mark.parametrize("flag", ["--audit", "--listen-unix"])
def test_a_file_that_cannot_be_made_is_named(flag: str, tmp_path: Path) -> None:
    path = str(tmp_path / "no-such-folder" / "file")
    assert path in fails_to_start("--bind", "127.0.0.1:0", flag, path)


@pytest.mark.parametrize("relay", ["loop", "epoll"])
def test_every_way_to_drive_tunnels_serves(relay: str, start: Start) -> None:
    echo = start(EchoOrigin())
    service = start(Service("--allow", echo.address, "--relay", relay))
    sock = service.tunnel(echo.address, b"early ")
    sock.sendall(b"and late")
    assert read_exactly(sock, 14) == b"early and late"


def test_a_unix_socket_serves_is_private_and_goes_with_the_service(tmp_path: Path, start: Start) -> None:
    echo = start(EchoOrigin())
    path = tmp_path / "egress.sock"
    service = start(Service("--allow", echo.address, "--listen-unix", str(path)))
    assert path.stat().st_mode & 0o777 == 0o600
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(5)
        sock.connect(str(path))
        sock.sendall(connect_request(echo.address))
        assert read_head(sock).status == 200
    assert service.stop() == 0
    assert not path.exists()


def test_all_ports_accept_when_they_are_announced_and_nothing_else_is_said(start: Start) -> None:
    service = start(Service("--allow", "ok.example", token="control-token"))
    for port in (service.proxy_port, service.control_port):
        connect(port).close()
    SandboxCaller(service.attach_path).close()
    assert service.stdout.text.splitlines() == [
        f"EGRESS_PROXY_PORT={service.proxy_port}",
        f"EGRESS_CONTROL_PORT={service.control_port}",
        f"EGRESS_ATTACH={service.attach_path}",
    ]


def test_the_control_port_is_never_dialled(start: Start) -> None:
    service = start(Service("--allow", "127.0.0.1:*", token="control-token"))
    for port in (service.proxy_port, service.control_port):
        answer = service.connect(f"127.0.0.1:{port}")
        assert (answer.status, answer.error) == (403, "blocked-by-address")
        assert answer.json()["reason"].startswith("own_listener")
