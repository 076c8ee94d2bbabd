"""All tunnels together: how many there may be, what ends them, and what the log says of each.

Tunnels run on a real loop, the test holds both far ends. One tunnel's end is in test_tunnel.py.
"""

from __future__ import annotations

import dataclasses
import os
import socket
import threading

import pytest

from egress_proxy.core.access import Access, Client, Door
from egress_proxy.core.decision import Reason
from egress_proxy.core.events import EndCause, Ended, Event, Noticed
from egress_proxy.core.host import parse_authority
from egress_proxy.core.seams import AuditUnavailable
from egress_proxy.core.sni_policy import SniPolicy
from egress_proxy.proxy.tunnel_table import QUIET_S, TunnelLimits
from tests.egress_proxy.proxy.hellos import hello, long_hello
from tests.egress_proxy.proxy.live_tunnels import LiveTunnel, open_tunnel
from tests.egress_proxy.proxy.socket_pairs import fill, unread_bytes
from tests.support.byte_stream import End, read_end, read_exactly, read_some, read_until_end
from tests.support.data_port import TUNNELS, DataPort
from tests.support.deadline import eventually
from tests.support.proc_figures import open_descriptors

HTTPS = "ok.example:443"
HELLO = hello()
SERVER_HELLO = b"\x16\x03\x01\x00\x06\x02\x00\x00\x02\x03\x03"  # TLS, and nothing that a client says first
REFUSED = EndCause.SNI_REFUSED


def limits(**changed: float) -> TunnelLimits:
    return dataclasses.replace(TUNNELS, **changed)  # type: ignore[arg-type]


def has_room(port: DataPort, client: str = "anonymous") -> bool:
    access = Access(Client(client), parse_authority("a.example:443"), Door.TUNNEL)
    return port.call(lambda: port.table.places.refusal(access)) is None


def answer(tunnel: LiveTunnel, octets: bytes = b"pong") -> bytes:
    """What reaches the client when the upstream sends this."""
    tunnel.upstream.sendall(octets)
    return read_exactly(tunnel.client, len(octets))


# How many.


def test_there_is_room_for_so_many_tunnels_and_again_when_one_has_ended() -> None:
    with DataPort(tunnels=limits(in_all=2)) as port:
        first, _ = open_tunnel(port), open_tunnel(port)
        assert not has_room(port)
        assert port.table.count().open == port.table.count().limit == 2
        first.client.close()
        first.upstream.close()
        eventually(lambda: has_room(port))


def test_a_client_with_a_token_of_its_own_has_a_limit_of_its_own() -> None:
    with DataPort(tunnels=limits(per_client=1)) as port:
        tunnel = open_tunnel(port, client="build")
        assert not has_room(port, "build")
        assert has_room(port, "other")
        tunnel.client.close()
        tunnel.upstream.close()
        eventually(lambda: has_room(port, "build"))


def test_anonymous_clients_share_the_limit_of_all() -> None:
    with DataPort(tunnels=limits(per_client=1)) as port:
        open_tunnel(port)
        assert has_room(port)


# What the log says.


def test_the_end_of_a_tunnel_is_recorded_with_what_was_carried() -> None:
    with DataPort() as port:
        tunnel = open_tunnel(port, client="build", early=b"HEL")
        tunnel.client.sendall(b"LO")
        assert read_exactly(tunnel.upstream, 5) == b"HELLO"
        answer(tunnel, b"pong")
        for end in (tunnel.client, tunnel.upstream):
            end.shutdown(socket.SHUT_WR)
        ended = port.log.only(Ended)
        assert ended == Ended(
            request_id=tunnel.facts.request_id,
            client=Client("build"),
            target=tunnel.facts.target,
            door=Door.TUNNEL,
            cause=EndCause.DONE,
            bytes_out=5,
            bytes_in=4,
            duration_s=ended.duration_s,
        )
        assert 0 <= ended.duration_s < 5


def test_a_log_that_cannot_be_written_does_not_keep_a_tunnel_open() -> None:
    def refuse(event: Event) -> None:
        raise AuditUnavailable

    with DataPort() as port:
        tunnel = open_tunnel(port)
        port.log.refusing = refuse
        tunnel.client.close()
        tunnel.upstream.close()
        eventually(lambda: port.table.count().open == 0)
        port.log.refusing = lambda event: None
        assert port.log.of(Ended) == []


# Limits of time.


