"""Cases C60 and C61: what is refused stays refused by every road and after every change; proxy variables.

Settings as such: test_case_configuration_settings.py. The audit log: test_case_configuration_audit.py.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.end_to_end.case_parts import (
    NO_SUCH_NAME,
    NOT_LISTED,
    Refusal,
    connect_head,
    json_lines,
    refusal,
    whole_refusal,
    write_config,
)
from tests.end_to_end.programs import system_program
from tests.support.byte_stream import connect, read_exactly
from tests.support.deadline import eventually
from tests.support.dns_stub import DnsStub
from tests.support.http import request_bytes
from tests.support.origins import EchoOrigin, closed_port
from tests.support.program import REPOSITORY, run_cli
from tests.support.service import TOKEN, Service

EVIL = "evil.test:443"


@contextmanager
def socat_to(port: int) -> Iterator[int]:
    """A relay in front of a port; its own port."""
    argv = [system_program("socat"), "-d", "-d", "TCP-LISTEN:0,bind=127.0.0.1,fork", f"TCP:127.0.0.1:{port}"]
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as relay:
        assert relay.stderr is not None
        line = next(line for line in relay.stderr if "listening on" in line)
        try:
            yield int(line.rpartition(":")[2])
        finally:
            relay.terminate()


def test_a_local_relay_changes_nothing(start_service: Callable[..., Service]) -> None:
    with EchoOrigin() as origin:
        service = start_service("--allow", origin.address)
        with socat_to(service.proxy_port) as port:
            for target, wanted in ((EVIL, b"403"), ("[::1]x:1", b"400"), (origin.address, b"200")):
                with connect(port) as sock:
                    sock.sendall(connect_head(target))
                    assert sock.recv(200).split(b" ")[1] == wanted, target


def test_a_thousand_grants_at_once_let_nobody_else_in(
    start_service: Callable[..., Service], dns: DnsStub
) -> None:
    service = start_service("--allow", "ok.example", "--resolver", dns.address, token=TOKEN)
    hosts = [f"h{n}.{random.choice(('evil', 'evil.test.org', 'test'))}.example" for n in range(1_000)]
    statuses: list[int] = []

    def grant(mine: list[str]) -> None:
        for host in mine:
            entry = {"host": random.choice((host, f"*.{host}", f"**.{host}:*", f"{host}:8443"))}
            statuses.append(service.control("POST", "/allow", entry).status)

    threads = [threading.Thread(target=grant, args=(hosts[n::4],)) for n in range(4)]
    for thread in threads:
        thread.start()
    seen: list[Refusal] = []
    while any(thread.is_alive() for thread in threads) or len(seen) < 200:
        seen.append(refusal(service, connect_head(EVIL)))
    for thread in threads:
        thread.join()
    assert set(seen) == {NOT_LISTED}
    assert statuses == [200] * 1_000
    assert len(service.control("GET", "/grants").json()["grants"]) == 1_000
    assert refusal(service, connect_head(EVIL)) == NOT_LISTED
    assert dns.total_queries == 0


def test_the_thousandth_request_is_judged_like_the_first(start_service: Callable[..., Service]) -> None:
    with EchoOrigin() as origin:
        service = start_service("--allow", origin.address)
        for _ in range(500):
            assert service.status(EVIL) == 403
        for _ in range(100):
            assert service.status(origin.address) == 200
            assert service.status(EVIL) == 403


BROKEN_FILES: dict[str, str] = {
    "no TOML": "allow = [",
    "an unknown key": 'allow = ["ok.example"]\nalow = ["evil.test"]',
    "a bad entry": 'allow = ["*"]',
    "a bad value": "allow_none = true\n[limits]\nhead_bytes = -1",
    "an empty list": "",
    "a rule without its secret": 'allow = ["evil.test"]\n[[inject]]\nname = "a"\nhost = "a.example"',
    "a client without its token": 'allow = ["evil.test"]\n[[client]]\nname = "a"\ntoken = "env:NO_SUCH"',
}


@pytest.mark.parametrize("by", ["call", "signal"])
def test_a_broken_reload_keeps_the_old_list(
    start_service: Callable[..., Service], dns: DnsStub, tmp_path: Path, by: str
) -> None:
    config = write_config(tmp_path, 'allow = ["ok.example"]')
    service = start_service("--config", config, "--resolver", dns.address, token=TOKEN)
    service.allow("granted.example")

    def has_errors(n: int) -> bool:
        lines = json_lines(service.stderr.text)
        return len([r for r in lines if r["kind"] == "reload" and r["error"]]) == n

    for number, text in enumerate(BROKEN_FILES.values(), 1):
        write_config(tmp_path, text)
        if by == "call":
            answer = service.control("POST", "/reload")
            assert (answer.status, answer.json().keys()) == (422, {"error", "detail"}), text
        else:
            service.signal(signal.SIGHUP)

        eventually(partial(has_errors, number), what="the error of the reload")
        assert refusal(service, connect_head(EVIL)) == NOT_LISTED
        for listed in ("ok.example:443", "granted.example:443"):
            assert refusal(service, connect_head(listed)) == NO_SUCH_NAME
    os.unlink(config)
    assert service.control("POST", "/reload").status == 422
    assert refusal(service, connect_head("ok.example:443")) == NO_SUCH_NAME


def test_a_good_reload_swaps_all_at_once_and_grants_stay(
    start_service: Callable[..., Service], dns: DnsStub, tmp_path: Path
) -> None:
    config = write_config(tmp_path, 'allow = ["ok.example"]')
    service = start_service("--config", config, "--resolver", dns.address, token=TOKEN)
    service.allow("granted.example")
    write_config(tmp_path, 'allow = ["other.example"]\ndeny = ["denied.example"]')
    assert service.control("POST", "/reload").status == 200
    assert refusal(service, connect_head("ok.example:443")) == NOT_LISTED
    for passing in ("other.example:443", "granted.example:80"):
        assert refusal(service, connect_head(passing)) == NO_SUCH_NAME
    for _ in range(5):
        service.signal(signal.SIGHUP)
    assert refusal(service, connect_head(EVIL)) == NOT_LISTED
    assert service.is_running()


def test_plain_http_is_never_fetched(start_service: Callable[..., Service]) -> None:
    with EchoOrigin() as origin:
        service = start_service("--allow", origin.address)
        for target in (f"http://{origin.address}/", "http://evil.test/", f"https://{origin.address}/"):
            for method in ("GET", "POST", "HEAD", "OPTIONS", "PUT"):
                received, end = service.raw_end(request_bytes(method, target))
                if method == "HEAD":
                    assert received.startswith(b"HTTP/1.1 405 ")
                else:
                    assert whole_refusal(received, end) == (405, "method-not-allowed")
        assert origin.connections_accepted == 0


def test_proxy_variables_of_the_service_itself_change_nothing(start_service: Callable[..., Service]) -> None:
    """It dials what it judged, whatever its own environment says."""
    with EchoOrigin() as origin, closed_port() as closed:
        other = f"http://127.0.0.1:{closed}"
        names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
        env = {**dict.fromkeys(names, other), "NO_PROXY": "evil.test", "no_proxy": "*"}
        service = start_service("--allow", origin.address, env=env)
        assert read_exactly(service.tunnel(origin.address, b"HELLO"), 5) == b"HELLO"
        assert service.status(EVIL) == 403


# C61: the variables for children.

OTHERS = {
    "HTTP_PROXY": "http://other:1",
    "https_proxy": "http://user:pw@other:1",
    "NO_PROXY": "*",
    "no_proxy": "169.254.169.254,10.0.0.0/8",
    "ALL_PROXY": "socks5://other:1",
    "NODE_USE_ENV_PROXY": "0",
}
PROXIED = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


def test_the_variables_are_ours_alone(start_service: Callable[..., Service]) -> None:
    service = start_service("--allow", "ok.example")
    where = f"127.0.0.1:{service.proxy_port}"
    variables = json.loads(run_cli("env", "--json", "--proxy", where, env=OTHERS).stdout)
    for name in PROXIED:
        assert variables[name] == variables[name.lower()] == f"http://{where}"
    assert variables["NO_PROXY"] == variables["no_proxy"] == ""
    assert variables["NODE_USE_ENV_PROXY"] == "1"
    assert variables["STEERABLE_EGRESS_CONFINED"] == "1"
    assert not [value for value in variables.values() if "@" in value or "other" in value]


def test_a_shell_that_evaluates_them_has_them_and_loses_them_again(
    start_service: Callable[..., Service],
) -> None:
    service = start_service("--allow", "ok.example")
    script = (
        f'eval "$("$0" -m egress_proxy env --proxy 127.0.0.1:{service.proxy_port})"; env; echo =====;'
        ' eval "$("$0" -m egress_proxy env --unset)"; env'
    )
    env = {**os.environ, **OTHERS, "PYTHONPATH": str(REPOSITORY)}
    argv = ["sh", "-c", script, sys.executable]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=30, check=True)
    during, _, after = done.stdout.partition("=====\n")
    variables = dict(line.split("=", 1) for line in during.splitlines() if "=" in line)
    for name in PROXIED:
        assert variables[name] == variables[name.lower()] == f"http://127.0.0.1:{service.proxy_port}"
    assert variables["NO_PROXY"] == variables["no_proxy"] == ""
    left = {line.split("=", 1)[0].upper() for line in after.splitlines() if "=" in line}
    assert not left & {*PROXIED, "NO_PROXY", "NODE_USE_ENV_PROXY", "STEERABLE_EGRESS_CONFINED"}


def test_without_a_proxy_there_is_no_marker() -> None:
    """Neither where nothing listens, nor where something else does."""
    with EchoOrigin() as echo, closed_port() as closed:
        for port in (echo.port, closed):
            done = run_cli("env", "--json", "--proxy", f"127.0.0.1:{port}")
            assert done.returncode != 0
            assert "STEERABLE_EGRESS_CONFINED" not in json.loads(done.stdout)
        direct = run_cli(
            "env", "--json", "--no-marker", "--no-proxy-loopback", "--proxy", f"127.0.0.1:{closed}"
        )
        variables = json.loads(direct.stdout)
    assert set(variables["NO_PROXY"].split(",")) == {"localhost", "127.0.0.1", "::1"}
    assert "STEERABLE_EGRESS_CONFINED" not in variables
