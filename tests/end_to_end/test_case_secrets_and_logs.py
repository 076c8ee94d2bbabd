"""Case C52: nothing that a stranger sends makes a line of its own, in the log or in the audit file.

Secrets in output: test_case_secrets_and_logs_canary.py.
"""

from __future__ import annotations

import base64
import json
import os
import pty
import re
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.case_parts import connect_head, json_lines, settled_log
from tests.support.byte_stream import connect, read_until_end
from tests.support.deadline import Deadline
from tests.support.http import request_bytes
from tests.support.program import OutputLog, clean_environment
from tests.support.service import SERVE, TOKEN, Service

FORGED = "2026-01-01 INFO allowed evil.test"
# A line end, a terminal's escape, line separators, direction marks, and text that looks like a record.
MARKS = (
    "\r",
    "\n",
    "\r\n",
    "\x1b[2J",
    "\x1b]0;owned\x07",
    "\x9b2J",
    "\x85",
    "\u2028",
    "\u2029",
    "\u202e",
    "\x00",
)
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202e]")
LONG = "a" * 8_000


def hostile_requests() -> list[bytes]:
    """Requests of one decision each, with such marks in every place that is read."""
    requests = [connect_head(f"evil.test:443{mark}{FORGED}".encode()) for mark in MARKS]
    requests += [connect_head(LONG + ":443"), connect_head("evil." + LONG + ".test:443")]
    requests += [b"CONNECT %b:443 HTTP/1.1\r\n\r\n" % ("x" * 8_000).encode()]
    for place in (b"User-Agent: ", b"Host: ", b"X-Forwarded-For: "):
        for mark in ("\x1b[2J", "\t", "é", "\xa0"):
            requests.append(b"CONNECT evil.test:443 HTTP/1.1\r\n" + place + mark.encode() + b"\r\n\r\n")
    requests.append(b"CONNECT evil.test:443 HTTP/1.1\r\nUser-Agent: " + LONG.encode() + b"\r\n\r\n")
    requests.append(b"A" * 8_000 + b" http://evil.test/ HTTP/1.1\r\n\r\n")
    requests.append(b"x'\"{}[]%s%n\\u000a\\n http://evil.test/ HTTP/1.1\r\n\r\n")
    label = base64.b64encode(f"me\n{FORGED}\x1b[2J\u2028:wrong".encode()).decode()
    requests.append(f"CONNECT evil.test:443 HTTP/1.1\r\nProxy-Authorization: Basic {label}\r\n\r\n".encode())
    requests.append(b'GET http://evil.test/"\\u2028%0a%1b HTTP/1.1\r\n\r\n')
    requests.append(("\x1b[2J" + FORGED + "\r\n\r\n").encode())
    requests.append(b"hello\x1b[2J\x00\n" + FORGED.encode() + b"\n")
    return requests


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit") / "audit.jsonl"


@pytest.fixture(scope="module")
def running(audit: Path) -> Iterator[Service]:
    args = ("--allow", "ok.example", "--allow", "localhost:*", "-v", "--audit", str(audit))
    with Service(*args, token=TOKEN, env={"NO_COLOR": "1"}) as service:
        yield service


@pytest.fixture
def service(running: Service) -> Iterator[Service]:
    yield running
    running.close_sockets()


def audit_records(path: Path) -> list[dict[str, Any]]:
    raw = path.read_bytes()
    assert raw.endswith(b"\n")
    assert CONTROL.search(raw.decode()) is None
    return json_lines(raw.decode())


def test_a_hostile_request_is_one_line_in_both_logs(service: Service, audit: Path) -> None:
    shown, recorded = len(settled_log(service)), len(audit_records(audit))
    for number, octets in enumerate(hostile_requests(), 1):
        service.raw_end(octets)
        assert len(settled_log(service)) == shown + number, octets
        assert len(audit_records(audit)) == recorded + 2 * number, octets  # the barrier is recorded, too
    text = service.stderr.text
    assert CONTROL.search(text) is None
    assert text.isascii()
    assert max(map(len, text.splitlines())) < 4_000
    assert not [line for line in text.splitlines() if line.startswith(FORGED)]
    assert "a" * 1_000 not in text  # length-capped


