"""`run` opens no port that another user could use; `serve --same-user` asks whose a connection is."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.certificates import CertificateAuthority
from tests.support.confined_run import BACKENDS, USERS, RunGround
from tests.support.ordinary_user import UID
from tests.support.origins import EchoOrigin
from tests.support.service import Service

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="cannot be installed here: another user")
LISTEN = "0A"
ASK = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 10) as sock:
    sock.sendall(f"CONNECT {sys.argv[2]} HTTP/1.1\\r\\n\\r\\n".encode())
    if sys.argv[3:]:
        sys.exit()
    print(sock.recv(4096).decode())
"""


@pytest.fixture(scope="module", params=USERS)
def ground(request: pytest.FixtureRequest, ca: CertificateAuthority) -> Iterator[RunGround]:
    with RunGround(ca, request.param) as made:
        yield made


def host_ports(pids: set[int]) -> list[int]:
    """Where these processes listen on the host."""
    inodes = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            inodes.update(re.findall(r"socket:\[(\d+)\]", os.readlink(link)))
    found = []
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTEN and fields[9] in inodes:
                found.append(int(fields[1].rpartition(":")[2], 16))
    return found


def asked(port: int, target: str, *more: str) -> str:
    """By another user."""
    words = ("/usr/bin/python3", "-I", "-c", ASK, str(port), target, *more)
    done = subprocess.run(
        words, user=UID - 1, group=UID - 1, extra_groups=(), capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_root
@pytest.mark.parametrize("backend", BACKENDS)
def test_run_is_reached_from_inside_its_sandbox_alone(ground: RunGround, backend: str) -> None:
    target = f"listed.example:{ground.origin.port}"
    script = "echo ready; read line; " + " ".join(ground.curl())
    audit = ground.folder / f"{backend}.jsonl"
    flags = (*ground.flags, "--backend", backend, "-q", "--audit", str(audit))
    with ground.started("sh", "-c", script, flags=flags, stdin=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        ports = host_ports({process.pid})
        assert len(ports) == (1 if backend == "landlock" else 0)
        for port in ports:
            answer = asked(port, target)
            assert answer.startswith("HTTP/1.1 407 ")
            assert "takes connections of its own user alone" in answer
            asked(port, target, "and leave")
        out, _ = process.communicate("\n", timeout=50)
    assert (process.returncode, out) == (0, "hello from the origin\n")
    verdicts = [json.loads(line).get("verdict") for line in audit.read_text().splitlines()]
    assert verdicts.count("allow") == 1  # the command's own
    assert verdicts.count("deny") == 2 * len(ports)


@needs_root
def test_serve_asks_whose_a_connection_is_when_it_is_told_to() -> None:
    with EchoOrigin() as origin:
        with Service("--allow", origin.address) as service:
            assert asked(service.proxy_port, origin.address).startswith("HTTP/1.1 200 ")
        with Service("--allow", origin.address, "--same-user") as service:
            assert asked(service.proxy_port, origin.address).startswith("HTTP/1.1 407 ")
            assert service.connect(origin.address).status == 200
