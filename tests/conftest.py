"""Fixtures that every test may use: a name server, certificates, factories for the rest.

Everything that a factory starts ends with the test, last started first; no product code is here.
The parts are in tests/support/, and also work by themselves, as context managers.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Protocol, TypeAlias, TypeVar

import hypothesis
import pytest

from tests.support.certificates import CertificateAuthority, Leaf, server_context
from tests.support.dns_stub import DnsStub
from tests.support.netns import NetworkNamespace, unavailable
from tests.support.provider import Provider
from tests.support.service import Service
from tests.support.skips import is_allowed

Part = TypeVar("Part")
Report: TypeAlias = pytest.TestReport | pytest.CollectReport
THREADS_END_S = 2.0  # a thread that has been told to end may need a moment

# No deadline per example: a busy machine is not a bug. Bounded: the whole run has minutes, not hours. The
# same examples each time, so that a failure tells of a change; `deep` looks for what nobody thought of.
hypothesis.settings.register_profile("ci", derandomize=True, deadline=None, max_examples=200, print_blob=True)
hypothesis.settings.register_profile("deep", deadline=None, max_examples=20_000, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


class Start(Protocol):
    """``origin = start(EchoOrigin())``: enter a context that ends with the test."""

    def __call__(self, part: AbstractContextManager[Part], /) -> Part: ...


class StartProvider(Protocol):
    """``start_provider("api.example")`` with TLS for these names, ``start_provider()`` without.

    ``leaf`` shows another certificate; ``options`` are the provider's own (bind, max_requests, …).
    """

    def __call__(self, *names: str, leaf: Leaf | None = None, **options: Any) -> Provider: ...


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    fail_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    fail_skip(report)
    return report


def fail_skip(report: Report) -> None:
    """With CI=true a skip that skips.py does not allow is a failure."""
    if report.skipped and not hasattr(report, "wasxfail") and isinstance(report.longrepr, tuple):
        path, line, reason = report.longrepr
        if not is_allowed(reason):
            report.outcome = "failed"
            report.longrepr = f"{path}:{line}: with CI=true this may not be skipped\n{reason}"


@pytest.fixture(autouse=True)
def threads_end() -> Iterator[None]:
    """A thread that outlives its test fails it, unless it is a daemon of somebody else's."""
    before = set(threading.enumerate())
    yield
    left = [t for t in threading.enumerate() if t not in before and _must_end(t)]
    for thread in left:
        thread._started.wait(THREADS_END_S)  # type: ignore[attr-defined]  # listed before it can be joined
        thread.join(THREADS_END_S)
    names = [thread.name for thread in left if thread.is_alive()]
    if names:
        pytest.fail(f"threads outlive the test: {names}", pytrace=False)


def _must_end(thread: threading.Thread) -> bool:
    return not thread.daemon or thread.name.startswith("support-")


@pytest.fixture
def start() -> Iterator[Start]:
    with ExitStack() as stack:
        yield stack.enter_context


@pytest.fixture
def dns(start: Start) -> DnsStub:
    """A stub name server, empty: every name is NXDOMAIN until the test adds it."""
    return start(DnsStub())


@pytest.fixture(scope="session")
def ca(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    """One authority for the run; ``ca.pem_path`` is what clients must trust."""
    return CertificateAuthority(tmp_path_factory.mktemp("ca"))


@pytest.fixture
def start_provider(start: Start, ca: CertificateAuthority) -> StartProvider:
    def start_one(*names: str, leaf: Leaf | None = None, **options: Any) -> Provider:
        shown = ca.leaf(*names) if names and leaf is None else leaf
        return start(Provider(tls=server_context(shown) if shown else None, **options))

    return start_one


@pytest.fixture
def start_service(start: Start) -> Callable[..., Service]:
    """``start_service("--allow", "ok.example", token=TOKEN)``: see ``Service`` for the rest."""

    def start_one(*args: str, **options: Any) -> Service:
        return start(Service(*args, **options))

    return start_one


@pytest.fixture
def net(start: Start) -> NetworkNamespace:
    """A network namespace; the test enters it. Skips, with the reason, where none can be made."""
    if reason := unavailable():
        pytest.skip(reason)
    return start(NetworkNamespace())
