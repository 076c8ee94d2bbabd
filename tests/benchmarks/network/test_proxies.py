"""Who is measured is who was started: a port that is taken is refused, and nobody is left running."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from tests.benchmarks.network import proc_tree
from tests.benchmarks.network.place import ADDRESS, PROXY_PORT, is_free
from tests.benchmarks.network.proxies import ProxyUnusable, running_proxy
from tests.support.deadline import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux only")
LISTENER = f"""
import socket
with socket.create_server(("{ADDRESS}", {PROXY_PORT})) as listener:
    listener.accept()
"""


def is_over(pid: int) -> bool:
    """Gone, or waiting only for init to notice."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_proxy_is_known_by_its_own_listener(tmp_path: Path) -> None:
    """One test for all, since there is one port."""
    core = min(os.sched_getaffinity(0))
    ends = [sys.executable, "-c", "raise SystemExit('no settings')"]
    refused = pytest.raises(ProxyUnusable, match="ends: ended with code 1: no settings")
    with refused, running_proxy("ends", ends, {}, core, tmp_path):
        pass
    # Below a shell, as some proxies have workers: those are pinned, measured and ended too.
    listens = ["sh", "-c", '"$0" -c "$1"; true', sys.executable, LISTENER]
    with running_proxy("listens", listens, {}, core, tmp_path) as pid:
        pids = proc_tree.family(pid)
        assert len(pids) == 2
        assert [os.sched_getaffinity(one) for one in pids] == [{core}, {core}]
        assert proc_tree.listens(pids, PROXY_PORT)
    assert is_free(PROXY_PORT)
    eventually(lambda: all(map(is_over, pids)))
    taken = pytest.raises(ProxyUnusable, match="is taken")
    late = running_proxy("late", listens, {}, core, tmp_path)
    with socket.create_server((ADDRESS, PROXY_PORT)), taken, late:
        pass
