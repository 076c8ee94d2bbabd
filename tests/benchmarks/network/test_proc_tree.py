"""A proxy's figures are those of all its processes, and its listener is told from anybody else's."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from tests.benchmarks.network.proc_tree import cpu_s, family, listens, memory_kib

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux only")
# Says that it is there, and stays until its stdin ends.
GRANDCHILD = f"{sys.executable} -c 'print(1, flush=True); input()'; true"


def test_a_grandchild_belongs_to_the_family() -> None:
    argv = ["sh", "-c", GRANDCHILD]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as sh:
        assert sh.stdout is not None
        sh.stdout.readline()
        found = family(sh.pid)
        assert found[0] == sh.pid
        assert len(found) == 2
        assert memory_kib(sh.pid) > memory_kib(found[1]) > 1024
        assert sh.stdin is not None
        sh.stdin.close()


def test_cpu_counts_children_that_have_ended() -> None:
    before = cpu_s(os.getpid())
    subprocess.run([sys.executable, "-S", "-c", "for i in range(3_000_000): pass"], check=True)
    assert cpu_s(os.getpid()) > before


def test_a_process_that_is_gone_spends_and_holds_nothing() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert (cpu_s(gone.pid), memory_kib(gone.pid)) == (0, 0)


def test_a_listener_is_found_with_its_owner_only() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert listens([os.getpid()], port)
        assert not listens([os.getppid()], port)
    assert not listens([os.getpid()], port)
