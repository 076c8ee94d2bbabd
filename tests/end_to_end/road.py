"""A road for real clients: a TLS origin under two names, and the service, which lists one of them.

Both names lead to the same origin, so that only the proxy can make a difference between them. The
environment of a client is what `egress-proxy env` prints. Next: programs.py (finds the clients).
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.certificates import CertificateAuthority, server_context
from tests.support.dns_stub import DnsStub
from tests.support.program import clean_environment, run_cli
from tests.support.provider import Provider
from tests.support.service import Service

LISTED = "listed.example"
UNLISTED = "unlisted.example"
INJECTED = "api.example"
SECRET = "Bearer sk-injected-by-the-proxy"
SECRET_VARIABLE = "STEERABLE_EGRESS_SECRET"
CLIENT_S = 45.0  # Node and pip on a busy machine; less than the limit of a test


def phrase(host: str, port: int) -> str:
    """What a refused client can find in the status line."""
    return f"403 Forbidden; egress denied for {host}:{port}"


def proxy_environment(port: int, *flags: str) -> dict[str, str]:
    """The variables that `egress-proxy env` gives for the data port."""
    done = run_cli("env", "--format", "json", "--proxy", f"127.0.0.1:{port}", *flags)
    assert done.returncode == 0, done.stderr
    variables: dict[str, str] = json.loads(done.stdout)
    return variables


@dataclass(frozen=True, slots=True)
class Road:
    """``run`` starts a client in an environment of its own, made of ``variables`` and what is given."""

    origin: Provider
    service: Service
    variables: Mapping[str, str]
    ca_path: Path
    folder: Path  # the client's home and working directory

    def url(self, host: str, path: str = "/") -> str:
        return f"https://{host}:{self.origin.port}{path}"

    def phrase(self, host: str = UNLISTED) -> str:
        return phrase(host, self.origin.port)

    @property
    def connections(self) -> int:
        """How often the origin was reached: unchanged by a client that was refused."""
        return len(self.origin.connections)

    @property
    def credential(self) -> str | None:
        """What the last request brought to the origin."""
        return self.origin.requests[-1].value("Authorization")

    def run(
        self, *argv: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """One client to its end. The variables of the caller's own machine do not reach it."""
        return run_client(argv, {**self.variables, **(env or {})}, self.folder, cwd)


def run_client(
    argv: Sequence[str], env: Mapping[str, str], folder: Path, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        env=clean_environment(folder, env),
        cwd=cwd or folder,
        timeout=CLIENT_S,
        check=False,
    )


@contextmanager
def open_road(ca: CertificateAuthority, folder: Path) -> Iterator[Road]:
    leaf = ca.leaf(LISTED, UNLISTED)
    with DnsStub() as dns, Provider(tls=server_context(leaf)) as origin:
        for name in (LISTED, UNLISTED):
            dns.add(name, origin.host)
        listed = ("--allow-private", f"{LISTED}:{origin.port}", "--resolver", dns.address)
        with Service(*listed) as service:
            variables = proxy_environment(service.proxy_port)
            yield Road(origin, service, variables, ca.pem_path, folder)


@contextmanager
def open_inject_road(ca: CertificateAuthority, folder: Path) -> Iterator[Road]:
    """The same with a credential rule: `http://api.example` goes on over TLS, with the secret."""
    with DnsStub() as dns, Provider(tls=server_context(ca.leaf(INJECTED))) as origin:
        dns.add(INJECTED, origin.host)
        rule = ("--inject-host", INJECTED, "--inject-secret-env", SECRET_VARIABLE)
        inward = ("--inject-port", str(origin.port), "--allow-private", f"{INJECTED}:80")
        env = {SECRET_VARIABLE: SECRET, "SSL_CERT_FILE": str(ca.pem_path)}
        with Service(*rule, *inward, "--resolver", dns.address, env=env) as service:
            yield Road(origin, service, proxy_environment(service.proxy_port), ca.pem_path, folder)