def test_a_tunnel_that_carries_nothing_is_ended_after_its_idle_time() -> None:
    with DataPort(tunnels=limits(idle_s=0.3)) as port:
        tunnel = open_tunnel(port)
        ended = port.log.only(Ended)
        assert ended.cause is EndCause.IDLE
        assert ended.duration_s >= 0.3
        assert read_end(tunnel.client) is End.RESET


def test_a_tunnel_that_carries_something_now_and_then_is_not_idle() -> None:
    with DataPort(tunnels=limits(idle_s=0.3)) as port:
        idle, talking = open_tunnel(port), open_tunnel(port)
        while not port.log.of(Ended):
            assert answer(talking) == b"pong"
        assert [ended.request_id for ended in port.log.of(Ended)] == [idle.facts.request_id]


@pytest.mark.parametrize("side", ["client", "upstream"])
def test_a_half_closed_tunnel_has_less_time_to_be_quiet(side: str) -> None:
    with DataPort(tunnels=limits(half_close_s=0.3)) as port:
        whole, half = open_tunnel(port), open_tunnel(port)
        (half.client if side == "client" else half.upstream).shutdown(socket.SHUT_WR)
        ended = port.log.only(Ended)
        assert (ended.cause, ended.request_id) == (EndCause.HALF_CLOSED, half.facts.request_id)
        assert answer(whole) == b"pong"


def test_a_half_closed_tunnel_that_still_carries_something_goes_on() -> None:
    with DataPort(tunnels=limits(half_close_s=0.3)) as port:
        quiet, talking = open_tunnel(port), open_tunnel(port)
        for tunnel in (quiet, talking):
            tunnel.client.shutdown(socket.SHUT_WR)
        while not port.log.of(Ended):
            assert answer(talking) == b"pong"
        assert [ended.request_id for ended in port.log.of(Ended)] == [quiet.facts.request_id]


@pytest.mark.parametrize("relay", ["loop", "epoll"])
def test_300_tunnels_of_clients_that_left_are_freed_after_the_bound(relay: str) -> None:
    with DataPort(relay=relay, tunnels=limits(half_close_s=0.5)) as port:
        before = port.registered_descriptors(), open_descriptors(os.getpid())
        tunnels = [open_tunnel(port) for _ in range(300)]
        assert port.table.count().open == 300
        for tunnel in tunnels:
            tunnel.client.shutdown(socket.SHUT_WR)
        causes = {ended.cause for ended in port.log.wait_for(Ended, 300)}
        assert causes == {EndCause.HALF_CLOSED}
        for tunnel in tunnels:
            tunnel.close()
        assert (port.registered_descriptors(), open_descriptors(os.getpid())) == before


@pytest.mark.parametrize("early", [b"", HELLO[:50]], ids=["later", "with the request head"])
def test_a_client_that_stops_in_the_middle_of_its_hello_is_refused_after_the_hello_time(early: bytes) -> None:
    with DataPort(tunnels=limits(hello_s=0.3)) as port:
        tunnel = open_tunnel(port, HTTPS, early=early)
        if not early:
            tunnel.client.sendall(HELLO[:50])
        ended = port.log.only(Ended)
        assert (ended.cause, ended.reason, ended.bytes_out) == (REFUSED, Reason.SNI_MISMATCH, 0)
        assert read_until_end(tunnel.upstream) == (b"", End.RESET)


def test_a_client_that_says_nothing_on_port_443_may_wait_for_its_server() -> None:
    with DataPort(tunnels=limits(hello_s=0.2)) as port:
        silent, halted = open_tunnel(port, HTTPS), open_tunnel(port, HTTPS, early=HELLO[:50])
        assert port.log.only(Ended).request_id == halted.facts.request_id
        assert answer(silent, b"220 ready") == b"220 ready"


def test_a_fault_in_what_else_is_due_does_not_end_the_sweeps() -> None:
    calls = threading.Semaphore(0)

    def fail() -> None:
        calls.release()
        raise RuntimeError("a fault of ours")

    with DataPort(tunnels=limits(idle_s=0.4)) as port:
        port.table.on_sweep = fail
        assert all(calls.acquire(timeout=5) for _ in range(3))
        port.table.on_sweep = lambda: None
        open_tunnel(port)
        assert port.log.only(Ended).cause is EndCause.IDLE
        assert {str(error["exception"]) for error in port.loop_errors} == {"a fault of ours"}
        port.loop_errors.clear()


# The first flight on port 443.


