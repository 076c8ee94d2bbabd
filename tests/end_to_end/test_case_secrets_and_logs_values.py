"""Cases C53 and C54: no verb shows a secret; what one may be, and what is trimmed of it.

A refusal names the source, never the value. That no output holds a secret:
test_case_secrets_and_logs_canary.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.end_to_end.canaries import CANARIES, leaks
from tests.end_to_end.case_parts import write_config
from tests.support.certificates import CertificateAuthority
from tests.support.dns_stub import DnsStub
from tests.support.http import request_bytes
from tests.support.program import run_cli
from tests.support.provider import Provider
from tests.support.service import Service

BAD_STARTS = {  # {1} and so on: the canaries themselves, where only their source belongs
    "help": "serve --help",
    "an unknown option": "serve --allow ok.example --no-such-option",
    "a bad value": "serve --allow ok.example --connect-timeout never",
    "a secret for its variable": "serve --inject-host a.example --inject-secret-env {0}",
    "a token for its variable": "serve --allow-none --control-token-env {1}",
    "half a rule": "serve --inject-secret-env SECRET",
    "config show": "config show --json --inject-host a.example --inject-secret-env SECRET"
    " --control-token-env CONTROL_TOKEN --client-token-env CLIENT_TOKEN",
    "config check": "config check --secrets --inject-host a.example --inject-secret-env SECRET",
    "check": "check a.example --inject-host a.example --inject-secret-env SECRET",
    "a taken port": "serve --bind 127.0.0.1:{taken} --inject-host a.example --inject-secret-env SECRET",
}


@pytest.mark.parametrize("line", BAD_STARTS.values(), ids=BAD_STARTS.keys())
def test_no_start_and_no_verb_shows_a_secret(start_service: Callable[..., Service], line: str) -> None:
    taken = start_service("--allow-none").proxy_port if "{taken}" in line else 0
    args = line.format(*CANARIES.values(), taken=taken).split()
    done = run_cli(*args, env={**CANARIES, "STEERABLE_EGRESS_SECRET": CANARIES["SECRET"]})
    assert leaks(done.stdout + done.stderr) == []
    assert done.stdout + done.stderr


FLAWED: dict[str, bytes] = {  # a process each; more of them in tests/egress_proxy/vault
    "empty": b"",
    "a line end": b"sk-CANARY\n",
    "a header of its own": b"sk-CANARY\r\nX: 1",
    "not ASCII": b"sk-CANARY\xff",
    "an escape": b"sk-CANARY\x1b[2J",
}


def refuses_to_start(args: tuple[str, ...], env: Mapping[str, str], named: str) -> None:
    done = run_cli("serve", "--bind", "127.0.0.1:0", *args, env=env)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert named in done.stderr
    assert "CANARY" not in done.stderr


@pytest.mark.parametrize("value", FLAWED.values(), ids=FLAWED.keys())
def test_a_flawed_secret_of_the_environment_stops_the_start(value: bytes) -> None:
    args = ("--inject-host", "a.example", "--inject-secret-env", "STEERABLE_EGRESS_SECRET")
    refuses_to_start(args, {"STEERABLE_EGRESS_SECRET": os.fsdecode(value)}, "STEERABLE_EGRESS_SECRET")


@pytest.mark.parametrize("flag", ["--control-token-env", "--client-token-env"])
def test_a_missing_or_flawed_token_stops_the_start(flag: str) -> None:
    args = ("--allow", "ok.example", flag, "MY_TOKEN")
    refuses_to_start(args, {}, "MY_TOKEN")
    refuses_to_start(args, {"MY_TOKEN": "sk-CANARY\n"}, "MY_TOKEN")


def test_a_file_loses_one_line_end_and_is_read_again(
    ca: CertificateAuthority,
    dns: DnsStub,
    start_provider: Callable[..., Provider],
    start_service: Callable[..., Service],
    tmp_path: Path,
) -> None:
    provider = start_provider("api.example")
    dns.add("api.example", "127.0.0.1")
    file = tmp_path / "secret"
    file.touch(mode=0o600)
    file.write_bytes(b"sk-1\n")
    rule = f'[[inject]]\nname = "api"\nhost = "api.example"\nupstream_port = {provider.port}\n'
    config = write_config(tmp_path, f'allow_private = ["api.example:80"]\n{rule}secret = "file:{file}"')
    env = {"SSL_CERT_FILE": str(ca.pem_path)}
    service = start_service("--config", config, "--resolver", dns.address, env=env)
    for octets in (b"sk-1\n", b"sk-2", b"sk-3\r\n"):
        file.write_bytes(octets)
        service.request(request_bytes("GET", "http://api.example/"))
    assert [r.value("Authorization") for r in provider.requests] == ["sk-1", "sk-2", "sk-3"]
    for octets in (b"sk-CANARY\nX: 1\n", b"sk-CANARY\n\n", b""):
        file.write_bytes(octets)
        answer = service.request(request_bytes("GET", "http://api.example/"))
        assert (answer.status, answer.value("X-Proxy-Error")) == (502, "secret-unavailable")
        assert b"CANARY" not in answer.body
    assert "CANARY" not in service.stderr.text
    assert len(provider.requests) == 3
    provider.drain()


def test_a_flawed_file_stops_the_start(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.touch(mode=0o600)
    rule = f'[[inject]]\nname = "api"\nhost = "api.example"\nsecret = "file:{file}"\n'
    for octets in (b"sk-CANARY\n\n", b"sk-CANARY\xff\n"):
        file.write_bytes(octets)
        refuses_to_start(("--config", write_config(tmp_path, rule)), {}, str(file))
