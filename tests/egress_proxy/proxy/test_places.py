"""Rules of places: what one client has under way is counted before it costs others anything.

One client does its worst, and another is served as usual. See egress_proxy/proxy/places.py.
"""

from __future__ import annotations

import dataclasses
import os
import time

import pytest

from egress_proxy.core.access import Access, Client, Door
from egress_proxy.core.decision import Reason
from egress_proxy.core.events import Decided, Ended
from egress_proxy.core.host import parse_authority
from egress_proxy.proxy.client_tokens import ClientTokens
from egress_proxy.proxy.order import ForwardLimits
from egress_proxy.proxy.places import Places
from egress_proxy.vault.secret import Secret
from tests.conftest import Start
from tests.egress_proxy.proxy.brokers import broker, call
from tests.support.answers import fixed
from tests.support.data_port import TUNNELS, DataPort
from tests.support.deadline import eventually
from tests.support.http import read_head, read_response
from tests.support.origins import EchoOrigin, StuckOrigin
from tests.support.proc_figures import open_descriptors
from tests.support.provider import Provider
from tests.support.service_answers import connect_request

SERVED_S = 2.0
BEARER_WORST, BEARER_OTHER = (("Proxy-Authorization", f"Bearer token-{name}") for name in ("worst", "other"))
FEW = dataclasses.replace(TUNNELS, in_all=20)


@pytest.fixture
def echo(start: Start) -> EchoOrigin:
    return start(EchoOrigin())


@pytest.fixture
def provider(start: Start) -> Provider:
    return start(Provider())


def access(client: str = "anonymous") -> Access:
    return Access(Client(client), parse_authority("a.example:443"), Door.TUNNEL)


# The count.


def test_there_are_so_many_places_and_the_refusal_names_the_setting() -> None:
    places = Places(in_all=2, per_client=9)
    assert [places.take(access()), places.take(access("build"))] == [None, None]
    full = places.take(access())
    assert full is not None
    assert full.reason is Reason.TOO_MANY_TUNNELS
    assert full.detail == "2 tunnels and requests are under way, which is the limit that limits.tunnels sets"
    assert len(places) == 2
    places.leave(Client("build"))
    assert places.take(access()) is None


def test_a_client_of_its_own_has_its_own_limit_and_anonymous_ones_share_all() -> None:
    places = Places(in_all=9, per_client=1)
    assert places.take(access("build")) is None
    full = places.take(access("build"))
    assert full is not None
    assert "limits.tunnels_per_client" in full.detail
    assert [places.take(access("other")), places.take(access()), places.take(access())] == [None] * 3


def test_a_client_that_has_left_is_forgotten() -> None:
    places = Places(in_all=9, per_client=9)
    for number in range(100):
        places.take(access(f"sandbox-{number}"))
        places.leave(Client(f"sandbox-{number}"))
    assert len(places) == 0
    assert not places._by_client


# One client does its worst.


@pytest.mark.parametrize("relay", ["loop", "epoll"])
def test_dials_to_a_silent_host_take_the_places_of_tunnels(start: Start, relay: str) -> None:
    """Four hundred of them cost 814 descriptors where 20 tunnels were the limit."""
    stuck = start(StuckOrigin())
    port = start(DataPort(allow=[stuck.address], tunnels=FEW, relay=relay, connect_timeout_s=30))
    before = open_descriptors(os.getpid())
    socks = [port.open() for _ in range(60)]
    for sock in socks:
        sock.sendall(connect_request(stuck.address))
    refused = port.log.wait_for(Decided, 40)
    assert {(one.status, one.reason) for one in refused} == {(503, Reason.TOO_MANY_TUNNELS)}
    assert len(refused) == 40
    assert port.call(lambda: len(port.table.places)) == 20
    eventually(lambda: open_descriptors(os.getpid()) <= before + 60 + 20 + 20)  # clients' ends, ours, dials
    for sock in socks:
        sock.close()


@pytest.mark.parametrize("relay", ["loop", "epoll"])
def test_a_client_at_its_limit_does_not_hold_up_another(start: Start, echo: EchoOrigin, relay: str) -> None:
    stuck = start(StuckOrigin())
    port = start(
        DataPort(
            allow=[stuck.address, echo.address],
            clients=ClientTokens(own={name: Secret(f"token-{name}") for name in ("worst", "other")}),
            tunnels=dataclasses.replace(TUNNELS, in_all=20, per_client=10),
            relay=relay,
        )
    )
    socks = [port.open() for _ in range(40)]
    for sock in socks:
        sock.sendall(connect_request(stuck.address, headers=[BEARER_WORST]))
    port.log.wait_for(Decided, 30)
    began = time.monotonic()
    sock = port.open()
    sock.sendall(connect_request(echo.address, headers=[BEARER_OTHER]))
    assert read_head(sock).status == 200
    assert time.monotonic() - began < SERVED_S


def test_uploads_that_stall_take_places_and_are_given_up(start: Start, provider: Provider) -> None:
    """460 of them held every place for an hour."""
    provider.otherwise(fixed(b"ok"))
    port = start(
        broker(provider, tunnels=FEW, forwarding=ForwardLimits(first_byte_s=60, idle_s=3600, body_s=0.5))
    )
    stalled = [call(port) for _ in range(20)]
    for one in stalled:
        one.sock.sendall(
            b"POST http://127.0.0.1/ HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\nabc"
        )
    eventually(lambda: port.call(lambda: len(port.table.places)) == 20)
    full = call(port).ask("GET")
    assert full.status == 503
    assert full.value("Retry-After")
    assert "limits.tunnels " in full.json()["reason"]
    for one in stalled:
        given_up = read_response(one.sock)
        assert given_up.status == 408
        assert "limits.body_timeout_s" in given_up.json()["reason"]
    assert call(port).ask("GET").status == 200
    eventually(lambda: port.call(lambda: len(port.table.places)) == 0)
    assert len(port.log.of(Ended)) == 21


def test_a_body_that_goes_on_is_no_stalled_one(start: Start, provider: Provider) -> None:
    provider.otherwise(fixed(b"ok"))
    port = start(broker(provider, forwarding=ForwardLimits(first_byte_s=60, idle_s=3600, body_s=0.4)))
    caller = call(port)
    caller.sock.sendall(b"POST http://127.0.0.1/ HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 8\r\n\r\n")
    for _ in range(8):
        time.sleep(0.1)  # the body takes longer than any pause in it may
        caller.sock.sendall(b"x")
    assert read_response(caller.sock).status == 200


def test_requests_on_kept_connections_have_places_too(start: Start, provider: Provider) -> None:
    provider.otherwise(fixed(b"ok"))
    port = start(broker(provider, tunnels=FEW))
    callers = [call(port) for _ in range(3)]
    for _ in range(4):
        for caller in callers:
            assert caller.ask("GET").status == 200
    assert port.call(lambda: len(port.table.places)) == 0
    for _ in range(20):
        port.call(lambda: port.table.places.occupy(Client()))
    assert [caller.ask("GET").status for caller in callers] == [503] * 3
    for _ in range(20):
        port.call(lambda: port.table.places.leave(Client()))
    assert call(port).ask("GET").status == 200
