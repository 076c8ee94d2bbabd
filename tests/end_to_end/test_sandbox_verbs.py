"""`egress-proxy sandbox …` and `python -m egress_proxy.sandbox` as hosts use them: what is printed works.

And `describe` where little can be enforced: in a container's shape, it tells the truth.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Start
from tests.support.certificates import CertificateAuthority
from tests.support.confined_run import BACKENDS, BODY, RunGround
from tests.support.program import PROGRAM, REPOSITORY, clean_environment, run_cli
from tests.support.service import Service

MODULE = (sys.executable, "-m", "egress_proxy.sandbox")
SAFE_MODULE = (sys.executable, "-P", "-m", "egress_proxy.sandbox")


# Makes Landlock's first call fail, and those that make namespaces, as the seccomp profile of a container
# does; then it becomes what follows.
CONTAINER = """
import ctypes, os, struct, sys
sys.path.insert(0, sys.argv[1])
from egress_proxy.sandbox import launcher
refused = {"landlock": (444,), "namespaces": (56, 272, 435)}
number = {"ENOSYS": 38, "EPERM": 1, "EOPNOTSUPP": 95}
what, errno = sys.argv[2].split(":")
lines = [(0x20, 0, 0, 0)]
for call in refused[what]:
    answer = 0x50000 | number["ENOSYS" if call == 435 else errno]  # of clone3, so that clone is tried
    if call == 56:  # clone is a fork, but for its flags
        lines += [(0x15, 0, 3, 56), (0x20, 0, 0, 16), (0x45, 0, 1, 0x7E020000), (6, 0, 0, answer)]
        lines += [(0x20, 0, 0, 0)]
    else:
        lines += [(0x15, 0, 1, call), (6, 0, 0, answer)]
