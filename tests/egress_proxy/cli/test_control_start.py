"""The control API beside a service: it knows the sandboxes that live, and shows the service's own ports."""

from __future__ import annotations

from tests.conftest import Start
from tests.support.origins import EchoOrigin
from tests.support.sandbox_caller import SandboxCaller
from tests.support.service import TOKEN, Service


def test_a_grant_can_be_made_for_a_sandbox_while_it_lives(start: Start) -> None:
    echo = start(EchoOrigin())
    service = start(Service("--allow-none", token=TOKEN))
    one = start(SandboxCaller(service.attach_path))
    unknown = service.control("POST", "/allow", {"host": echo.address, "client": "sandbox-1"})
    assert (unknown.status, unknown.json()["error"]) == (400, "unknown-client")
    one.welcome()
    service.allow(echo.address, client="sandbox-1")
    two = start(SandboxCaller(service.attach_path)).attach()
    assert (two.status(echo.address), service.status(echo.address)) == (403, 403)
    one.close()
    two.end()
    gone = service.control("POST", "/allow", {"host": echo.address, "client": "sandbox-2"})
    assert gone.status == 400
    assert service.control("GET", "/grants").json()["grants"] == []


def test_listeners_of_sandboxes_are_none_of_the_services(start: Start) -> None:
    service = start(Service("--allow-none", token=TOKEN))
    start(SandboxCaller(service.attach_path)).attach()
    shown = service.control("GET", "/status").json()["listeners"]
    assert shown == [f"127.0.0.1:{service.proxy_port}", f"127.0.0.1:{service.control_port}"]
