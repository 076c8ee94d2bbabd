"""The shared fixtures, used as tests use them, and the rule that no thread outlives a test.

Nothing of the product is used here.
See ../../conftest.py.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx

from tests.conftest import Start, StartProvider
from tests.support import answers
from tests.support.byte_stream import connect, read_exactly
from tests.support.certificates import CertificateAuthority
from tests.support.dns_stub import DnsStub
from tests.support.netns import NetworkNamespace
from tests.support.origins import EchoOrigin, SourceOrigin
from tests.support.program import REPOSITORY
from tests.support.service import Service

STAND_IN = (sys.executable, str(Path(__file__).with_name("stand_in.py")))
LEAKY = """
import threading
wait = threading.Event()
def test_leaky():
    threading.Thread(target=wait.wait, args=[2.5], name="left behind").start()
"""


def test_parts_started_by_a_test_work_together(
    dns: DnsStub, start: Start, start_service: Callable[..., Service]
) -> None:
    origin = start(EchoOrigin())
    dns.add("ok.example", origin.host)
    service = start_service("--resolver", dns.address, program=STAND_IN)
    assert read_exactly(service.tunnel(f"ok.example:{origin.port}", b"hi"), 2) == b"hi"


def test_a_provider_is_plain_without_names_and_tls_with(
    ca: CertificateAuthority, start_provider: StartProvider
) -> None:
    plain, secure = start_provider(), start_provider("localhost", max_requests=1)
    for provider in (plain, secure):
        provider.otherwise(answers.fixed(b"ok"))
    assert httpx.get(f"http://{plain.address}/", trust_env=False).text == "ok"
    with httpx.Client(verify=ca.client_context(), trust_env=False) as client:
        assert client.get(f"https://localhost:{secure.port}/").text == "ok"


def test_a_namespace_is_ready_to_be_entered(net: NetworkNamespace) -> None:
    net.add_address("93.184.215.14")
    with net.entered(), EchoOrigin("93.184.215.14") as origin:
        connect(origin.port, origin.host).close()


def test_a_source_that_nobody_reads_ends_with_its_test(start: Start) -> None:
    origin = start(SourceOrigin(1 << 30))
    with connect(origin.port):
        origin.wait_for_connections(1)
        origin.stop()


def test_a_thread_that_outlives_its_test_fails_it(tmp_path: Path) -> None:
    (tmp_path / "test_leaky.py").write_text(LEAKY)
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*argv, "-c", str(REPOSITORY / "pyproject.toml"), "--rootdir", str(tmp_path), str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1
    assert "threads outlive the test: ['left behind']" in done.stdout