lines += [(6, 0, 0, 0x7FFF0000)]
launcher.libc.prctl(launcher.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
launcher.filter_calls(b"".join(struct.pack("=HBBI", *line) for line in lines))
os.execv(sys.argv[3], sys.argv[3:])
"""
"""Arguments: the repository, `landlock:ENOSYS`, and the command."""

x86_64 = pytest.mark.skipif(
    os.uname().machine != "x86_64", reason="not Linux on x86-64: the filter's numbers"
)


def sandbox(
    *words: str,
    program: tuple[str, ...] = (*PROGRAM, "sandbox"),
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    return run_cli(*words, program=program, cwd=cwd, env=env, timeout_s=50)


def answer(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    return json.loads(done.stdout)


def spawn(argv: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """As a host does it that has nothing but the argv."""
    return subprocess.run(
        argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, cwd=folder,
        env=clean_environment(folder), timeout=50, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_linux_wrap_prints_reaches_the_listed_host_and_writes_to_the_root(
    ca: CertificateAuthority, start: Start, backend: str
) -> None:
    with RunGround(ca) as ground:
        service = start(Service(*ground.flags))
        command = ("sh", "-c", f"{' '.join(ground.curl())} && touch here; touch ../there; env")
        words = ("linux-wrap", "--writable-root", ".", "--proxy", service.attach_path, "--backend", backend)
        wrapped = answer(sandbox(*words, "--", *command, cwd=ground.folder))
        assert (wrapped["backend"], wrapped["enforcement"]) == (backend, "full")
        done = spawn(wrapped["argv"], ground.folder)
        assert done.stdout.startswith(BODY), done.stderr
        assert (ground.folder / "here").exists()
        assert not (ground.folder.parent / "there").exists()
        proxy = f"http://127.0.0.1:{service.proxy_port}"
        names = {
            "PYTHONDONTWRITEBYTECODE=1",
            "STEERABLE_EGRESS_CONFINED=1",
            "NO_PROXY=",
            f"HTTPS_PROXY={proxy}",
        }
        assert names <= set(done.stdout.splitlines())


@pytest.mark.parametrize("backend", BACKENDS)
def test_describe_finds_the_proxy_behind_a_loopback_entry(start: Start, backend: str) -> None:
    service = start(Service("--allow", "a.example"))
    words = ("describe", "--backend", backend, "--allow-host", f"localhost:{service.proxy_port}")
    assert answer(sandbox(*words, env={"EGRESS_ATTACH": service.attach_path}))["enforcement"] == "full"
    assert answer(sandbox(*words))["enforcement"] == "partial"


@pytest.mark.parametrize(
    ("program", "root", "is_warned"),
    [(MODULE, ".", True), (MODULE, "other", False), (SAFE_MODULE, ".", False)],
)
def test_the_module_form_warns_only_when_the_working_folder_can_be_written(
    tmp_path: Path, program: tuple[str, ...], root: str, is_warned: bool
) -> None:
    (tmp_path / "other").mkdir()
    done = sandbox("profile", "--writable-root", root, program=program, cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("(version 1)")
    assert done.stderr.count("warning: ") == is_warned


@pytest.mark.parametrize("program", [(*PROGRAM, "sandbox"), MODULE], ids=["verb", "module"])
@pytest.mark.parametrize(
    "words",
    [
        [],
        ["nonsense"],
        ["profile", "--allow-host", "a b"],
        ["linux-wrap", "--no-network"],
        ["linux-wrap", "--writable-root", "/nowhere", "--", "true"],
        ["linux-wrap", "--proxy", "/nowhere", "--", "true"],
        ["describe", "--nonsense"],
    ],
)
def test_every_mistake_is_one_line_exit_2_and_nothing_on_stdout(
    program: tuple[str, ...], words: list[str]
) -> None:
    done = sandbox(*words, program=program)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


def describe_in(what: str, *words: str) -> subprocess.CompletedProcess[str]:
    program = (sys.executable, "-c", CONTAINER, str(REPOSITORY), what, *PROGRAM, "sandbox")
    return sandbox("describe", "--no-network", *words, program=program)


@x86_64
@pytest.mark.parametrize("errno", ["EPERM", "ENOSYS"])
def test_without_user_namespaces_it_is_landlock(errno: str) -> None:
    assert answer(describe_in(f"namespaces:{errno}"))["backend"] == "landlock"
    alone = describe_in(f"namespaces:{errno}", "--backend", "bwrap")
    assert answer(alone)["backend"] == "none"
    assert "bwrap: " in alone.stderr
    assert alone.stderr.count("\n") == 1


@x86_64
@pytest.mark.parametrize("errno", ["ENOSYS", "EOPNOTSUPP", "EPERM"])
def test_without_landlock_its_rung_is_none_and_bwrap_still_holds(errno: str) -> None:
    assert answer(describe_in(f"landlock:{errno}"))["backend"] == "bwrap"
    alone = describe_in(f"landlock:{errno}", "--backend", "landlock")
    assert answer(alone)["backend"] == "none"
    assert "Landlock" in alone.stderr


def started_in(argv: list[str], folder: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, cwd=folder,
        env={"PATH": os.defpath, **variables}, timeout=50, check=False,
    )  # fmt: skip


def wrap(backend: str, *words: str) -> list[str]:
    argv: list[str] = answer(sandbox("linux-wrap", "--no-network", "--backend", backend, *words))["argv"]
    return argv


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_printed_starts_in_the_folder_in_which_it_is_spawned(tmp_path: Path, backend: str) -> None:
    root = tmp_path / "root"
    (root / "below").mkdir(parents=True)
    argv = wrap(backend, "--writable-root", str(root), "--", "pwd")
    for folder in ("/usr/share", str(root), str(root / "below")):
        done = started_in(argv, folder)
        assert (done.stdout, done.stderr) == (f"{folder}\n", "")


def test_where_that_is_not_shown_inside_it_is_the_first_root_and_said(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    done = started_in(wrap("bwrap", "--writable-root", str(root), "--", "pwd"), str(tmp_path))
    assert done.stdout == f"{root}\n"
    assert done.stderr == (
        f"egress-proxy: the working folder {tmp_path} is not shown in the sandbox;"
        f" the command starts in {root}\n"
    )
    assert started_in(wrap("bwrap", "--", "pwd"), str(tmp_path)).stdout == "/\n"
    assert (
        started_in(wrap("landlock", "--", "pwd"), str(tmp_path)).stdout == f"{tmp_path}\n"
    )  # which shows it


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_spawners_settings_pass_and_its_secrets_only_by_name(backend: str) -> None:
    spawner = {
        "STEERABLE_APPROVAL": "host", "STEERABLE_WEB_FETCH_TIMEOUT_MS": "5", "STEERABLE_EGRESS_SECRET": "s1",
        "STEERABLE_EGRESS_CONTROL_TOKEN": "s2", "STEERABLE_EGRESS_CONTROL_PORT": "1",
        "STEERABLE_WEB_SEARCH_API_KEY": "s3", "STEERABLE_EGRESS_CONFINED": "1",
        "PROVIDER_KEY": "k", "CI": "1",
    }  # fmt: skip
    argv = wrap(backend, "--env", "PROVIDER_KEY", "--env", "LATER", "--env", "SET=a=b", "--", "env")
    variables = dict(
        line.partition("=")[::2] for line in started_in(argv, "/", **spawner).stdout.splitlines()
    )
    assert {name for name in variables if name.startswith("STEERABLE_")} == {
        "STEERABLE_APPROVAL", "STEERABLE_WEB_FETCH_TIMEOUT_MS",
    }  # fmt: skip
    assert (variables["PROVIDER_KEY"], variables["SET"], "CI" in variables) == ("k", "a=b", False)
    assert "LATER" not in variables
    assert json.loads(variables["EGRESS_EXEC_BACKEND"]) == {"backend": backend, "enforcement": "full"}


def test_a_variable_that_changes_the_sandbox_is_refused_by_name() -> None:
    done = sandbox("linux-wrap", "--no-network", "--env", "LD_PRELOAD=/x.so", "--", "true")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: --env: LD_PRELOAD cannot be handed to a confined process\n"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_command_may_be_as_long_as_the_kernel_takes_it(backend: str) -> None:
    words = [str(number) for number in range(30_000)]
    argv = wrap(
        backend,
        "--",
        "sh",
        "-c",
        'echo $#; test "$(echo "$@" | tr " " "\\n" | tail -1)" = 29999',
        "x",
        *words,
    )
    done = started_in(argv, "/")
    assert (done.returncode, done.stdout, done.stderr) == (0, "30000\n", "")


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_shown_can_be_read_and_not_written(tmp_path: Path, backend: str) -> None:
    root, given = tmp_path / "root", tmp_path / "given"
    for folder in (root, given):
        folder.mkdir()
    (given / "input").write_text("input\n")
    words = ("--writable-root", str(root), "--ro", str(given))
    argv = wrap(
        backend, *words, "--", "sh", "-c", f"pwd; cat input; echo x >> {given}/input; echo x > {given}/new"
    )
    done = started_in(argv, str(given))
    assert done.stdout == f"{given}\ninput\n"
    assert done.returncode == 2
    assert [path.name for path in given.iterdir()] == ["input"]
    assert (given / "input").read_text() == "input\n"


@pytest.mark.parametrize(
    ("shown", "why"), [("/nowhere", "no such file"), ("/tmp", "of its own"), (".", "lies in")]
)
def test_what_cannot_be_shown_is_named(tmp_path: Path, shown: str, why: str) -> None:
    words = ("linux-wrap", "--no-network", "--writable-root", ".", "--ro", shown, "--", "true")
    done = sandbox(*words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: --ro: ")
    assert why in done.stderr