@pytest.mark.parametrize("flight", [HELLO, hello("OK.example"), long_hello()], ids=["usual", "case", "20 KB"])
def test_a_hello_that_names_the_host_passes_in_single_bytes(flight: bytes) -> None:
    with DataPort() as port:
        tunnel = open_tunnel(port, HTTPS)
        for at in range(len(flight)):
            tunnel.client.send(flight[at : at + 1])
        assert read_exactly(tunnel.upstream, len(flight)) == flight
        tunnel.client.sendall(b"later")
        assert read_exactly(tunnel.upstream, 5) == b"later"
        assert port.log.of(Noticed) == []


REFUSALS = [
    (hello("evil.test"), SniPolicy(), Reason.SNI_MISMATCH),
    (hello(None), SniPolicy(require_sni=True), Reason.SNI_MISSING),
    (b"SSH-2.0-x\r\n", SniPolicy(only_tls=True), Reason.NOT_TLS),
    (SERVER_HELLO, SniPolicy(), Reason.SNI_MISMATCH),
]


@pytest.mark.parametrize(("flight", "sni", "reason"), REFUSALS, ids=[str(row[2]) for row in REFUSALS])
@pytest.mark.parametrize("is_early", [True, False], ids=["with the request head", "later"])
def test_a_refused_first_flight_ends_the_tunnel_and_the_upstream_saw_no_byte(
    flight: bytes, sni: SniPolicy, reason: Reason, is_early: bool
) -> None:
    with DataPort() as port:
        tunnel = open_tunnel(port, HTTPS, early=flight if is_early else b"", sni=sni)
        if not is_early:
            tunnel.client.sendall(flight)
        ended = port.log.only(Ended)
        assert (ended.cause, ended.reason, ended.bytes_out) == (REFUSED, reason, 0)
        assert read_until_end(tunnel.upstream) == (b"", End.RESET)
        assert read_end(tunnel.client) is End.RESET


def test_the_log_says_which_name_a_refused_hello_asked_for() -> None:
    with DataPort() as port:
        open_tunnel(port, HTTPS, early=hello("evil.test"))
        assert port.log.only(Ended).detail == "the ClientHello names 'evil.test'"


@pytest.mark.parametrize(
    ("flight", "note"),
    [(hello(None), "first_flight_unnamed"), (b"SSH-2.0-x\r\n", "first_flight_not_tls")],
)
def test_a_first_flight_that_passes_without_a_name_is_noticed(flight: bytes, note: str) -> None:
    with DataPort() as port:
        tunnel = open_tunnel(port, HTTPS, early=flight)
        assert read_exactly(tunnel.upstream, len(flight)) == flight
        noticed = port.log.only(Noticed)
        assert (noticed.note, noticed.request_id) == (note, tunnel.facts.request_id)
        assert noticed.target == tunnel.facts.target


@pytest.mark.parametrize(
    ("target", "sni"), [("ok.example:8443", SniPolicy()), (HTTPS, SniPolicy(check=False))]
)
def test_a_hello_is_not_looked_at_on_other_ports_or_when_the_check_is_off(
    target: str, sni: SniPolicy
) -> None:
    with DataPort() as port:
        tunnel = open_tunnel(port, target, sni=sni)
        evil = hello("evil.test")
        tunnel.client.sendall(evil[:20])
        assert read_exactly(tunnel.upstream, 20) == evil[:20]  # at once, before the hello is whole
        assert port.log.of(Noticed) == []


def test_upstream_bytes_flow_while_the_first_flight_is_awaited() -> None:
    with DataPort() as port:
        tunnel = open_tunnel(port, HTTPS, early=HELLO[:50])
        assert answer(tunnel, b"220 ready") == b"220 ready"
        assert unread_bytes(tunnel.upstream) == 0


# What a tunnel rests on.


def test_a_grant_of_bytes_ends_its_tunnel_before_it_is_exceeded() -> None:
    with DataPort() as port:
        grant = port.grant("ok.example:7000", max_bytes_out=10)
        tunnel = open_tunnel(port, grant=grant)
        tunnel.client.sendall(b"1234567")
        assert read_exactly(tunnel.upstream, 7) == b"1234567"
        tunnel.client.sendall(b"8901")
        ended = port.log.only(Ended)
        assert (ended.cause, ended.bytes_out) == (EndCause.GRANT_ENDED, 7)
        assert read_until_end(tunnel.upstream) == (b"", End.RESET)


def test_two_tunnels_share_the_bytes_of_their_grant() -> None:
    with DataPort() as port:
        grant = port.grant("ok.example:7000", max_bytes_out=10)
        first, second = open_tunnel(port, grant=grant), open_tunnel(port, grant=grant)
        first.client.sendall(b"123456")
        assert read_exactly(first.upstream, 6) == b"123456"
        second.client.sendall(b"12345")
        assert port.log.only(Ended).request_id == second.facts.request_id
        assert read_until_end(second.upstream) == (b"", End.RESET)


