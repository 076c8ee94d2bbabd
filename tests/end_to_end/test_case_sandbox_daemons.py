"""Case C65: a command cannot ask the daemons of the host to work for it, whatever socket they listen on.

A read-only mount does not stop a connect: docker, the session's bus, systemd, tmux and agents are such.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest

from tests.conftest import Start
from tests.support.certificates import CertificateAuthority
from tests.support.confined_run import BACKENDS, RunGround

KNOCK = """
import json, os, socket, sys
def knock(kind, address):
    try:
        with socket.socket(socket.AF_UNIX, kind) as s:
            s.connect(address); s.send(b"knock"); return "reached"
    except OSError: return "refused"
daemons = json.loads(sys.argv[1])
print(json.dumps([knock(getattr(socket, kind), name.replace("@", chr(0))) for kind, name in daemons]))
print(json.dumps([name in os.environ for name in sys.argv[2:]]))
"""
NAMES = ("SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "DOCKER_HOST", "XDG_RUNTIME_DIR")


@pytest.fixture(scope="module")
def ground(ca: CertificateAuthority) -> Iterator[RunGround]:
    with RunGround(ca) as made:
        yield made


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_socket_of_the_host_answers_and_no_variable_names_one(
    ground: RunGround, start: Start, backend: str
) -> None:
    (ground.folder / "root").mkdir(exist_ok=True)
    daemons = [
        ("SOCK_STREAM", str(ground.folder.parent / f"{backend}.sock")),
        ("SOCK_STREAM", str(ground.folder / "root" / f"{backend}.sock")),  # in what may be written, too
        ("SOCK_STREAM", f"{ground.environment['XDG_RUNTIME_DIR']}/{backend}-bus"),
        ("SOCK_STREAM", f"@egress-test-{backend}-{ground.origin.port}"),
        ("SOCK_DGRAM", str(ground.folder / f"{backend}.dgram")),
    ]
    listeners = []
    for kind, address in daemons:
        listener = start(socket.socket(socket.AF_UNIX, getattr(socket, kind)))
        listener.bind(address.replace("@", "\0"))
        listener.setblocking(False)
        if kind == "SOCK_STREAM":
            listener.listen()
        listeners.append(listener)
    env = dict.fromkeys(NAMES, daemons[2][1])
    flags = ("-q", "--backend", backend, "--rw", "root")
    ran = ground.run("/usr/bin/python3", "-c", KNOCK, json.dumps(daemons), *NAMES, flags=flags, env=env)
    assert ran.code == 0, ran.err
    knocked, named = map(json.loads, ran.out.splitlines())
    assert knocked == ["refused"] * len(daemons)
    assert named == [False] * len(NAMES)
    for (kind, _), listener in zip(daemons, listeners, strict=True):
        with pytest.raises(BlockingIOError):
            listener.accept() if kind == "SOCK_STREAM" else listener.recv(10)
