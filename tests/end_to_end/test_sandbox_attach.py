"""Sandboxes at the running service: told apart by their own listeners, and gone without a trace.

The listeners are handed out as the launcher does it; that a command can reach nothing else is not shown here.
"""

from __future__ import annotations

import json
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conftest import Start
from tests.support.byte_stream import End, connect, read_end, read_exactly
from tests.support.deadline import eventually
from tests.support.netns import NetworkNamespace, unavailable
from tests.support.origins import EchoOrigin
from tests.support.sandbox_caller import SandboxCaller
from tests.support.service import TOKEN, Service

MANY = 40


def use(echo: EchoOrigin, connections: int, octets: int) -> dict[str, object]:
    host, _, port = echo.address.rpartition(":")
    there_and_back = {"bytes_out": octets, "bytes_in": octets}
    return {"host": host, "port": int(port), "connections": connections, **there_and_back}


def test_three_sandboxes_on_one_port_number_are_told_apart(start: Start) -> None:
    if reason := unavailable():
        pytest.skip(reason)
    echoes = [start(EchoOrigin()) for _ in range(3)]
    service = start(Service("--allow-none", token=TOKEN))
    nets = [start(NetworkNamespace()) for _ in range(3)]
    callers = [start(SandboxCaller(service.attach_path, f"command {number}")) for number in range(3)]
    for net, caller, echo in zip(nets, callers, echoes, strict=True):
        with net.entered():
            caller.attach(service.proxy_port)
        service.allow(echo.address, client=caller.client)
    for net, caller, own in zip(nets, callers, echoes, strict=True):
        with net.entered():
            answers = [caller.status(echo.address) for echo in echoes]
        assert answers == [200 if echo is own else 403 for echo in echoes]
    for caller, own in zip(callers, echoes, strict=True):
        report = caller.end()
        assert report["reached"] == [use(own, 1, 0)]
        assert [denied["reason"] for denied in report["denied"]] == ["not_listed"] * 2
    assert service.control("GET", "/grants").json()["grants"] == []


def test_it_needs_no_token_and_a_reload_judges_it_like_any_other(start: Start, tmp_path: Path) -> None:
    stays, goes = start(EchoOrigin()), start(EchoOrigin())
    config = tmp_path / "egress.toml"
    client = '[[client]]\nname = "build"\ntoken = "env:BUILD_TOKEN"\n'
    config.write_text(f'allow = ["{stays.address}", "{goes.address}"]\n{client}')
    service = start(Service("--config", str(config), env={"BUILD_TOKEN": "a-token-of-its-own"}))
    assert service.status(stays.address) == 407
    one = start(SandboxCaller(service.attach_path)).attach()
    kept, cut = one.tunnel(stays.address), one.tunnel(goes.address)
    config.write_text(f'allow = ["{stays.address}"]\n{client}')
    service.signal(signal.SIGHUP)
    assert read_end(cut) is End.RESET
    kept.sendall(b"still here")
    assert read_exactly(kept, 10) == b"still here"
    assert (one.status(stays.address), one.status(goes.address)) == (200, 403)


def test_the_end_of_a_sandbox_ends_its_tunnels_and_tells_what_they_carried(start: Start) -> None:
    echo = start(EchoOrigin())
    service = start(Service("--allow", echo.address))
    one = start(SandboxCaller(service.attach_path)).attach()
    tunnels = [one.tunnel(echo.address) for _ in range(3)]
    for tunnel in tunnels:
        tunnel.sendall(b"HELLO")
        assert read_exactly(tunnel, 5) == b"HELLO"
    assert one.end()["reached"] == [use(echo, 3, 15)]
    assert all(read_end(tunnel) is not End.OPEN for tunnel in tunnels)
    with pytest.raises(ConnectionRefusedError):
        connect(one.port)


def test_a_caller_that_dies_takes_its_sandbox_along(start: Start) -> None:
    echo = start(EchoOrigin())
    service = start(Service("--allow", echo.address))
    one = start(SandboxCaller(service.attach_path)).attach()
    tunnel = one.tunnel(echo.address)
    one.sock.close()
    assert read_end(tunnel) is not End.OPEN


def test_every_listener_and_connection_is_given_back(start: Start) -> None:
    echo = start(EchoOrigin())
    service = start(Service("--allow", echo.address))
    with SandboxCaller(service.attach_path) as first:  # what the first one opens for good is not its own
        first.attach().tunnel(echo.address)
    service.tunnel(echo.address).close()
    eventually(lambda: echo_is_alone(service), what="the first ones to be gone")
    before = service.open_descriptors()
    with ExitStack() as stack:
        many = [stack.enter_context(SandboxCaller(service.attach_path)).attach() for _ in range(MANY)]
        for one in many:
            one.tunnel(echo.address)
        assert service.open_descriptors() >= 4 * MANY  # two sockets of a tunnel, one to attach by, a listener
        for one in many:
            one.end()
    eventually(lambda: service.open_descriptors() <= before, what="the descriptors to be given back")


def echo_is_alone(service: Service) -> bool:
    before = service.open_descriptors()
    return service.status("evil.example:443") == 403 and service.open_descriptors() == before


def test_when_the_proxy_dies_whoever_is_inside_is_refused(start: Start) -> None:
    service = start(Service("--allow-none"))
    one = start(SandboxCaller(service.attach_path)).attach()
    service.kill()
    with pytest.raises(ConnectionRefusedError):
        connect(one.port)
    assert one.sock.recv(1) == b""  # and no report


def test_a_proxy_that_is_stopped_sends_the_reports_and_removes_its_socket(start: Start) -> None:
    service = start(Service("--allow-none"))
    one = start(SandboxCaller(service.attach_path)).attach()
    assert one.status("evil.example:443") == 403
    assert service.stop() == 0
    [denied] = one.read_line()["denied"]
    assert (denied["host"], denied["reason"]) == ("evil.example", "not_listed")
    assert not Path(service.attach_path).exists()


def test_coming_and_going_stand_in_the_log_and_in_the_audit_log(start: Start, tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    service = start(Service("--allow-none", "--audit", str(audit)))
    one = start(SandboxCaller(service.attach_path, "npm test\x1b[31m")).attach()
    one.end()
    service.stop()
    for lines in (audit.read_text().splitlines(), service.stderr.text.splitlines()):
        found = [record for record in map(json.loads, lines) if record["kind"] == "sandbox"]
        assert [record["change"] for record in found] == ["attached", "detached"]
        assert {(record["client"], record["label"]) for record in found} == {("sandbox-1", "npm test?[31m")}
