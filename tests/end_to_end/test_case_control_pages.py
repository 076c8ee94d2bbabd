"""Case C58: a page in the browser cannot call the control API, nor can anybody from elsewhere.

Tokens and bodies: test_case_control.py.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.case_control import BEARER, JSON, call, nothing_is_granted, own_host
from tests.support.dns_stub import DnsStub
from tests.support.program import run_cli
from tests.support.service import TOKEN, Service


@pytest.fixture(scope="module")
def names() -> Iterator[DnsStub]:
    with DnsStub() as stub:
        yield stub


@pytest.fixture(scope="module")
def running(names: DnsStub) -> Iterator[Service]:
    with Service("--allow", "ok.example", "--resolver", names.address, token=TOKEN) as service:
        yield service


@pytest.fixture
def service(running: Service) -> Iterator[Service]:
    """No test leaves a grant behind; one that is refused left none."""
    yield running
    for grant in running.control("GET", "/grants").json()["grants"]:
        running.control("DELETE", f"/grants/{grant['id']}")
    running.close_sockets()


def test_a_call_for_another_host_is_403(service: Service) -> None:
    port = service.control_port
    for host in (
        f"rebind.evil.test:{port}",
        "rebind.evil.test",
        f"localhost.evil.test:{port}",
        f"127.0.0.1.evil.test:{port}",
        f"a.localhost:{port}",
        "0.0.0.0",
        f"0.0.0.0:{port}",
        f"127.1:{port}",
        f"[::127.0.0.1]:{port}",
        f"user@localhost:{port}",
        f"localhost:{port}/",
        "",
    ):
        assert call(service, ("Host", host), BEARER, JSON).status == 403, host
        assert call(service, ("Host", host), method="GET", path="/healthz", body=b"").status == 403, host
    two = call(service, own_host(service), ("Host", "rebind.evil.test"), BEARER, JSON)
    assert two.status in (400, 403)
    none = call(service, BEARER, JSON)
    assert none.status in (400, 403)
    assert nothing_is_granted(service)
    for host in (
        f"127.0.0.1:{port}",
        f"127.0.0.1:{port + 1}",
        "127.0.0.1",
        "localhost",
        "localhost:9000",
        f"LOCALHOST:{port}",
        f"[::1]:{port}",
        f"127.0.0.2:{port}",
    ):
        assert call(service, ("Host", host), BEARER, JSON).status == 200, host


def test_a_call_of_another_origin_is_403_and_the_pages_own_passes(service: Service) -> None:
    port = service.control_port
    for origin in (
        "http://evil.test",
        "https://evil.test",
        "null",
        f"https://127.0.0.1:{port}",
        f"http://127.0.0.1:{port + 1}",
        "http://127.0.0.1",
        f"http://localhost:{port}",  # the page was opened by its address
        f"http://127.0.0.1:{port}.evil.test",
        f"http://evil.test:{port}",
        "chrome-extension://abcdef",
        "file://",
        "",
    ):
        answer = call(service, own_host(service), ("Origin", origin), BEARER, JSON)
        assert answer.status == 403, origin
        assert not [name for name, _ in answer.head.headers if name.lower().startswith("access-control-")]
    assert nothing_is_granted(service)
    assert (
        call(service, own_host(service), ("Origin", f"http://127.0.0.1:{port}"), BEARER, JSON).status == 200
    )


def test_a_body_that_says_it_is_no_json_is_415_before_the_token(service: Service) -> None:
    for kind in (
        "text/plain",
        "text/plain;charset=UTF-8",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "text/json",
        "application/json-seq",
        "application/jsonx",
        "application/json; charset=utf-16",
        "text/plain, application/json",
        "",
    ):
        assert call(service, own_host(service), BEARER, ("Content-Type", kind)).status == 415, kind
        assert call(service, own_host(service), ("Content-Type", kind)).status == 415, kind
    page = ("Origin", f"http://127.0.0.1:{service.control_port}")
    assert call(service, own_host(service), BEARER, page).status == 415
    assert nothing_is_granted(service)
    good = ("Content-Type", "Application/JSON; charset=UTF-8")
    assert call(service, own_host(service), BEARER, good).status == 200
    assert call(service, own_host(service), BEARER).status == 200  # no page, and no type at all


def test_a_preflight_gets_no_permission(service: Service) -> None:
    asks = [("Access-Control-Request-Method", "POST"), ("Access-Control-Request-Headers", "authorization")]
    asks.append(("Access-Control-Request-Private-Network", "true"))
    for origin in ("http://evil.test", f"http://127.0.0.1:{service.control_port}"):
        answer = call(service, own_host(service), ("Origin", origin), *asks, method="OPTIONS", body=b"")
        assert answer.status >= 400
        assert not [name for name, _ in answer.head.headers if name.lower().startswith("access-control-")]


def test_every_answer_says_not_to_be_kept_or_guessed_at(service: Service) -> None:
    answers = [
        service.control("GET", "/status"),
        service.control("GET", "/healthz"),
        service.control("GET", "/no"),
        service.control("GET", "/status", authorized=False),
        service.control("POST", "/allow", {"host": "*"}),
        service.control("GET", "/status", headers={"Host": "evil.test"}),
    ]
    kept = {(a.value("Cache-Control"), a.value("X-Content-Type-Options")) for a in answers}
    assert kept == {("no-store", "nosniff")}


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux only")
def test_both_ports_listen_on_loopback_alone(service: Service) -> None:
    ports = {service.proxy_port, service.control_port}
    listening = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{service.pid}/net/{table}").read_text().splitlines()[1:]:
            address, _, port = line.split()[1].partition(":")
            if line.split()[3] == "0A" and int(port, 16) in ports:
                listening.append(address)
    assert listening == ["0100007F"] * 2  # 127.0.0.1, as the kernel writes it
    with socket.socket() as sock:
        sock.settimeout(1)
        assert sock.connect_ex(("127.0.0.2", service.control_port)) != 0


def test_no_token_no_control_api(names: DnsStub) -> None:
    with Service("--allow", "ok.example", "--control-port", "0", "--resolver", names.address) as service:
        service.status("evil.test:443")
        assert "EGRESS_CONTROL_PORT" not in service.stdout.text


def test_the_verbs_speak_to_it_with_the_right_exit_codes(service: Service) -> None:
    port = ("--control-port", str(service.control_port))
    env = {"STEERABLE_EGRESS_CONTROL_TOKEN": TOKEN}
    assert run_cli("allow", "wanted.example", *port, env=env).returncode == 0
    listed = json.loads(run_cli("grants", "--json", *port, env=env).stdout)["grants"]
    assert [grant["allowed"] for grant in listed] == ["wanted.example"]
    assert run_cli("revoke", listed[0]["id"], *port, env=env).returncode == 0
    codes = (
        run_cli("allow", "*", *port, env=env).returncode,
        run_cli("allow", "169.254.169.254", *port, env=env).returncode,
        run_cli("grants", *port, env={**env, "STEERABLE_EGRESS_CONTROL_TOKEN": "wrong"}).returncode,
    )
    assert codes == (2, 3, 4)
