"""Case C19: a name server hears of names that were let through, and of no others; and slow ones.

Every query is counted at the stub. What the answers may be: test_case_addresses.py.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.end_to_end.case_parts import (
    NO_SUCH_NAME,
    NOT_LISTED,
    Refusal,
    all_are,
    connect_head,
    inject_args,
    refusal,
    refusals,
    write_config,
)
from tests.support.dns_stub import DnsStub
from tests.support.http import request_bytes
from tests.support.origins import EchoOrigin
from tests.support.program import run_cli
from tests.support.service import TOKEN, Service

LEAK = "c2VjcmV0LWRhdGE.evil.test"
TIMEOUT = Refusal(504, "upstream-timeout")


@pytest.fixture
def service(start_service: Callable[..., Service], dns: DnsStub) -> Service:
    args = ("--allow", "ok.example", "--allow", "*.wild.example", "--deny", "no.wild.example")
    return start_service(*args, *inject_args("api.example", 9, dns.address), token=TOKEN, env={"SECRET": "s"})


def test_no_refused_name_is_looked_up(service: Service, dns: DnsStub) -> None:
    refused = [f"{LEAK}:443", f"{LEAK}.:80", f"{LEAK.upper()}:443", "ok.example:22", "no.wild.example:443"]
    refused += [f"{base64.b32encode(bytes([n] * 30)).decode().strip('=')}.evil.test:443" for n in range(50)]
    assert {answer.status for answer in refusals(service, refused).values()} == {403}
    malformed = [f"{LEAK}..:443", f"{LEAK}:0", f"[{LEAK}]:443", f"x@{LEAK}:443", f"{LEAK}%00:443"]
    assert {answer.status for answer in refusals(service, malformed).values()} == {400}
    for target in (f"http://{LEAK}/", f"https://{LEAK}/", f"http://x@{LEAK}/", f"http://{LEAK}:8080/"):
        assert service.request(request_bytes("GET", target)).status in (400, 403)
    named = request_bytes("GET", "http://api.example/", [("Host", LEAK)])
    assert service.request(named).status == 400
    header = connect_head("evil.test:443").replace(b"Host: x", b"Host: " + LEAK.encode())
    assert refusal(service, header) == NOT_LISTED
    assert dns.total_queries == 0


def test_no_call_of_the_control_api_looks_a_name_up(service: Service, dns: DnsStub) -> None:
    grant = service.allow(LEAK, ttl_s=60)
    service.allow("c2VjcmV0.evil.test")
    service.allow("*.leak.evil.test:*")
    for host in (f"{LEAK}..", f"https://{LEAK}/", f"{LEAK}:99999"):
        assert service.control("POST", "/allow", {"host": host}).status == 400
    service.control("GET", "/grants")
    service.control("GET", "/status")
    service.control("POST", "/reload")
    assert service.control("DELETE", f"/grants/{grant['id']}").status == 200
    assert refusal(service, connect_head(f"{LEAK}:443")) == NOT_LISTED
    assert dns.total_queries == 0


def test_neither_the_start_nor_check_looks_a_name_up(service: Service, dns: DnsStub) -> None:
    assert run_cli("check", "ok.example", "--allow", "ok.example").returncode == 0
    assert dns.total_queries == 0  # nor did the start of `service`, which has entries and a rule
    assert refusal(service, connect_head("ok.example:443")) == NO_SUCH_NAME
    assert {query.name for query in dns.log} == {"ok.example"}


def test_without_its_token_a_client_has_nothing_looked_up(
    start_service: Callable[..., Service], dns: DnsStub
) -> None:
    args = ("--allow", "ok.example", "--client-token-env", "CLIENT", "--resolver", dns.address)
    service = start_service(*args, env={"CLIENT": "client-token"})
    unknown = Refusal(407, "client-authentication-required")
    targets = ("ok.example:443", f"{LEAK}:443")
    assert refusals(service, targets) == all_are(unknown, targets)
    assert dns.total_queries == 0


def test_a_name_is_asked_for_once_and_kept_for_its_ttl(service: Service, dns: DnsStub) -> None:
    dns.add("kept.wild.example", "10.0.0.1", ttl=60)
    for _ in range(5):
        assert service.status("kept.wild.example:443") == 403
    assert [dns.queries("kept.wild.example", kind) for kind in ("A", "AAAA")] == [1, 1]
    assert dns.queries("kept.wild.example") == 2


def test_no_search_domain_is_tried(service: Service, dns: DnsStub) -> None:
    service.allow("single")
    assert refusal(service, connect_head("single:443")) == NO_SUCH_NAME
    assert {query.name for query in dns.log} == {"single"}


def test_a_failing_name_server_is_502_and_a_silent_one_504(
    start_service: Callable[..., Service], dns: DnsStub
) -> None:
    service = start_service(
        "--allow", "*.wild.example", "--connect-timeout", "1.5", "--resolver", dns.address
    )
    dns.nodata("nodata.wild.example")
    dns.cname("dangling.wild.example", "nowhere.example")
    dns.cname("loop.wild.example", "loop2.wild.example")
    dns.cname("loop2.wild.example", "loop.wild.example")
    failing = [f"{name}.wild.example:443" for name in ("missing", "nodata", "dangling")]
    assert refusals(service, failing) == all_are(NO_SUCH_NAME, failing)
    dns.servfail("broken.wild.example")
    for target in ("broken.wild.example:443", "loop.wild.example:443"):
        assert refusal(service, connect_head(target)).status in (502, 504)
    dns.black_hole("silent.wild.example")
    begun = time.monotonic()
    assert refusal(service, connect_head("silent.wild.example:443")) == TIMEOUT
    assert 1.4 < time.monotonic() - begun < 4


def test_slow_names_hold_up_no_other_name(
    start_service: Callable[..., Service], dns: DnsStub, tmp_path: Path
) -> None:
    """Forty lookups hang, below one parent and below many; a name of somebody else's does not wait."""
    dns.black_hole("*.slow.example")
    dns.black_hole("*.test")
    dns.add("fast.example", "127.0.0.1")
    with EchoOrigin() as origin:
        slow = ("--allow", "*.slow.example", *(w for n in range(20) for w in ("--allow", f"*.s{n}.test")))
        fast = ("--allow-private", f"fast.example:{origin.port}")
        config = write_config(tmp_path, "[limits]\ndrain_timeout_s = 0.2")
        service = start_service(*slow, *fast, "--resolver", dns.address, "--config", config)
        waiting = [f"a{n}.slow.example:443" for n in range(20)] + [f"a.s{n}.test:443" for n in range(20)]
        for target in waiting:
            service.open().sendall(connect_head(target))
        dns.wait_for_queries("a.s19.test", 1)
        begun = time.monotonic()
        service.tunnel(f"fast.example:{origin.port}")
        assert time.monotonic() - begun < 1
        assert service.terminate_and_time() < 1  # the drain time, not that of the lookups
