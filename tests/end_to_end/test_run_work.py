"""Ordinary work in `egress-proxy run --rw .`: what developers and agents do all day is done.

What is refused for a reason stands at the end, with the reason.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.programs import npm_program, python_program, system_program
from tests.end_to_end.test_client_pip import NAME, WHEEL, wheel
from tests.support import answers
from tests.support.certificates import CertificateAuthority
from tests.support.confined_run import LISTED, Ran, RunGround

FLAGS = ("-q", "--backend", "bwrap", "--rw", ".")
PIP = ("-m", "pip", "install", "--no-deps", "--no-compile", "--disable-pip-version-check", "--target", "site")
SERVER = "python3 -m http.server --bind 127.0.0.1 8123 >/dev/null 2>&1 &"
AWAIT = "until curl -sS --noproxy '*' http://127.0.0.1:8123/file 2>/dev/null; do sleep 0.05; done"


@pytest.fixture
def ground(ca: CertificateAuthority) -> Iterator[RunGround]:
    with RunGround(ca) as made:
        yield made


def work(ground: RunGround, *command: str) -> Ran:
    return ground.run(*command, flags=(*ground.flags, *FLAGS))


def done(ran: Ran) -> str:
    assert ran.code == 0, ran.err
    return ran.out


def test_git_commits_branches_and_merges(ground: RunGround) -> None:
    who = "git -c user.name=a -c user.email=a@b.c"
    steps = (
        "git init -q -b main . && echo 1 >file && git add file",
        f"{who} commit -q -m one && git checkout -q -b side && echo 2 >file",
        f"{who} commit -q -a -m two && git checkout -q main && {who} merge -q --no-ff -m merged side",
        "git log --topo-order --format=%s",
    )
    assert done(work(ground, "sh", "-c", " && ".join(steps))) == "merged\ntwo\none\n"


def test_pip_installs_from_a_folder_of_wheels(ground: RunGround) -> None:
    (ground.folder / "wheels").mkdir()
    (ground.folder / "wheels" / WHEEL).write_bytes(wheel())
    done(work(ground, _python(), *PIP, "--no-index", "--find-links", "wheels", NAME))
    assert (ground.folder / "site" / f"{NAME}.py").exists()


def test_pip_installs_from_a_listed_index(ground: RunGround) -> None:
    page = f'<!DOCTYPE html><a href="/files/{WHEEL}">{WHEEL}</a>'
    html = [("Content-Type", "text/html")]
    ground.origin.on(f"/simple/{NAME}/", answers.fixed(page.encode(), headers=html))
    ground.origin.on(f"/files/{WHEEL}", answers.fixed(wheel()))
    done(work(ground, _python(), *PIP, "--cert", "ca.pem", "--index-url", f"{ground.url()}simple/", NAME))
    assert (ground.folder / "site" / f"{NAME}.py").exists()
    assert {request.value("Host") for request in ground.origin.requests} == {f"{LISTED}:{ground.origin.port}"}


def _python() -> str:
    """One that has pip, and that bwrap does not hide."""
    return str(Path(python_program("pip")).resolve())


def test_npm_installs_a_package_and_node_runs_it(ground: RunGround) -> None:
    package = ground.folder / "package"
    package.mkdir()
    (package / "package.json").write_text(json.dumps({"name": "tiny", "version": "1.0.0", "main": "main.js"}))
    (package / "main.js").write_text("module.exports = 42;\n")
    with tarfile.open(ground.folder / "tiny.tgz", "w:gz") as packed:
        packed.add(package, "package")
    node, *npm = npm_program()
    if Path(node).is_relative_to("/tmp"):
        shutil.copytree(Path(node).parents[1], ground.folder / "node", symlinks=True)
        moved = [word.replace(str(Path(node).parents[1]), "node") for word in (node, *npm)]
        node, *npm = moved
    home = f"HOME={ground.folder}"
    install = ("install", "--offline", "--no-audit", "--no-fund", "./tiny.tgz")
    done(work(ground, "env", home, node, *npm, *install))
    assert done(work(ground, node, "-e", "console.log(require('tiny'))")) == "42\n"


def test_processes_that_share_work_and_memory(ground: RunGround) -> None:
    script = "import multiprocessing as m\nwith m.Pool(2) as pool: print(pool.map(abs, [-1, -2]))"
    assert done(work(ground, "/usr/bin/python3", "-c", script)) == "[1, 2]\n"


def test_a_local_server_and_its_client(ground: RunGround) -> None:
    (ground.folder / "file").write_text("served\n")
    assert done(work(ground, "sh", "-c", f"{SERVER} {AWAIT}")) == "served\n"


def test_a_local_server_is_not_the_proxys_to_reach(ground: RunGround) -> None:
    """Nothing is exempt from the proxy, loopback included: a client that takes the proxy for a server inside
    the sandbox asks a proxy that is outside, and is told so."""
    script = f"{SERVER} {AWAIT}; curl -s -o /dev/null -w '%{{http_code}}' http://127.0.0.1:8123/file"
    (ground.folder / "file").write_text("")
    assert done(work(ground, "sh", "-c", script)) == "405"


def test_a_build_with_make_and_a_compiler(ground: RunGround) -> None:
    system_program("make")
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("cannot be installed here: gcc")
    (ground.folder / "main.c").write_text("int main(void) { return 0; }\n")
    (ground.folder / "Makefile").write_text("main: main.c\n\tgcc -o $@ $<\n")
    done(work(ground, "sh", "-c", "make -j2 && ./main"))


def test_a_test_suite(ground: RunGround) -> None:
    (ground.folder / "test_x.py").write_text(
        "import unittest, tempfile\nclass T(unittest.TestCase):\n"
        "  def test(self): tempfile.TemporaryFile().write(b'x')\n"
    )
    done(work(ground, "/usr/bin/python3", "-m", "unittest", "test_x"))


def test_a_socket_file_is_refused(ground: RunGround) -> None:
    """The daemons of the host listen on such; so Manager() of multiprocessing and ssh-agent do not work."""
    script = "import multiprocessing.managers as m; m.SyncManager().start()"
    ran = ground.start("/usr/bin/python3", "-c", script, flags=FLAGS)
    _, err = ran.communicate(timeout=50)
    assert ran.returncode == 1
    assert "PermissionError: [Errno 1]" in err
