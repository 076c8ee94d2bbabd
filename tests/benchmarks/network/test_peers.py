"""Every peer's settings and command line are whole, and only those that are installed are run."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.benchmarks.network.benchmark import cases_of, chosen
from tests.benchmarks.network.cases import NAMES
from tests.benchmarks.network.peers import ALL, NO_PROXY, OURS, SETTINGS, Peer, Work
from tests.benchmarks.network.place import ADDRESS, PROXY_PORT, make_place

PROXIES = [peer for peer in ALL if peer.argv]


@pytest.mark.parametrize("peer", PROXIES, ids=lambda peer: f"{peer.name}-{peer.work}")
def test_nothing_is_left_to_fill_in(peer: Peer, tmp_path: Path) -> None:
    argv, env = peer.prepare(make_place(tmp_path))
    written = [(tmp_path / name).read_text() for name in peer.files]
    assert not [text for text in (*argv, *env.values(), *written) if re.search(r"\$\w", text)]
    assert any(str(PROXY_PORT) in text and ADDRESS in text for text in (" ".join(argv), *written))


def test_every_settings_file_is_used() -> None:
    assert {file.name for file in SETTINGS.iterdir()} == {name for peer in ALL for name in peer.files}


@pytest.mark.parametrize("peer", [peer for peer in PROXIES if peer.name == OURS], ids=lambda peer: peer.work)
def test_our_settings_are_accepted(peer: Peer, tmp_path: Path) -> None:
    argv, env = peer.prepare(make_place(tmp_path))
    show = [*argv[: argv.index("serve")], "config", "show", *argv[argv.index("--config") :]]
    done = subprocess.run(show, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"^limits.tunnels = 9000 ", done.stdout, re.MULTILINE)
    assert re.search(r"^audit.path = \".+\" ", done.stdout, re.MULTILINE)


def test_a_peer_that_is_not_installed_is_left_out() -> None:
    absent = Peer("absent", Work.TUNNELS, ("no-such-program-here",))
    ours = next(peer for peer in ALL if peer.name == OURS)
    assert chosen([absent, ours], [], NAMES) == [ours]


def test_ours_and_no_proxy_are_measured_whoever_is_asked_for() -> None:
    assert {peer.name for peer in chosen(ALL, ["no-such-peer"], NAMES)} == {OURS, NO_PROXY}


def test_a_peer_without_a_case_is_not_started() -> None:
    assert {peer.work for peer in chosen(ALL, [], ["E"])} == {Work.INJECTION}


def test_no_proxy_has_no_idle_tunnels() -> None:
    direct = next(peer for peer in ALL if peer.name == NO_PROXY and peer.work is Work.TUNNELS)
    assert cases_of(direct, ["D"]) == []
