"""`egress-proxy run`: the listed host is reached, every other road is shut, and the end is told truly.

On both rungs, as root and as an ordinary user. Streams, signals and the terminal have files of their own.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conftest import Start
from tests.support.certificates import CertificateAuthority
from tests.support.confined_run import (
    BACKENDS,
    BODY,
    END_S,
    LISTED,
    UNLISTED,
    USERS,
    RunGround,
    folders_of,
    in_place_of_bwrap,
)
from tests.support.program import REPOSITORY, run_cli
from tests.support.service import TOKEN, Service

PYTHON = "/usr/bin/python3"
ROADS = """
import json, os, socket, sys
there = json.loads(sys.argv[1])
def tried(road):
    try: return road() or "ok"
    except OSError as error: return type(error).__name__
def connect(family, address):
    with socket.socket(family) as s: s.settimeout(5); s.connect(address); return "ok"
def send(address):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s: s.sendto(b"out", address)
def post(head):
    port = int(os.environ["HTTPS_PROXY"].rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), 5) as s:
        s.sendall(head.encode()); return s.recv(12).decode()
print(json.dumps({
    "tcp": tried(lambda: connect(socket.AF_INET, ("127.0.0.1", there["tcp"]))),
    "tcp elsewhere": tried(lambda: connect(socket.AF_INET, ("127.0.0.2", there["tcp"]))),
    "ipv6": tried(lambda: connect(socket.AF_INET6, ("::1", there["ipv6"]))),
    "udp": tried(lambda: send(("127.0.0.1", there["udp"]))),
    "dns": tried(lambda: send(("127.0.0.1", there["dns"]))),
    "name": tried(lambda: str(socket.getaddrinfo("listed.example", 443) and "")),
    "unix": tried(lambda: connect(socket.AF_UNIX, there["unix"])),
    "abstract": tried(lambda: connect(socket.AF_UNIX, chr(0) + there["abstract"])),
    "inherited": tried(lambda: os.write(there["inherited"], b"out") and ""),
    "control": tried(lambda: connect(socket.AF_INET, ("127.0.0.1", there["control"]))),
    "control by the proxy": tried(lambda: post(there["connect"])),
    "control by a request": tried(lambda: post(there["post"])),
}))
"""


@pytest.fixture(scope="module")
def ground(ca: CertificateAuthority) -> Iterator[RunGround]:
    with RunGround(ca) as made:
        yield made


@pytest.fixture(scope="module", params=USERS)
def users_ground(request: pytest.FixtureRequest, ca: CertificateAuthority) -> Iterator[RunGround]:
    """Once as whoever runs the tests, and once as an ordinary user where that is root."""
    with RunGround(ca, request.param) as made:
        yield made


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_listed_host_is_reached_and_no_other(users_ground: RunGround, backend: str) -> None:
    ground = users_ground
    flags = (*ground.flags, "--backend", backend)
    reached = ground.run(*ground.curl(), flags=flags)
    assert (reached.code, reached.out) == (0, BODY)
    before = len(ground.origin.connections)
    refused = ground.run(*ground.curl(UNLISTED), flags=flags)
    assert (refused.code, refused.out) == (56, "")
    assert "403" in refused.err
    assert len(ground.origin.connections) == before


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_other_road_is_shut(users_ground: RunGround, backend: str, start: Start) -> None:
    ground = users_ground
    service = start(Service("--allow-none", token=TOKEN))
    tcp, ipv6, udp, unix, abstract = (
        start(socket.socket(*kind))
        for kind in (
            (socket.AF_INET,),
            (socket.AF_INET6,),
            (socket.AF_INET, socket.SOCK_DGRAM),
            (socket.AF_UNIX,),
            (socket.AF_UNIX,),
        )
    )
    tcp.bind(("0.0.0.0", 0))
    ipv6.bind(("::1", 0))
    udp.bind(("127.0.0.1", 0))
    unix.bind(str(ground.folder / f"{backend}.sock"))
    (ground.folder / f"{backend}.sock").chmod(0o777)
    abstract.bind(f"\0egress-test-{backend}-{tcp.getsockname()[1]}")
    for listener in (tcp, ipv6, unix, abstract):
        listener.listen()
        listener.setblocking(False)
    udp.setblocking(False)
    ours, theirs = socket.socketpair()
    asked = ground.dns.total_queries
    start(ours)
    ours.setblocking(False)
    with theirs:
        there = {
            "tcp": tcp.getsockname()[1],
            "ipv6": ipv6.getsockname()[1],
            "udp": udp.getsockname()[1],
            "dns": ground.dns.port,
            "unix": unix.getsockname(),
            "abstract": abstract.getsockname()[1:].decode(),
            "inherited": theirs.fileno(),
            "control": service.control_port,
            "connect": f"CONNECT 127.0.0.1:{service.control_port} HTTP/1.1\r\n\r\n",
            "post": f"POST http://127.0.0.1:{service.control_port}/allow HTTP/1.1\r\n"
            f"Host: 127.0.0.1:{service.control_port}\r\nAuthorization: Bearer {TOKEN}\r\n"
            'Content-Type: application/json\r\nContent-Length: 19\r\n\r\n{"host":"a.example"}',
        }
        ran = ground.run(
            PYTHON, "-c", ROADS, json.dumps(there), flags=(*ground.flags, "--backend", backend, "-q"),
            pass_fds=(theirs.fileno(),),
        )  # fmt: skip
    assert ran.code == 0, ran.err
    tried = json.loads(ran.out)
    assert tried.pop("control by the proxy") == "HTTP/1.1 403"
    assert tried.pop("control by a request") == "HTTP/1.1 405"
    # A datagram to a network of its own is lost without an error; that it did not arrive is seen below.
    lost = {tried.pop("udp"), tried.pop("dns")}
    assert lost <= {"ok", "PermissionError", "ConnectionRefusedError", "OSError"}
    assert "ok" not in tried.values(), tried
    for listener in (tcp, ipv6, unix, abstract):
        with pytest.raises(BlockingIOError):
            listener.accept()
    with pytest.raises(BlockingIOError):
        udp.recv(10)
    assert ours.recv(10) == b""  # its end is closed, and nothing was written
    assert ground.dns.total_queries == asked
    assert ground.dns.total_queries == asked
    assert service.control("GET", "/grants").json()["grants"] == []


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("script", "code"),
    [(f"exit {code}", code) for code in (0, 1, 42, 125, 126, 127)]
    + [("kill -TERM $$", 143), ("kill -KILL $$", 137), ("kill -HUP $$", 129)],
)
def test_the_exit_code_is_the_commands_own(ground: RunGround, backend: str, script: str, code: int) -> None:
    ran = ground.run("sh", "-c", script, flags=("--backend", backend))
    assert ran.code == code
    assert ran.err.splitlines()[0] == (
        f"egress-proxy run: exit {code}, confined by {backend}, enforcement full"
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("command", "code", "line"),
    [
        ("no-such-program", 127, "error: cannot execute no-such-program: No such file or directory"),
        ("/etc/passwd", 126, "error: cannot execute /etc/passwd: Permission denied"),
    ],
)
def test_what_cannot_be_executed_is_said_in_one_line(
    ground: RunGround, backend: str, command: str, code: int, line: str
) -> None:
    ran = ground.run(command, flags=("--backend", backend))
    assert (ran.code, ran.out, ran.err) == (code, "", line + "\n")


@pytest.mark.parametrize(
    "words",
    [
        ["run"],
        ["run", "--"],
        ["run", "curl", "https://a.example"],
        ["run", "--rw", "/nowhere", "--", "true"],
        ["run", "--rw", "/", "--", "true"],
        ["run", "--allow", "https://a.example", "--", "true"],
        ["run", "--backend", "other", "--", "true"],
        ["run", "--nonsense", "--", "true"],
    ],
)
def test_wrong_words_are_one_line_and_nothing_runs(words: list[str]) -> None:
    done = run_cli(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


def test_a_refused_root_is_told_with_the_flag_of_this_verb() -> None:
    assert "--dangerously-rw lifts this" in run_cli("run", "--rw", "/", "--", "true").stderr


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_summary_names_hosts_files_and_what_was_planted(ground: RunGround, backend: str) -> None:
    script = f"{' '.join(ground.curl())}; {' '.join(ground.curl(UNLISTED))}; echo x > .envrc; touch /etc/x"
    root = ground.folder / backend
    root.mkdir()
    shutil.copy(ground.ca_path, root)
    flags = (*ground.flags, "--backend", backend, "--rw", ".")
    ran = ground.run("sh", "-c", script, flags=flags, cwd=root)
    assert (ran.code, ran.out) == (1, BODY)
    lines = [line.split() for line in ran.err.splitlines()]
    port = ground.origin.port
    assert ["reached", f"{LISTED}:{port}", "1", "connection,"] in [line[:4] for line in lines]
    assert [line[-2:] for line in lines if line[:2] == ["refused", f"{UNLISTED}:{port}"]] == [
        ["--allow", f"{UNLISTED}:{port}"]
    ]
    assert ["refused", "/etc/x", "write"] in lines
    assert ["planted", str(root.resolve() / ".envrc")] in [line[:2] for line in lines]
    assert ("gap" in {line[0] for line in lines if line}) is (backend == "landlock")


def test_quiet_leaves_stderr_to_the_command(ground: RunGround) -> None:
    env = {"EGRESS_BIN": "/usr/bin/egress-proxy"}  # no setting, of which it would warn
    ran = ground.run("sh", "-c", "echo out; echo err >&2", flags=("-q",), env=env)
    assert (ran.code, ran.out, ran.err) == (0, "out\n", "err\n")


@pytest.mark.parametrize("verbosity", [(), ("-v",)])
def test_no_secret_is_in_what_is_said_or_written(ground: RunGround, verbosity: tuple[str, ...]) -> None:
    audit = ground.folder / f"audit{len(verbosity)}.jsonl"
    env = {"STEERABLE_EGRESS_SECRET": "sesame-open", "A_TOKEN": "sesame-open"}
    flags = (*ground.flags, *verbosity, "--audit", str(audit))
    script = "env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'"
    ran = ground.run("sh", "-c", script, "sesame-argument", flags=flags, env=env)
    assert "PATH=" in ran.out
    assert "sesame" not in ran.out
    written = ran.err + audit.read_text()
    assert "sesame" not in written
    assert '"label":"sh"' in audit.read_text()


def test_two_at_once_do_not_collide_although_they_share_a_settings_file(ground: RunGround) -> None:
    config = ground.folder / "egress.toml"
    listed, resolver = ground.flags[1], ground.flags[3]
    config.write_text(
        f'listen_unix = "{ground.folder}/data.sock"\nbind = "127.0.0.1:{ground.origin.port}"\n'
        f'allow_private = ["{listed}"]\nresolver = "{resolver}"\n'
    )
    with ThreadPoolExecutor(3) as pool:
        runs = [pool.submit(ground.run, *ground.curl(), flags=("--config", str(config))) for _ in range(3)]
        assert [(run.result().code, run.result().out) for run in runs] == [(0, BODY)] * 3


@pytest.mark.parametrize("inner", BACKENDS)
@pytest.mark.parametrize("outer", BACKENDS)
def test_in_a_sandbox_already_it_is_refused_with_the_reason(
    ground: RunGround, outer: str, inner: str
) -> None:
    again = ground.argv("true", flags=("--backend", inner))
    # Shows the folders of this interpreter and of the product, which may lie where sandboxes hide them.
    shown = Path(os.path.commonpath((Path(again[0]).parent.parent, REPOSITORY)))
    if shown == Path("/"):
        shown = Path(again[0]).parent.parent
    inside = ("env", f"PYTHONPATH={REPOSITORY}", *again)
    ran = ground.run(*inside, flags=("--backend", outer, "-q"), cwd=shown)
    assert ran.code == 125
    assert ran.err.startswith("error: ")
    assert ran.err.count("\n") == 1
    assert "this is a sandbox already" in ran.err


def test_a_tool_that_fails_is_quoted_and_the_command_is_not_run_bare(ground: RunGround) -> None:
    tools = ground.folder / "tools"
    tools.mkdir()
    broken = tools / "bwrap"
    broken.write_text('#!/bin/sh\necho "bwrap: setting up uid map: Permission denied" >&2\nexit 1\n')
    broken.chmod(0o755)
    before = in_place_of_bwrap(broken)
    ran = ground.run("sh", "-c", "echo ran", flags=("--backend", "bwrap"), before=before)
    assert (ran.code, ran.out, ran.err.count("\n")) == (125, "", 1)
    assert "bwrap" in ran.err


def test_the_network_of_the_proxy_is_gone_with_it(ground: RunGround) -> None:
    """Nothing listens any more when the command has ended, and no folder is left."""
    with ground.started("sh", "-c", "echo $HTTPS_PROXY", flags=("-q",)) as process:
        out, _ = process.communicate(timeout=END_S)
    port = int(out.rpartition(":")[2])
    with socket.socket() as sock, pytest.raises(ConnectionRefusedError):
        sock.connect(("127.0.0.1", port))
    assert folders_of(process) == []


def test_nobody_else_can_attach_while_the_command_runs(ground: RunGround) -> None:
    with ground.started("sh", "-c", "echo ready; read line", flags=("-q",), stdin=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert folders_of(process) == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_folder_is_shown_to_be_read(ground: RunGround, tmp_path: Path, backend: str) -> None:
    (tmp_path / "input").write_text("input\n")
    flags = ("-q", "--backend", backend, "--ro", str(tmp_path))
    done = ground.run("sh", "-c", f"cat {tmp_path}/input; echo x > {tmp_path}/input", flags=flags)
    assert (done.code, done.out) == (2, "input\n"), done.err
    assert (tmp_path / "input").read_text() == "input\n"
