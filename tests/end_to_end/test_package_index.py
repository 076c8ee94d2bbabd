"""pip downloads a small package through the proxy, from whatever index it is configured with here.

No host is named in this file: the first comes from pip, the others from what the proxy refused, as
a person would learn them. Where even pip alone cannot reach its index, this is skipped.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.conftest import Start
from tests.end_to_end.detour import Detour, ambient_proxy
from tests.end_to_end.programs import python_program
from tests.end_to_end.road import UNLISTED, phrase, proxy_environment, run_client
from tests.support.byte_stream import connect, read_exactly
from tests.support.deadline import eventually
from tests.support.dns_stub import DnsStub
from tests.support.origins import EchoOrigin
from tests.support.service import Service
from tests.support.skips import INDEX_OUT_OF_REACH

PACKAGE = "six"  # one module, a few kilobytes, no dependencies
ROUNDS = 5  # the index, a host of files, another for metadata, and each might need a detour
# What a person's environment says about trust, and where their own pip would find passwords.
PASSED_ON = ("HOME", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
OPTIONS = ("cert", "client-cert", "trusted-host")

pytestmark = pytest.mark.timeout(240)  # the index may be slow, and each round starts pip


def pip(folder: Path, *words: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    passed_on = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return run_client([python_program("pip"), "-m", "pip", *words], {**passed_on, **env}, folder)


def as_configured(folder: Path, *words: str) -> str:
    """What pip says in the environment that the tests were started in."""
    return pip(folder, *words, env={**os.environ, "COLUMNS": "2000"}).stdout


def index_url(folder: Path) -> str:
    """The index in force: from a file, a variable, or pip's own default. Its help shows all three."""
    shown = re.search(r"--index-url <url>.*?\(default\s(\S+)\)", as_configured(folder, "download", "--help"))
    assert shown is not None
    return shown[1]


def options(folder: Path) -> Iterator[str]:
    """The configured options that decide whether pip trusts its index."""
    for line in as_configured(folder, "config", "list").splitlines():
        key, equals, value = line.partition("=")
        name = key.rpartition(".")[2]
        if equals and name in OPTIONS:
            yield f"--{name}={ast.literal_eval(value)}"


@dataclass(frozen=True, slots=True)
class Pip:
    """pip with one index alone: no cache, no other source that is configured."""

    folder: Path
    trust: tuple[str, ...]

    def download(
        self, url: str, env: Mapping[str, str], retries: int = 0
    ) -> subprocess.CompletedProcess[str]:
        alone = {"PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
        how = ("--no-deps", "--no-cache-dir", "--only-binary=:all:", f"--retries={retries}", "--timeout=20")
        where = (*self.trust, "--index-url", url, "--dest", str(self.folder / "downloaded"))
        return pip(self.folder, "download", *how, *where, PACKAGE, env={**alone, **env})


class Search:
    """Which hosts must be listed for pip to succeed; each round teaches some."""

    def __init__(self, first: str, stack: ExitStack) -> None:
        self.listed = [first]
        self._stack = stack
        self._dns: DnsStub | None = None

    def flags(self) -> list[str]:
        flags = [word for target in self.listed for word in ("--allow-private", target)]
        return flags if self._dns is None else [*flags, "--resolver", self._dns.address]

    def learn(self, service: Service) -> None:
        """From what the service has refused or could not reach."""
        denied = [line for line in decisions(service) if line["verdict"] == "deny"]
        failed = {(line["target"], line["reason"]) for line in denied}
        for target in sorted(target for target, reason in failed if reason == "not_listed"):
            self.listed.append(target)
            if self._dns is not None:
                self._detour(target)
        if self._dns is None and any(needs_detour(target, reason) for target, reason in failed):
            self._dns = self._stack.enter_context(DnsStub())
            for target in self.listed:
                self._detour(target)

    def _detour(self, target: str) -> None:
        assert self._dns is not None
        host, _, port = target.rpartition(":")
        bind = f"127.77.0.{self.listed.index(target) + 1}"
        try:
            self._stack.enter_context(Detour(host, int(port), bind))
        except OSError as error:
            pytest.skip(f"the proxy may not dial where the index is, and a detour cannot listen: {error}")
        self._dns.add(host, bind)


def decisions(service: Service) -> list[dict[str, str]]:
    """What was decided about targets; the question of `env`, whether the proxy is there, has none."""
    lines = [json.loads(line) for line in service.stderr.text.splitlines()]
    return [line for line in lines if line["kind"] == "decision" and line["target"]]


def needs_detour(target: str, reason: str) -> bool:
    host = target.rpartition(":")[0]
    return reason == "address_not_public" or (reason != "not_listed" and ambient_proxy(host) is not None)


def service_that_serves(client: Pip, url: str, search: Search, stack: ExitStack) -> Service:
    """A service through which pip has downloaded the package, with no more listed than that took."""
    said = ""
    for _ in range(ROUNDS):
        service = stack.enter_context(Service(*search.flags()))
        done = client.download(url, proxy_environment(service.proxy_port))
        if done.returncode == 0:
            return service
        service.stop()
        search.learn(service)
        said = f"{done.stdout}\n{done.stderr}"
    own = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
    if client.download(url, own, retries=2).returncode != 0:
        pytest.skip(INDEX_OUT_OF_REACH)
    pytest.fail(f"pip reaches its index, but not through the proxy:\n{said}")


def test_pip_downloads_from_its_own_index_and_from_no_other(tmp_path: Path) -> None:
    url = index_url(tmp_path)
    parts = urlsplit(url)
    if parts.scheme != "https":
        pytest.skip(f"the index is reached by {parts.scheme}, which the proxy does not forward")
    client = Pip(tmp_path, tuple(options(tmp_path)))
    with ExitStack() as stack:
        search = Search(f"{parts.hostname}:{parts.port or 443}", stack)
        service = service_that_serves(client, url, search, stack)
        (downloaded,) = (tmp_path / "downloaded").iterdir()
        assert downloaded.name.startswith(f"{PACKAGE}-")
        passed = {line["target"] for line in decisions(service) if line["verdict"] == "allow"}
        assert passed == set(search.listed)
        # Before a retry pip says what was wrong.
        env = proxy_environment(service.proxy_port)
        refused = client.download(f"https://{UNLISTED}/simple/", env, retries=1)
        assert refused.returncode != 0
        assert phrase(UNLISTED, 443) in refused.stdout + refused.stderr


def test_a_detour_takes_the_proxy_that_the_machine_uses(
    start: Start, start_service: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = start(EchoOrigin())
    machines = start_service("--allow", origin.address)
    monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{machines.proxy_port}")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    detour = start(Detour(origin.host, origin.port, "::1"))
    with connect(detour.port, detour.host) as sock:
        sock.sendall(b"hello")
        assert read_exactly(sock, 5) == b"hello"
    eventually(lambda: {line["target"] for line in decisions(machines)} == {origin.address})