def test_bytes_that_come_in_are_not_counted_against_a_grant() -> None:
    with DataPort() as port:
        tunnel = open_tunnel(port, grant=port.grant("ok.example:7000", max_bytes_out=1))
        assert answer(tunnel, b"x" * 1000) == b"x" * 1000


def test_closing_a_grant_ends_its_tunnels_and_no_others() -> None:
    with DataPort() as port:
        ids = [port.grant("ok.example:7000", max_uses=n) for n in (5, 6)]
        one, two, other = (open_tunnel(port, grant=grant) for grant in (ids[0], ids[0], ids[1]))
        listed = open_tunnel(port)
        assert port.call(lambda: port.table.close_grant(ids[0], EndCause.GRANT_ENDED)) == 2
        for tunnel in (one, two):
            assert read_end(tunnel.client) is End.RESET
        for tunnel in (other, listed):
            assert answer(tunnel) == b"pong"
        assert {ended.cause for ended in port.log.wait_for(Ended, 2)} == {EndCause.GRANT_ENDED}
        assert port.call(lambda: port.table.close_grant("g-none", EndCause.GRANT_ENDED)) == 0


def test_closing_by_facts_ends_just_the_tunnels_that_are_unwanted() -> None:
    with DataPort() as port:
        wanted, unwanted = open_tunnel(port), open_tunnel(port, "bad.example:7000")
        closed = port.call(
            lambda: port.table.close_where(
                lambda facts: str(facts.target.host) == "bad.example", EndCause.POLICY_CHANGED
            )
        )
        assert closed == 1
        assert read_end(unwanted.client) is End.RESET
        assert port.log.only(Ended).cause is EndCause.POLICY_CHANGED
        assert answer(wanted) == b"pong"


def test_draining_ends_what_is_quiet_and_leaves_what_moves() -> None:
    with DataPort() as port:
        begun, left = port.loop.time(), 2
        quiet, moving = open_tunnel(port), open_tunnel(port)
        while left == 2:
            assert answer(moving) == b"pong"
            left = port.call(port.table.close_quiet)
        assert left == 1
        assert port.loop.time() - begun >= QUIET_S
        assert port.log.only(Ended).request_id == quiet.facts.request_id
        assert port.log.only(Ended).cause is EndCause.DRAINED
        assert answer(moving) == b"pong"


@pytest.mark.parametrize("relay", ["loop", "epoll"])
def test_draining_leaves_what_waits_for_a_slow_reader(relay: str) -> None:
    with DataPort(relay=relay) as port:
        quiet, waiting = open_tunnel(port), open_tunnel(port, small=True)
        sent = fill(waiting.upstream)
        begun = port.loop.time()
        while port.loop.time() < begun + 3 * QUIET_S:
            port.call(port.table.close_quiet)
        assert port.log.only(Ended).request_id == quiet.facts.request_id
        assert len(read_exactly(waiting.client, sent)) == sent


def test_closing_all_ends_all_and_stops_the_sweeps() -> None:
    with DataPort(tunnels=limits(idle_s=0.2)) as port:
        tunnels = [open_tunnel(port) for _ in range(20)]
        port.call(port.table.close_all)
        assert port.table.count().open == 0
        for tunnel in tunnels:
            assert read_end(tunnel.client) is End.RESET
        assert {ended.cause for ended in port.log.wait_for(Ended, 20)} == {EndCause.DRAINED}
        swept = threading.Event()
        port.table.on_sweep = swept.set
        assert not swept.wait(0.3)


def test_a_tunnel_without_a_limit_of_bytes_is_not_metered() -> None:
    with DataPort() as port:
        tunnel = open_tunnel(port, grant=port.grant("ok.example:7000", max_uses=3))
        tunnel.client.sendall(b"x" * 300_000)
        assert read_exactly(tunnel.upstream, 300_000) == b"x" * 300_000


def test_a_grant_that_is_gone_meters_nothing_through() -> None:
    with DataPort() as port:
        grant = port.grant("ok.example:7000", max_bytes_out=1000)
        tunnel = open_tunnel(port, grant=grant)
        port.call(lambda: port.grants.revoke(grant))
        tunnel.client.sendall(b"x")
        assert port.log.only(Ended).cause is EndCause.GRANT_ENDED
        with pytest.raises(ConnectionResetError):
            read_some(tunnel.upstream)
