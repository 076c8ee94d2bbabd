"""The audit log of contract sections 1 and 8: an unbroken chain, whole lines, and what a full disk does.

The chain is verified here by a few lines of this file's own, as an outsider would: each line holds the
SHA-256 of the line before it. What may stand in a line: test_case_secrets_and_logs.py.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.case_parts import NOT_LISTED, Refusal, connect_head, refusal, write_config
from tests.support.byte_stream import read_exactly
from tests.support.deadline import eventually
from tests.support.dns_stub import DnsStub
from tests.support.origins import EchoOrigin
from tests.support.program import run_cli
from tests.support.service import TOKEN, Service

UNAVAILABLE = Refusal(503, "audit-unavailable")
FIRST = "0" * 64


def broken_links(raw: bytes) -> list[int]:
    """The numbers of the lines whose link to the line before does not hold."""
    broken, previous = [], FIRST
    for number, line in enumerate(raw.split(b"\n")[:-1]):
        if json.loads(line)["prev"] != previous:
            broken.append(number)
        previous = hashlib.sha256(line).hexdigest()
    return broken


def verified(path: Path) -> list[dict[str, Any]]:
    """The records of a log whose chain holds from its first line to its last."""
    raw = path.read_bytes()
    assert raw.endswith(b"\n")
    assert broken_links(raw) == []
    records = [json.loads(line) for line in raw.split(b"\n")[:-1]]
    assert [record["seq"] for record in records] == list(range(len(records)))
    return records


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


def test_everything_is_recorded_in_one_unbroken_chain(
    start_service: Callable[..., Service], audit: Path
) -> None:
    with EchoOrigin() as origin:
        service = start_service("--allow", f"localhost:{origin.port}", "--audit", str(audit), token=TOKEN)
        tunnel = service.tunnel(f"localhost:{origin.port}", extra=b"12345")
        read_exactly(tunnel, 5)
        tunnel.close()
        refusal(service, connect_head("evil.test:443"))
        refusal(service, connect_head("bad..name:443"))
        grant = service.allow(origin.address, ttl_s=60, reason="a reason")
        service.tunnel(origin.address)
        service.control("DELETE", f"/grants/{grant['id']}")
        service.control("POST", "/reload")
        service.control("GET", "/status", authorized=False)
        eventually(lambda: audit.read_text().count('"kind":"end"') == 2, what="both ends in the audit log")
        service.stop()
    records = verified(audit)
    decisions = [(r["target"], r["status"], r["verdict"]) for r in records if r["kind"] == "decision"]
    assert decisions == [
        (f"localhost:{origin.port}", 200, "allow"),
        ("evil.test:443", 403, "deny"),
        (None, 400, "deny"),
        (origin.address, 200, "allow"),
    ]
    first_end = next(r for r in records if r["kind"] == "end")
    assert (first_end["bytes_out"], first_end["bytes_in"]) == (5, 5)
    kinds = {record["kind"] for record in records}
    assert {"service", "decision", "end", "grant", "grant_end", "reload", "control_refused"} <= kinds
    assert (records[0]["change"], records[-1]["change"]) == ("started", "stopped")
    assert stat.S_IMODE(audit.stat().st_mode) == 0o600


def test_every_change_of_the_file_is_found(start_service: Callable[..., Service], audit: Path) -> None:
    service = start_service("--allow", "ok.example", "--audit", str(audit))
    for number in range(5):
        service.status(f"evil{number}.test:443")
    service.stop()
    raw = audit.read_bytes()
    lines = raw.splitlines(keepends=True)
    assert broken_links(raw) == []
    assert broken_links(raw.replace(b"evil2.test", b"evil9.test")) == [4]
    assert broken_links(b"".join(lines[:2] + lines[3:])) == [2]
    assert broken_links(b"".join([lines[0], lines[2], lines[1], *lines[3:]])) == [1, 2, 3]
    assert broken_links(b"".join(lines[1:])) == [0]


def test_a_new_start_goes_on_with_the_chain(audit: Path) -> None:
    for number in range(3):
        with Service("--allow", "ok.example", "--audit", str(audit)) as service:
            service.status(f"evil{number}.test:443")
    records = verified(audit)
    assert [r["target"] for r in records if r["kind"] == "decision"] == [
        f"evil{n}.test:443" for n in range(3)
    ]


def test_a_killed_service_leaves_whole_lines_and_the_next_goes_on(audit: Path) -> None:
    with Service("--allow", "ok.example", "--audit", str(audit)) as service:
        for number in range(20):
            service.status(f"evil{number}.test:443")
        service.kill()
    killed = len(verified(audit))
    assert killed == 21  # an answer is never seen before its line is written
    with Service("--allow", "ok.example", "--audit", str(audit)) as service:
        service.status("evil.test:443")
    assert len(verified(audit)) > killed


def test_concurrent_requests_are_one_chain(start_service: Callable[..., Service], audit: Path) -> None:
    service = start_service("--allow", "ok.example", "--audit", str(audit))
    socks = [service.open() for _ in range(100)]
    for number, sock in enumerate(socks):
        sock.sendall(connect_head(f"evil{number}.test:443"))
    for sock in socks:
        assert sock.recv(100).startswith(b"HTTP/1.1 403 ")
    assert sum(record["kind"] == "decision" for record in verified(audit)) == 100


def test_a_log_that_was_moved_away_is_made_anew_on_a_hangup(
    start_service: Callable[..., Service], audit: Path
) -> None:
    service = start_service("--allow", "ok.example", "--audit", str(audit))
    service.status("before.test:443")
    moved = audit.with_suffix(".1")
    audit.rename(moved)
    service.status("between.test:443")
    service.signal(signal.SIGHUP)
    eventually(audit.exists, what="the new audit log")
    service.status("after.test:443")
    targets = [[r.get("target") for r in verified(path)] for path in (moved, audit)]
    assert "between.test:443" in targets[0]
    assert "after.test:443" in targets[1]
    assert "between.test:443" not in targets[1]


def test_a_log_that_cannot_be_opened_stops_the_start(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")
    for path in (tmp_path / "no" / "such" / "folder", tmp_path, link):
        done = run_cli("serve", "--bind", "127.0.0.1:0", "--allow", "ok.example", "--audit", str(path))
        assert (done.returncode in (1, 2), done.stdout) == (True, ""), path
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1
    assert not (tmp_path / "elsewhere").exists()


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A file system of 64 KiB at ``folder``; root on Linux only."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("a small disk of one's own needs root on Linux")
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> None:
    with contextlib.suppress(OSError), (folder / "filler").open("ab", buffering=0) as filler:
        while True:
            filler.write(b"x" * 4_096)


def settings(audit: Path, port: int, more: str = "") -> str:
    return f'allow_private = ["inside.example:{port}"]\n[audit]\npath = "{audit}"\n{more}'


def test_on_a_full_disk_nothing_passes_until_there_is_room(tmp_path: Path, dns: DnsStub) -> None:
    disk = tmp_path / "disk"
    dns.add("inside.example", "127.0.0.1")
    with small_disk(disk), EchoOrigin() as origin:
        config = write_config(tmp_path, settings(disk / "audit", origin.port))
        with Service("--config", config, "--resolver", dns.address, token=TOKEN) as service:
            target = f"inside.example:{origin.port}"
            assert service.status(target) == 200
            fill(disk)
            for _ in range(20):  # the last page of the log is used up on the way
                refusal(service, connect_head("evil.test:443"))
            before = origin.connections_accepted
            answer = service.connect(target)
            assert (answer.status, answer.error) == (503, "audit-unavailable")
            assert answer.value("Retry-After") is not None
            assert refusal(service, connect_head("evil.test:443")) == NOT_LISTED
            granted = service.control("POST", "/allow", {"host": "granted.example"})
            assert granted.status == 503
            assert service.control("GET", "/grants").json() == {"grants": []}
            # The dial may have been made, but nothing of the client's may have gone through.
            assert all(origin.received(n) == b"" for n in range(before, origin.connections_accepted))
            (disk / "filler").unlink()
            assert service.status(target) == 200
            service.stop()
        verified(disk / "audit")


def test_with_continue_a_full_disk_stops_nobody(tmp_path: Path, dns: DnsStub) -> None:
    disk = tmp_path / "disk"
    dns.add("inside.example", "127.0.0.1")
    with small_disk(disk), EchoOrigin() as origin:
        config = write_config(tmp_path, settings(disk / "audit", origin.port, 'on_error = "continue"'))
        with Service("--config", config, "--resolver", dns.address) as service:
            fill(disk)
            for _ in range(20):
                refusal(service, connect_head("evil.test:443"))
            target = f"inside.example:{origin.port}"
            assert read_exactly(service.tunnel(target, extra=b"HELLO"), 5) == b"HELLO"
            (disk / "filler").unlink()
            assert service.status(target) == 200
            service.stop()
        verified(disk / "audit")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is Linux only")
@pytest.mark.parametrize(("on_error", "wanted"), [("refuse", 503), ("continue", 200)])
def test_the_same_where_nobody_is_root(
    start_service: Callable[..., Service], tmp_path: Path, dns: DnsStub, on_error: str, wanted: int
) -> None:
    """The device on which every write fails as on a full disk."""
    dns.add("inside.example", "127.0.0.1")
    with EchoOrigin() as origin:
        more = f'on_error = "{on_error}"'
        config = write_config(tmp_path, settings(Path("/dev/full"), origin.port, more))
        service = start_service("--config", config, "--resolver", dns.address)
        assert service.status(f"inside.example:{origin.port}") == wanted
        assert refusal(service, connect_head("evil.test:443")) == NOT_LISTED
