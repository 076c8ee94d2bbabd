"""A process that holds secrets: what /proc shows of it, also to root, and what its limits are."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.egress_proxy.cli.command import ROOT, environment

LINUX = sys.platform == "linux"
SECRETS = {"TOKEN": "CANARY-token", "KEY": "CANARY-key", "EMPTY": "", "KEY2": "kept"}
CHILD = """
import os, resource, sys
from egress_proxy.cli.hardening import environment_copy, harden_process, wipe_environment
from egress_proxy.cli.hardening import raise_descriptor_limit
harden_process()
assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 100  # `run` hands it on
raise_descriptor_limit()
copy = environment_copy()
wipe_environment(["TOKEN", "KEY", "EMPTY", "ABSENT"])
wipe_environment(["TOKEN"])
assert copy["KEY"] == "CANARY-key" and copy["EMPTY"] == ""
assert "TOKEN" not in os.environ and "KEY" not in os.environ and os.environ["KEY2"] == "kept"
assert os.popen("printenv KEY; printenv KEY2").read() == "kept\\n"
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
print("core", *resource.getrlimit(resource.RLIMIT_CORE), "files", soft, hard, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def child() -> Iterator[tuple[int, str]]:
    """A hardened process, and the line that it prints."""
    process = subprocess.Popen(
        ["/bin/sh", "-c", 'ulimit -S -n 100; exec "$@"', "sh", sys.executable, "-c", CHILD],
        env={**environment(SECRETS), "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process.pid, process.stdout.readline()
    finally:
        process.communicate(timeout=30)
    assert process.returncode == 0


def test_there_are_no_core_dumps_and_all_descriptors_that_are_allowed(child: tuple[int, str]) -> None:
    core, soft_core, hard_core, files, soft, hard = child[1].split()
    assert (core, soft_core, hard_core, files) == ("core", "0", "0", "files")
    assert int(soft) == min(int(hard), 1 << 20) or not LINUX
    assert int(soft) > 100


@pytest.mark.skipif(not LINUX, reason="/proc is Linux's")
def test_not_even_root_finds_a_secret_in_the_environment_block(child: tuple[int, str]) -> None:
    pid, _ = child
    if os.geteuid() != 0:
        with pytest.raises(PermissionError):  # non-dumpable: the entry belongs to root
            Path(f"/proc/{pid}/environ").read_bytes()
        return
    block = Path(f"/proc/{pid}/environ").read_bytes()
    assert b"KEY2=kept" in block
    assert b"CANARY" not in block


@pytest.mark.skipif(not LINUX, reason="/proc is Linux's")
def test_the_process_is_not_dumpable(child: tuple[int, str]) -> None:
    # Of a process that is not dumpable the entries belong to root, whoever runs it.
    status = Path(f"/proc/{child[0]}/environ").stat()
    assert status.st_uid == 0


def test_without_an_environ_symbol_nothing_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    from egress_proxy.cli import hardening

    monkeypatch.setattr(hardening, "_environ_address", lambda: None)
    monkeypatch.setenv("TO_BE_WIPED", "x")
    hardening.wipe_environment(["TO_BE_WIPED"])
    assert "TO_BE_WIPED" not in os.environ


def test_the_loaders_variables_that_the_launcher_handed_on_are_judged_as_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from egress_proxy.cli import hardening

    monkeypatch.setenv("EGRESS_STARTED_LD_LIBRARY_PATH", ":/opt/lib")
    monkeypatch.setenv("EGRESS_STARTED_LD_AUDIT", "")
    copy = hardening.environment_copy()
    assert (copy["LD_LIBRARY_PATH"], copy["LD_AUDIT"]) == (":/opt/lib", "")
    assert not [name for name in copy if name.startswith("EGRESS_STARTED_")]
