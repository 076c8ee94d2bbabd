"""The README's shell blocks, run as they stand there, on a copy of the checkout.

Only ports and the run-time folder are replaced, so that the tour runs beside whatever uses the default ones.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.program import REPOSITORY, clean_environment
from tests.support.service import Service

README = (REPOSITORY / "README.md").read_text()
BLOCK = re.compile(r"^```(sh|text|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
START = "sh deploy/start.sh --allow example.com\n"
CHECKS = "sh tests/run.sh\n"
# Installing comes first, from a package index that may be slow.
INSTALL_S = 240

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux only")
pytestmark = pytest.mark.timeout(INSTALL_S + 60)


def blocks(kind: str, text: str) -> list[str]:
    return [block for found, block in BLOCK.findall(text) if found == kind]


def part(name: str) -> str:
    return README.partition(f"<!-- {name} -->")[2].partition(f"<!-- end of {name} -->")[0]


def tour() -> str:
    return part("tour")


def console(text: str) -> list[tuple[str, str]]:
    """Each command behind a prompt, and what is shown below it."""
    shown = "".join(block for kind, block in BLOCK.findall(text) if kind == "console")
    commands = [command.partition("\n") for command in shown.removeprefix("$ ").split("\n$ ")]
    return [(command, output) for command, _, output in commands]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a clone would hold, changes that are not committed yet included."""
    folder = tmp_path_factory.mktemp("clone")
    argv = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, check=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (REPOSITORY / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, folder / name)
    return folder


@pytest.fixture
def runtime() -> Iterator[Path]:
    """$XDG_RUNTIME_DIR: pytest's own paths may be too long for a socket's name."""
    with tempfile.TemporaryDirectory(prefix="eg-") as folder:
        yield Path(folder)


def environment(folder: Path, port: int, runtime: Path) -> dict[str, str]:
    """A user's shell, with the package index of this machine, and the data port elsewhere."""
    index = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_CERT_"))}
    clean = clean_environment(folder, {"EGRESS_BIND": f"127.0.0.1:{port}", **index})
    clean["XDG_RUNTIME_DIR"] = str(runtime)
    del clean["PYTHONPATH"]  # what was installed is what must run
    return clean


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [sock.getsockname()[1] for sock in sockets]
    finally:
        for sock in sockets:
            sock.close()


def test_every_shell_block_is_run_by_a_test() -> None:
    assert blocks("sh", README) == [START, CHECKS, *blocks("sh", tour())]


def test_the_start_command_installs_and_starts_the_service(checkout: Path, runtime: Path) -> None:
    service = subprocess.Popen(
        ["sh", "-c", f"exec {START}"],
        cwd=checkout,
        env=environment(checkout, 0, runtime),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with service:
        assert service.stdout is not None
        assert re.fullmatch(r"EGRESS_PROXY_PORT=\d+\n", service.stdout.readline())
        assert service.stdout.readline() == f"EGRESS_ATTACH={runtime}/egress-proxy/attach.sock\n"
        service.send_signal(signal.SIGTERM)
        assert service.wait(10) == 0


def test_the_test_command_is_what_ci_runs() -> None:
    commands = [line for line in (REPOSITORY / ".ci/run").read_text().splitlines() if line.startswith("sh ")]
    assert commands == [CHECKS.strip()]


def test_the_tour_prints_what_it_says(checkout: Path, runtime: Path) -> None:
    data, control, web, provider = free_ports(4)
    text = tour()
    for shown, real in (("8899", data), ("8898", control), ("8000", web), ("8001", provider)):
        text = text.replace(shown, str(real))
    text = text.replace("/run/user/1000", str(runtime))
    done = subprocess.run(
        ["bash", "-c", "\n".join(blocks("sh", text))],
        cwd=checkout,
        env=environment(checkout, data, runtime),
        capture_output=True,
        text=True,
        timeout=INSTALL_S,
        check=False,
    )
    assert done.stdout == "".join(blocks("text", text)), done.stderr
    assert done.returncode == 0


@linux_only
def test_the_wrapped_command_is_printed_and_started_as_it_says(tmp_path: Path) -> None:
    """With the command on PATH, the attach socket in its variable, and a home in which nothing was made."""
    (make_folder, _), (wrap, shown), (keep, _), (start, user) = console(part("wrap"))
    with Service("--allow-none") as service:
        env = clean_environment(tmp_path, {"EGRESS_ATTACH": service.attach_path})
        env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
        done = subprocess.run(
            ["bash", "-c", "\n".join((make_folder, wrap, keep, start))],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
    line, *rest = done.stdout.splitlines()
    wrapped, example = json.loads(line), json.loads(shown.replace("…, ", ""))
    assert list(wrapped) == list(example)
    assert wrapped["argv"][-3:] == example["argv"][-3:] == ["--", "agent", "--flag"]
    assert wrapped["argv"][0].startswith("/")
    assert user.strip().isdigit()
    assert rest == [str(os.getuid())], done.stderr
