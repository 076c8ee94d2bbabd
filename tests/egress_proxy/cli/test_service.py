"""A running service: what a reload changes, how grants end, and how everything ends."""

from __future__ import annotations

import asyncio
import gc
import signal
from pathlib import Path

import pytest

from egress_proxy.cli import service as product
from egress_proxy.cli.plan import PolicyParts
from egress_proxy.core.attach import OwnFiles
from egress_proxy.core.events import Ended
from egress_proxy.core.policy import Policy
from egress_proxy.proxy.client_tokens import ClientTokens
from egress_proxy.vault.injection import HeldCredential
from tests.conftest import Start
from tests.egress_proxy.proxy.brokers import broker, call
from tests.support.answers import fixed
from tests.support.byte_stream import End, read_end, read_exactly
from tests.support.data_port import DataPort
from tests.support.deadline import eventually
from tests.support.origins import EchoOrigin
from tests.support.provider import Provider
from tests.support.service import Service
from tests.support.service_answers import connect_request


class Listed:
    """A service whose list is a file that the test rewrites."""

    def __init__(self, folder: Path, *hosts: str) -> None:
        self.path = folder / "egress.toml"
        self.write(*hosts)

    def write(self, *hosts: str) -> None:
        self.path.write_text("allow_none = true\n" + "".join(f'[[allow]]\nhost = "{h}"\n' for h in hosts))

    def start(self, start: Start) -> Service:
        return start(Service("--config", str(self.path), token="control-token"))


@pytest.fixture
def echoes(start: Start) -> tuple[EchoOrigin, EchoOrigin]:
    return start(EchoOrigin()), start(EchoOrigin())


@pytest.mark.parametrize("by", ["SIGHUP", "POST /reload"])
def test_a_reload_closes_what_is_no_longer_allowed_and_nothing_else(
    by: str, tmp_path: Path, start: Start, echoes: tuple[EchoOrigin, EchoOrigin]
) -> None:
    stays, goes = echoes
    listed = Listed(tmp_path, stays.address, goes.address)
    service = listed.start(start)
    kept, cut = service.tunnel(stays.address), service.tunnel(goes.address)
    listed.write(stays.address)
    if by == "SIGHUP":
        service.signal(signal.SIGHUP)
    else:
        assert service.control("POST", "/reload", json={}).status == 200
    assert read_end(cut) is End.RESET
    kept.sendall(b"still here")
    assert read_exactly(kept, 10) == b"still here"
    assert service.status(goes.address) == 403


def held_secrets() -> int:
    gc.collect()
    return sum(isinstance(one, HeldCredential) for one in gc.get_objects())


def test_a_reload_keeps_nothing_that_was_made_of_the_secrets_before(start: Start) -> None:
    """In this process, over the port's own parts: what a service holds in memory cannot be asked for."""
    provider = start(Provider())
    provider.otherwise(fixed(b"ok"))
    before = held_secrets()
    port = start(broker(provider))

    def reloading() -> product.Service:
        new = PolicyParts(Policy(), {}, ClientTokens(), OwnFiles())
        return product.Service(port.parts, port.pool, lambda: new, lambda: None, 1.0, lambda *_: None)

    service = port.call(reloading)
    assert call(port).ask("GET").status == 200
    port.log.wait_for(Ended)
    assert held_secrets() == before + 1
    asyncio.run_coroutine_threadsafe(service.reload(), port.loop).result(5)
    assert held_secrets() == before


def test_a_file_that_became_wrong_changes_nothing(
    tmp_path: Path, start: Start, echoes: tuple[EchoOrigin, EchoOrigin]
) -> None:
    listed = Listed(tmp_path, echoes[0].address)
    service = listed.start(start)
    listed.path.write_text("allow = [")
    answer = service.control("POST", "/reload", json={})
    assert answer.status == 422
    assert "egress.toml" in answer.json()["detail"]
    assert service.status(echoes[0].address) == 200


def test_a_grant_that_expires_takes_its_tunnel_within_two_seconds(
    start: Start, echoes: tuple[EchoOrigin, EchoOrigin]
) -> None:
    service = start(Service("--allow-none", token="control-token"))
    service.allow(echoes[0].address, ttl_s=1)
    sock = service.tunnel(echoes[0].address)
    sock.settimeout(3)
    assert read_end(sock) is End.RESET
    assert service.status(echoes[0].address) == 403
    assert service.control("GET", "/grants").json()["grants"] == []


def test_revoking_closes_the_tunnels_that_rest_on_the_grant(
    start: Start, echoes: tuple[EchoOrigin, EchoOrigin]
) -> None:
    service = start(Service("--allow", echoes[1].address, token="control-token"))
    grant = service.allow(echoes[0].address, reason="a look")["id"]
    cut, kept = service.tunnel(echoes[0].address), service.tunnel(echoes[1].address)
    assert service.control("DELETE", f"/grants/{grant}").status == 200
    assert read_end(cut) is End.RESET
    kept.sendall(b"x")
    assert read_exactly(kept, 1) == b"x"


def test_the_status_counts_what_is_open(start: Start, echoes: tuple[EchoOrigin, EchoOrigin]) -> None:
    service = start(Service("--allow", echoes[0].address, token="control-token"))
    sock = service.tunnel(echoes[0].address)
    assert service.control("GET", "/status").json()["tunnels"]["open"] == 1
    sock.close()
    eventually(
        lambda: service.control("GET", "/status").json()["tunnels"]["open"] == 0, what="the tunnel is gone"
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_idle_tunnels_at_once_and_the_service_with_0(
    number: signal.Signals, start: Start, echoes: tuple[EchoOrigin, EchoOrigin]
) -> None:
    service = start(Service("--allow", echoes[0].address))
    sock = service.tunnel(echoes[0].address)
    service.signal(number)
    assert service.wait() == 0
    assert read_end(sock) is End.RESET


def test_a_used_up_grant_keeps_its_tunnel_and_is_listed_for_a_minute_after_its_end(start: Start) -> None:
    echo, port = start(EchoOrigin()), start(DataPort())
    grant = port.grant(echo.address, max_uses=1)
    tunnel = port.tunnel(echo.address)
    new = PolicyParts(Policy(), {}, ClientTokens(), OwnFiles())
    service = port.call(
        lambda: product.Service(port.parts, port.pool, lambda: new, lambda: None, 1.0, lambda *_: None)
    )

    def is_listed_after(seconds: float) -> bool:
        port.clock.at += seconds
        port.call(service._sweep)
        return grant in port.call(lambda: port.grants.snapshot().by_id)

    assert port.ask(connect_request(echo.address)).status == 403
    assert is_listed_after(3 * product.USED_UP_SHOWN_S)
    tunnel.sendall(b"HELLO")
    assert read_exactly(tunnel, 5) == b"HELLO"
    tunnel.close()
    port.log.only(Ended)
    assert is_listed_after(0)  # its minute begins
    assert is_listed_after(product.USED_UP_SHOWN_S - 1)
    assert not is_listed_after(2)
