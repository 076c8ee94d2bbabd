"""Case C14: a fault of our own ends one connection, and the end of the service ends them all in time.

What clients send that is no HTTP: test_case_targets_limits.py.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import pytest

from tests.end_to_end.case_parts import connect_head, json_lines, settled_log
from tests.support.byte_stream import End
from tests.support.origins import EchoOrigin
from tests.support.service import Service

# A fault of ours, as nobody can foresee it: the policy itself raises for one host.
FAULTY = """
import sys
from egress_proxy.cli.main import main
from egress_proxy.proxy import connection
decide = connection.decide
def broken(access, *rest):
    if str(access.target.host) == "fault.example":
        raise RuntimeError("sk-CANARY-123")
    return decide(access, *rest)
connection.decide = broken
sys.exit(main())
"""


def test_a_fault_inside_ends_that_connection_alone_and_is_logged_once() -> None:
    program = (sys.executable, "-c", FAULTY, "serve")
    with EchoOrigin() as origin, Service("--allow", f"localhost:{origin.port}", program=program) as service:
        tunnel = service.tunnel(f"localhost:{origin.port}")
        begun = time.monotonic()
        received, end = service.raw_end(connect_head("fault.example:443"))
        assert (received == b"" or received.startswith(b"HTTP/1.1 500 "), end is not End.OPEN) == (True, True)
        assert time.monotonic() - begun < 2
        tunnel.sendall(b"still here")
        assert tunnel.recv(100) == b"still here"
        assert service.status("evil.test:443") == 403
        faults = [r for r in map(json.loads, settled_log(service)) if r["kind"] == "fault"]
        assert [record["error"] for record in faults] == ["RuntimeError"]
        assert "CANARY" not in service.stderr.text


OPEN_THINGS: dict[str, Callable[[Service, str], object]] = {
    "tunnels": lambda service, target: [service.tunnel(target) for _ in range(20)],
    "busy tunnels": lambda service, target: [service.tunnel(target, b"x" * 4_096) for _ in range(20)],
    "connections without a byte": lambda service, target: [service.open() for _ in range(20)],
    "half a head": lambda service, target: [service.open().send(b"CONN") for _ in range(20)],
    "refused clients that stay": lambda service, target: [
        service.connect("evil.test:443") for _ in range(20)
    ],
}


@pytest.mark.parametrize("opened", OPEN_THINGS.values(), ids=OPEN_THINGS.keys())
def test_sigterm_ends_within_1_s_whatever_is_open(opened: Callable[[Service, str], object]) -> None:
    with EchoOrigin() as origin, Service("--allow", f"localhost:{origin.port}") as service:
        opened(service, f"localhost:{origin.port}")
        assert service.terminate_and_time() < 1
        assert service.process.returncode == 0
        json_lines(service.stderr.text)  # whole lines, and no traceback among them