def test_a_hostile_call_of_the_control_api_is_one_line_at_most(service: Service, audit: Path) -> None:
    before = len(settled_log(service))
    for mark in MARKS:
        answer = service.control("POST", "/allow", {"host": f"a{mark}{FORGED}"})
        assert answer.status == 400
        assert CONTROL.search(answer.body.decode()) is None
        for field in ("reason", "client"):
            body = {"host": "b.example", field: f"x{mark}{FORGED}"}
            assert service.control("POST", "/allow", body).status == 400
    assert len(settled_log(service)) == before + 3 * len(MARKS)
    for octets in (
        b"GET /\x1b[2J%0a HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET /" + LONG.encode() + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x1b[2J\n" + FORGED.encode() + b"\r\n\r\n",
        request_bytes("GET", "/status", [("Host", f"evil{FORGED}"), ("Authorization", "Bearer \x1b[2J")]),
        request_bytes("P" * 8_000, "/", [("Host", "localhost")]),
    ):
        with connect(service.control_port) as sock:
            sock.sendall(octets)
            read_until_end(sock, 1)
    reason = 'a reason with "quotes" and {braces} \\n'
    service.allow("c.example", reason=reason, ttl_s=60)
    assert CONTROL.search(service.stderr.text) is None
    json_lines(service.stderr.text)
    granted = [r for r in audit_records(audit) if r["kind"] == "grant"]
    assert [r["reason"] for r in granted] == [reason]
    assert not [line for line in audit.read_text().splitlines() if not line.startswith("{")]


def read_terminal(master: int, until: bytes, timeout_s: float) -> bytes:
    deadline, shown = Deadline(timeout_s, f"{until!r} on the terminal"), b""
    while until not in shown:
        if select.select([master], (), (), deadline.remaining_s())[0]:
            shown += os.read(master, 65_536)
    return shown


def test_on_a_terminal_too_a_request_is_one_short_printable_line() -> None:
    master, slave = pty.openpty()
    with tempfile.TemporaryDirectory(prefix="eg-") as name:
        folder = Path(name)
        argv = [*SERVE, "--bind", "127.0.0.1:0", "--allow", "ok.example"]
        env = clean_environment(folder, {"NO_COLOR": "1", "TERM": "xterm"})
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=slave, env=env, cwd=folder
        )
        os.close(slave)
        try:
            assert process.stdout is not None
            stdout = OutputLog(process.stdout, folder / "stdout")
            port = int(stdout.wait_for_line("EGRESS_PROXY_PORT=", 20) or 0)
            requests = hostile_requests()
            for octets in requests:
                with connect(port) as sock:
                    sock.sendall(octets)
                    read_until_end(sock)
            with connect(port) as sock:
                sock.sendall(connect_head("the-last.test:443"))
                read_until_end(sock)
            shown = read_terminal(master, b"the-last.test", 10).decode()
        finally:
            process.terminate()
            process.wait(10)
            os.close(master)
        stdout.join()
    lines = shown.replace("\r\n", "\n").strip("\n").split("\n")
    assert [line for line in lines if CONTROL.search(line)] == []
    denied = [line for line in lines if re.match(r"\d\d:\d\d:\d\d ✗ ", line)]
    assert len(denied) == len(requests) + 1
    assert len(lines) <= len(denied) + 1  # and the line of the start
    assert max(map(len, lines)) < 600


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux only")
def test_a_log_that_nobody_reads_stops_nobody() -> None:
    """A full pipe costs lines, not service."""
    with tempfile.TemporaryDirectory(prefix="eg-") as name:
        folder = Path(name)
        argv = [*SERVE, "--bind", "127.0.0.1:0", "--allow", "ok.example"]
        with subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=clean_environment(folder),
            cwd=folder,
        ) as process:
            assert process.stdout is not None
            stdout = OutputLog(process.stdout, folder / "stdout")
            port = int(stdout.wait_for_line("EGRESS_PROXY_PORT=", 20) or 0)
            for number in range(400):  # some 350 bytes each; a pipe holds 64 KiB
                with connect(port) as sock:
                    sock.sendall(connect_head(f"n{number}.test:443"))
                    assert read_until_end(sock)[0].startswith(b"HTTP/1.1 403 ")
            process.terminate()
            assert process.stderr is not None
            log = process.stderr.read().decode()
            assert process.wait(10) == 0
        stdout.join()
    whole = [line for line in log.splitlines() if line.startswith("{") and line.endswith("}")]
    assert all(json.loads(line) for line in whole)
    assert len(whole) > 50
