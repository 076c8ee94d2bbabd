"""One client's connection from its first byte on: what is checked in which order, and how it is answered.

CONNECT by both ways in (a task each, or the tunnels' own epoll); requests to inject rules are in
test_forward.py, tunnels that are open in test_tunnel_table.py, the listener in test_listener.py.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import os
import select
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from egress_proxy.core.access import Access, Client, Door, Scheme
from egress_proxy.core.decision import Allow, Decision, Deny, Reason
from egress_proxy.core.events import Decided, EndCause, Ended, Event, Faulted
from egress_proxy.core.grants import Grants, Limits
from egress_proxy.core.host import parse_authority
from egress_proxy.core.policy import OnMiss, Policy
from egress_proxy.core.policy import decide as sound
from egress_proxy.core.seams import AuditUnavailable
from egress_proxy.proxy.client_tokens import ClientTokens
from egress_proxy.proxy.peer import Peer
from egress_proxy.proxy.rejudge import tunnel_is_unwanted
from egress_proxy.proxy.stream import SocketStream
from egress_proxy.vault.secret import Secret
from tests.conftest import Start
from tests.egress_proxy.proxy.brokers import API_HOST, DOORS, Caller, broker, call, rule, secured_broker
from tests.egress_proxy.proxy.held_upstream import HeldUpstream
from tests.egress_proxy.proxy.hellos import hello
from tests.egress_proxy.proxy.socket_pairs import connected_pair
from tests.support.answers import fixed
from tests.support.byte_stream import End, close_with_reset, read_end, read_exactly, read_until_end
from tests.support.certificates import CertificateAuthority, server_context
from tests.support.data_port import CONNECTIONS, TUNNELS, DataPort, entry
from tests.support.deadline import DEFAULT_S, eventually
from tests.support.dns_stub import DnsStub
from tests.support.http import Response, parse_head, read_head, read_response, request_bytes
from tests.support.live_stream import LiveStream
from tests.support.origins import (
    BannerOrigin,
    EchoOrigin,
    HalfCloseOrigin,
    SilentOrigin,
    StuckOrigin,
    closed_port,
    pattern,
)
from tests.support.proc_figures import open_descriptors
from tests.support.provider import Provider
from tests.support.service_answers import connect_request

SLOW = "ok.example"
ESTABLISHED = b"HTTP/1.1 200 Connection Established\r\n\r\n"
BODY_KEYS = ["error", "reason", "host", "port", "rule", "request_id", "hint"]

Open = Callable[..., DataPort]


@pytest.fixture(params=["loop", "epoll"])
def open_port(request: pytest.FixtureRequest, start: Start) -> Open:
    """Start a data port; every test that takes this holds for both ways in."""
    return lambda **options: start(DataPort(relay=request.param, **options))


@pytest.fixture
def echo(start: Start) -> EchoOrigin:
    return start(EchoOrigin())


def limits(**changed: float) -> Any:
    return dataclasses.replace(CONNECTIONS, **changed)  # type: ignore[arg-type]


def denied(port: DataPort) -> Decided:
    event = port.log.only(Decided)
    assert event.verdict == "deny"
    return event


def refusal(octets: bytes) -> Response:
    """A refusal and nothing else, with exactly the length that it names."""
    raw_head, _, body = octets.partition(b"\r\n\r\n")
    head = parse_head(raw_head + b"\r\n\r\n")
    assert head.value("Content-Length") == str(len(body))
    assert head.value("Content-Type") == "application/json"
    assert head.value("Connection") == "close"
    return Response(head, body)


# What a CONNECT that is allowed gets.


@pytest.mark.parametrize("version", ["1.1", "1.0"])
def test_an_allowed_connect_is_answered_with_just_this_and_then_bytes_flow(
    open_port: Open, echo: EchoOrigin, version: str
) -> None:
    port = open_port(allow=[echo.address])
    sock = port.open()
    sock.sendall(connect_request(echo.address, version))
    assert read_exactly(sock, len(ESTABLISHED)) == ESTABLISHED
    sock.sendall(b"HELLO")
    assert read_exactly(sock, 5) == b"HELLO"
    decided = port.log.only(Decided)
    assert decided == Decided(
        request_id=decided.request_id,
        client=Client(),
        peer=decided.peer,
        door=Door.TUNNEL,
        method="CONNECT",
        target=parse_authority(echo.address),
        status=200,
        rule=echo.address,
        address="127.0.0.1",
    )
    assert decided.peer == f"127.0.0.1:{sock.getsockname()[1]}"


@pytest.mark.parametrize("size", [1, 5, 65_536, 300_000])
def test_bytes_right_behind_the_head_go_first_once_and_in_order(
    open_port: Open, echo: EchoOrigin, size: int
) -> None:
    port = open_port(allow=[echo.address])
    sock = port.tunnel(echo.address, pattern(size))
    sock.sendall(b"later")
    assert read_exactly(sock, size + 5) == pattern(size) + b"later"
    assert echo.received() == pattern(size) + b"later"


def test_a_head_in_single_bytes_with_bytes_glued_to_its_last_is_served(
    open_port: Open, echo: EchoOrigin
) -> None:
    port = open_port(allow=[echo.address])
    sock, request = port.open(), connect_request(echo.address)
    for at in range(len(request) - 1):
        sock.sendall(request[at : at + 1])
    sock.sendall(request[-1:] + b"HELLO")
    assert read_exactly(sock, len(ESTABLISHED) + 5) == ESTABLISHED + b"HELLO"
    assert echo.received() == b"HELLO"


def test_a_server_that_speaks_first_is_heard_right_behind_the_200(open_port: Open, start: Start) -> None:
    origin = start(BannerOrigin())
    sock = open_port(allow=[origin.address]).open()
    sock.sendall(connect_request(origin.address))
    expected = ESTABLISHED + origin.banner
    assert read_exactly(sock, len(expected)) == expected


@pytest.mark.parametrize("early", [b"", b"question"])
def test_a_client_that_ends_its_direction_with_its_request_gets_the_answer(
    open_port: Open, start: Start, early: bytes
) -> None:
    origin = start(HalfCloseOrigin())
    port = open_port(allow=[origin.address])
    sock = port.open()

    def send_all_at_once() -> None:  # on the loop: all of it is there before anything is read
        sock.sendall(connect_request(origin.address) + early)
        sock.shutdown(socket.SHUT_WR)

    port.call(send_all_at_once)
    assert read_until_end(sock) == (ESTABLISHED + origin.answer, End.EOF)
    assert origin.received() == early


HEADERS = [
    [("Host", "evil.test:443")],
    [("Host", "")],
    [],
    [("X-Forwarded-Host", "evil.test"), ("Forwarded", "host=evil.test")],
    [("Content-Length", "0")],
    [("Connection", "close")],
    [("Upgrade", "websocket"), ("Expect", "100-continue")],
]


@pytest.mark.parametrize("headers", HEADERS)
def test_other_headers_of_a_connect_change_nothing(
    open_port: Open, echo: EchoOrigin, headers: list[tuple[str, str]]
) -> None:
    port = open_port(allow=[echo.address])
    sock = port.open()
    sock.sendall(request_bytes("CONNECT", echo.address, headers) + b"HELLO")
    assert read_exactly(sock, len(ESTABLISHED) + 5) == ESTABLISHED + b"HELLO"


def test_no_200_is_sent_before_the_dial_has_succeeded(open_port: Open, start: Start) -> None:
    stuck = start(StuckOrigin())
    port = open_port(allow=[stuck.address], connect_timeout_s=0.3)
    assert port.converse(connect_request(stuck.address))[0].startswith(b"HTTP/1.1 504 ")
    assert denied(port).reason is Reason.UPSTREAM_TIMEOUT


# What a refusal looks like: one row of the contract's table each.


@dataclass(frozen=True)
class Refused:
    """A request that a port made with ``options`` refuses, and how."""

    request: bytes
    status_line: str
    code: str
    reason: Reason
    options: dict[str, Any] = field(default_factory=dict)
    headers: tuple[tuple[str, str], ...] = ()
    target: str | None = None
    rule: str | None = None


def connect_to(target: str) -> bytes:
    return connect_request(target)


FORBIDDEN = "HTTP/1.1 403 Forbidden; egress denied for "
DENY_EVIL = {"allow": ["evil.test"], "deny": ["evil.test"]}
TOKENS = {"clients": ClientTokens(Secret("token-1"))}
FULL = {"allow": ["ok.example"], "tunnels": dataclasses.replace(TUNNELS, in_all=0)}

ROWS = {
    "not listed": Refused(
        connect_to("Evil.Test.:443"),
        FORBIDDEN + "evil.test:443",
        "blocked-by-allowlist",
        Reason.NOT_LISTED,
        target="evil.test:443",
    ),
    "not listed, IPv6": Refused(
        connect_to("[2001:DB8::1]:8443"),
        FORBIDDEN + "[2001:db8::1]:8443",
        "blocked-by-allowlist",
        Reason.NOT_LISTED,
        target="[2001:db8::1]:8443",
    ),
    "denied": Refused(
        connect_to("evil.test:443"),
        FORBIDDEN + "evil.test:443",
        "blocked-by-denylist",
        Reason.DENIED_BY_RULE,
        options=DENY_EVIL,
        target="evil.test:443",
        rule="evil.test:*",
    ),
    "metadata": Refused(
        connect_to("169.254.169.254:80"),
        FORBIDDEN + "169.254.169.254:80",
        "blocked-by-address",
        Reason.METADATA,
        options={"allow": ["169.254.169.254"]},
        target="169.254.169.254:80",
    ),
    "not CONNECT": Refused(
        request_bytes("GET", "http://ok.example/", [("Host", "ok.example")]),
        "HTTP/1.1 405 Method Not Allowed",
        "method-not-allowed",
        Reason.METHOD_NOT_ALLOWED,
        headers=(("Allow", "CONNECT"),),
        target="ok.example:80",
    ),
    "malformed request": Refused(
        b"CONNECT ok.example:443 HTTP/1.1\r\nX : 1\r\n\r\n",
        "HTTP/1.1 400 Bad Request",
        "bad-request",
        Reason.MALFORMED,
        target="ok.example:443",
    ),
    "malformed target": Refused(
        connect_to("ok.example"), "HTTP/1.1 400 Bad Request", "bad-request", Reason.MALFORMED
    ),
    "two hosts": Refused(
        connect_request("ok.example:443", headers=[("Host", "ok.example:443")] * 2),
        "HTTP/1.1 400 Bad Request",
        "bad-request",
        Reason.MALFORMED,
        target="ok.example:443",
    ),
    "no HTTP": Refused(b"HELO mail.example\r\n", "HTTP/1.1 400 Bad Request", "bad-request", Reason.NOT_HTTP),
    "large head": Refused(
        connect_request("ok.example:443", headers=[("X", "x" * 16_384)]),
        "HTTP/1.1 431 Request Header Fields Too Large",
        "head-too-large",
        Reason.HEAD_TOO_LARGE,
        target="ok.example:443",
    ),
    "late head": Refused(
        b"CONNECT ok.example:443 HTTP/1.1\r\n",
        "HTTP/1.1 408 Request Timeout",
        "head-timeout",
        Reason.HEAD_TIMEOUT,
        options={"connections": limits(head_s=0.2)},
        target="ok.example:443",
    ),
    "no token": Refused(
        connect_to("ok.example:443"),
        "HTTP/1.1 407 Proxy Authentication Required",
        "client-authentication-required",
        Reason.CLIENT_UNKNOWN,
        options={"allow": ["ok.example"], **TOKENS},
        headers=(("Proxy-Authenticate", 'Basic realm="egress"'),),
        target="ok.example:443",
    ),
    "too many": Refused(
        connect_to("ok.example:443"),
        "HTTP/1.1 503 Service Unavailable",
        "too-many-tunnels",
        Reason.TOO_MANY_TUNNELS,
        options=FULL,
        headers=(("Retry-After", "1"),),
        target="ok.example:443",
    ),
}


@pytest.mark.parametrize("kind", ROWS)
def test_a_refusal_says_what_was_refused_and_why_and_ends_clean(open_port: Open, kind: str) -> None:
    row = ROWS[kind]
    port = open_port(**row.options)
    answer, end = port.converse(row.request)
    response = refusal(answer)
    assert end is End.EOF
    assert response.head.status_line == row.status_line
    assert response.value("X-Proxy-Error") == row.code
    for name, value in row.headers:
        assert response.value(name) == value
    event, body = denied(port), response.json()
    assert list(body) == BODY_KEYS
    assert (body["error"], body["rule"], body["request_id"]) == (row.code, row.rule, event.request_id)
    assert body["reason"].partition(":")[0] == row.reason
    assert body["hint"]
    target = parse_authority(row.target) if row.target else None
    assert event.target == target
    named = f"{body['host']}:{body['port']}" if target else None
    assert named == row.target
    assert (event.reason, event.status, event.rule) == (row.reason, response.status, row.rule)


def test_draining_refuses_whatever_comes(open_port: Open, echo: EchoOrigin) -> None:
    port = open_port(allow=[echo.address])
    port.is_draining = True
    response = refusal(port.converse(connect_request(echo.address))[0])
    assert (response.status, response.value("Retry-After")) == (503, "1")
    assert response.value("X-Proxy-Error") == "draining"
    assert denied(port).reason is Reason.DRAINING
    assert echo.connections_accepted == 0


def test_our_own_listener_is_never_dialled(open_port: Open) -> None:
    port = open_port(private=["127.0.0.1:*", "localhost:*"])
    for host in ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]"):
        response = port.ask(connect_request(f"{host}:{port.port}"))
        assert (response.status, response.value("X-Proxy-Error")) == (403, "blocked-by-address")
    reasons = {event.reason for event in port.log.wait_for(Decided, 3)}
    assert reasons <= {Reason.OWN_LISTENER, Reason.ADDRESS_NOT_PUBLIC}
    assert Reason.OWN_LISTENER in reasons


def test_a_name_that_resolves_inward_is_refused_by_its_address(open_port: Open, dns: DnsStub) -> None:
    dns.add("ok.example", "10.0.0.1", "127.0.0.1")
    port = open_port(allow=["ok.example"], resolver=dns.address)
    response = refusal(port.converse(connect_request("ok.example:443"))[0])
    assert (response.status, response.value("X-Proxy-Error")) == (403, "blocked-by-address")
    assert denied(port).reason is Reason.ADDRESS_NOT_PUBLIC


def test_a_name_that_does_not_exist_and_a_port_that_refuses_are_unreachable(
    open_port: Open, dns: DnsStub
) -> None:
    with closed_port() as closed:
        dns.add("ok.example", "127.0.0.1")
        allowed = [f"ok.example:{closed}", f"gone.example:{closed}"]
        port = open_port(private=allowed, resolver=dns.address)
        for target, reason in zip(allowed, (Reason.UPSTREAM_REFUSED, Reason.NO_SUCH_NAME), strict=True):
            response = refusal(port.converse(connect_request(target))[0])
            assert (response.status, response.value("X-Proxy-Error")) == (502, "upstream-unreachable")
            assert port.log.wait_for(Decided)[-1].reason is reason


def test_a_name_server_that_is_silent_is_a_timeout(open_port: Open, dns: DnsStub) -> None:
    dns.black_hole("ok.example")
    port = open_port(allow=["ok.example"], resolver=dns.address, connect_timeout_s=0.3)
    response = refusal(port.converse(connect_request("ok.example:443"))[0])
    assert (response.status, response.value("X-Proxy-Error")) == (504, "upstream-timeout")
    assert denied(port).reason is Reason.UPSTREAM_TIMEOUT


def test_nothing_is_looked_up_for_a_request_that_is_refused(open_port: Open, dns: DnsStub) -> None:
    port = open_port(allow=["ok.example"], deny=["bad.example"], resolver=dns.address)
    for target in ("c2VjcmV0.evil.test:443", "ok.example:22", "bad.example:443", "ok.example:0"):
        assert port.ask(connect_request(target)).status in (400, 403)
    reasons = [event.reason for event in port.log.wait_for(Decided, 4)]
    assert reasons == [Reason.NOT_LISTED, Reason.NOT_LISTED, Reason.DENIED_BY_RULE, Reason.MALFORMED]
    assert dns.total_queries == 0


def test_a_refused_head_request_has_no_body(open_port: Open) -> None:
    port = open_port()
    answer, end = port.converse(request_bytes("HEAD", "http://ok.example/"))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert (body, end) == (b"", End.EOF)
    assert int(parse_head(head + b"\r\n\r\n").value("Content-Length") or 0) > 0
    assert denied(port).reason is Reason.METHOD_NOT_ALLOWED


# The order of the checks.

ORDER = [
    ("size before form", connect_request("x", headers=[("X ", "x" * 20_000)]), Reason.HEAD_TOO_LARGE),
    ("form before method", b"GET http://x/ HTTP/1.1\r\nX : 1\r\n\r\n", Reason.MALFORMED),
    ("method before authority", b"GET not-a-target HTTP/1.1\r\n\r\n", Reason.METHOD_NOT_ALLOWED),
    ("authority before token", connect_request("evil.test"), Reason.MALFORMED),
    ("token before policy", connect_request("evil.test:443"), Reason.CLIENT_UNKNOWN),
]


@pytest.mark.parametrize(
    ("request_head", "reason"), [row[1:] for row in ORDER], ids=[row[0] for row in ORDER]
)
def test_the_checks_have_an_order(open_port: Open, request_head: bytes, reason: Reason) -> None:
    port = open_port(**TOKENS)
    refusal(port.converse(request_head)[0])
    assert denied(port).reason is reason


def test_policy_comes_before_the_dial(open_port: Open, dns: DnsStub) -> None:
    with closed_port() as closed:
        port = open_port(allow=["other.example"], resolver=dns.address)
        assert port.ask(connect_request(f"127.0.0.1:{closed}")).status == 403
    assert denied(port).reason is Reason.NOT_LISTED


# How a refused connection ends.


@pytest.mark.parametrize(
    "behind",
    [connect_request("127.0.0.1:1"), request_bytes("GET", "http://127.0.0.1/smuggled"), b"\x16\x03\x01"],
)
@pytest.mark.parametrize(
    "refused",
    [connect_request("evil.test:443"), b"CONNECT x HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nX : \r\n\r\n"],
)
def test_bytes_behind_a_refused_head_are_never_a_request(start: Start, refused: bytes, behind: bytes) -> None:
    provider = start(Provider())
    provider.otherwise(fixed(b"reached"))
    port = start(broker(provider, allow=["127.0.0.1:1"]))
    answer, end = port.converse(refused + behind)
    refusal(answer)
    assert end is End.EOF
    assert denied(port).reason in (Reason.NOT_LISTED, Reason.MALFORMED)
    assert provider.connections_accepted == 0


def test_a_body_of_a_connect_is_never_a_request(open_port: Open, echo: EchoOrigin) -> None:
    port = open_port(allow=[echo.address])
    inner = connect_request(echo.address)
    sock = port.open()
    sock.sendall(
        connect_request(echo.address, headers=[("Host", "x"), ("Content-Length", str(len(inner)))]) + inner
    )
    refusal(read_until_end(sock)[0])
    assert denied(port).reason is Reason.MALFORMED
    assert echo.connections_accepted == 0


@pytest.mark.parametrize("megabytes", [1, 8])
def test_a_client_that_sends_megabytes_before_it_reads_gets_its_answer(
    open_port: Open, megabytes: int
) -> None:
    port = open_port()
    sock = port.open()
    sock.sendall(connect_request("evil.test:443") + bytes(megabytes * 1_000_000))
    answer, end = read_until_end(sock)
    assert refusal(answer).status == 403
    assert end is End.EOF
    assert denied(port).reason is Reason.NOT_LISTED


def test_a_client_that_never_stops_sending_is_not_read_for_ever(open_port: Open) -> None:
    port = open_port()
    sock = port.open()
    with contextlib.suppress(ConnectionError):
        sock.sendall(connect_request("evil.test:443"))
        for _ in range(1000):
            sock.sendall(bytes(1_000_000))
    received, _ = read_until_end(sock)
    assert received == b"" or refusal(received).status == 403
    assert denied(port).reason is Reason.NOT_LISTED


# What is no request at all.


def test_a_client_that_says_nothing_leaves_no_event(open_port: Open) -> None:
    port = open_port(connections=limits(head_s=0.2))
    silent = port.open()
    for _ in range(20):
        port.open().close()
    assert read_end(silent) is End.EOF
    assert port.log.all == []


def test_a_head_has_its_time_from_the_accept_however_it_trickles_in(open_port: Open) -> None:
    port = open_port(connections=limits(head_s=0.5))
    sock = port.open()
    trickling = threading.Event()

    def trickle() -> None:
        with contextlib.suppress(OSError):
            for octet in connect_request("ok.example:443", headers=[("X", "x" * 200)]):
                sock.sendall(bytes([octet]))
                if trickling.wait(0.05):
                    return

    thread = threading.Thread(target=trickle, name="support-trickle", daemon=True)
    thread.start()
    answer, _ = read_until_end(sock)
    trickling.set()
    thread.join()
    assert refusal(answer).status == 408
    assert denied(port).reason is Reason.HEAD_TIMEOUT


@pytest.mark.parametrize(
    "opening", [hello(), b"\x05\x01\x00", b"\x04\x01\x01\xbb\x7f\x00\x00\x01\x00", b"\x00" * 20, b"\xff\xfe"]
)
def test_other_protocols_are_closed_without_a_word(open_port: Open, opening: bytes) -> None:
    port = open_port()
    received, end = port.converse(opening, timeout_s=2)
    assert received == b""
    assert end is not End.OPEN
    event = denied(port)
    assert (event.reason, event.status, event.method) == (Reason.NOT_HTTP, None, None)


@pytest.mark.parametrize(
    "opening", [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"SSH-2.0-x\r\n", b"\r\n", b"GET /\r\n"]
)
def test_text_that_is_no_request_gets_a_400_within_two_seconds(open_port: Open, opening: bytes) -> None:
    port = open_port()
    received, end = port.converse(opening, timeout_s=2)
    assert refusal(received).status == 400
    assert end is End.EOF
    assert denied(port).reason in (Reason.NOT_HTTP, Reason.MALFORMED)


# Grants.


def uses_left(port: DataPort, grant: str) -> int | None:
    return port.call(lambda: port.grants.snapshot().by_id[grant].uses_left)


def test_a_use_is_spent_exactly_once_by_many_at_the_same_time(open_port: Open, echo: EchoOrigin) -> None:
    port = open_port()
    grant = port.grant(echo.address, max_uses=3)
    socks = [port.open() for _ in range(30)]
    for sock in socks:
        sock.sendall(connect_request(echo.address))
    assert sorted(read_head(sock).status for sock in socks) == [200] * 3 + [403] * 27
    reasons = [event.reason for event in port.log.wait_for(Decided, 30)]
    assert sorted(map(str, reasons)) == sorted(["None"] * 3 + [str(Reason.GRANT_EXHAUSTED)] * 27)
    assert uses_left(port, grant) == 0
    assert {event.grant for event in port.log.of(Decided) if event.reason is None} == {grant}


def test_a_use_is_given_back_when_no_200_was_sent(open_port: Open, start: Start) -> None:
    stuck = start(StuckOrigin())
    port = open_port(connect_timeout_s=0.3)
    with closed_port() as closed:
        for target, status in ((f"127.0.0.1:{closed}", 502), (stuck.address, 504)):
            grant = port.grant(target, max_uses=1)
            assert port.ask(connect_request(target)).status == status
            assert uses_left(port, grant) == 1
    reasons = [event.reason for event in port.log.wait_for(Decided, 2)]
    assert reasons == [Reason.UPSTREAM_REFUSED, Reason.UPSTREAM_TIMEOUT]


def test_a_use_is_not_given_back_after_a_200(open_port: Open, echo: EchoOrigin) -> None:
    port = open_port()
    grant = port.grant(echo.address, max_uses=1)
    port.tunnel(echo.address).close()
    port.log.wait_for(Ended)
    assert uses_left(port, grant) == 0
    assert port.ask(connect_request(echo.address)).status == 403
    assert port.log.of(Decided)[-1].reason is Reason.GRANT_EXHAUSTED


@contextlib.contextmanager
def while_looking_up(port: DataPort, dns: DnsStub, target: str) -> Iterator[socket.socket]:
    """A CONNECT whose name is being looked up within the block, and answered some time after it."""
    sock = port.open()
    sock.sendall(connect_request(target))
    dns.wait_for_queries(SLOW, 1)
    yield sock


def slow_name(dns: DnsStub) -> None:
    dns.add(SLOW, "127.0.0.1")
    dns.delay(SLOW, 0.4)


def test_a_grant_that_is_revoked_during_the_dial_gives_no_200(
    open_port: Open, echo: EchoOrigin, dns: DnsStub
) -> None:
    slow_name(dns)
    target = f"{SLOW}:{echo.port}"
    port = open_port(resolver=dns.address)
    private = entry(target, private=True)
    grant = port.call(lambda: port.grants.add(private, Limits(max_uses=1)))
    with while_looking_up(port, dns, target) as sock:
        port.call(lambda: port.grants.revoke(grant.id))
    assert refusal(read_until_end(sock)[0]).status == 403
    assert denied(port).reason is Reason.NOT_LISTED
    assert echo.received() == b""


def test_a_deny_entry_that_comes_during_the_dial_gives_no_200(
    open_port: Open, echo: EchoOrigin, dns: DnsStub
) -> None:
    slow_name(dns)
    target = f"{SLOW}:{echo.port}"
    port = open_port(private=[target], resolver=dns.address)
    with while_looking_up(port, dns, target) as sock:
        port.setup.deny = [SLOW]
        port.parts.in_force.policy = port.setup.policy()
    assert refusal(read_until_end(sock)[0]).status == 403
    assert denied(port).reason is Reason.DENIED_BY_RULE


def test_a_dial_has_its_place_and_others_do_not_take_it(
    open_port: Open, echo: EchoOrigin, dns: DnsStub
) -> None:
    slow_name(dns)
    target = f"{SLOW}:{echo.port}"
    few = dataclasses.replace(TUNNELS, in_all=1)
    port = open_port(private=[target, echo.address], resolver=dns.address, tunnels=few)
    with while_looking_up(port, dns, target) as sock:
        assert port.ask(connect_request(echo.address)).status == 503
        assert read_head(sock).status == 200
    sock.close()
    eventually(lambda: port.call(lambda: len(port.table.places)) == 0)
    port.tunnel(echo.address)


def test_so_many_tunnels_are_opened_as_there_is_room_for_however_many_come_at_once(
    open_port: Open, echo: EchoOrigin
) -> None:
    port = open_port(allow=[echo.address], tunnels=dataclasses.replace(TUNNELS, in_all=3))
    socks = [port.open() for _ in range(40)]
    for sock in socks:
        sock.sendall(connect_request(echo.address))
    assert sorted(read_head(sock).status for sock in socks) == [200] * 3 + [503] * 37
    eventually(lambda: port.call(lambda: port.table.count().open) == 3)


def test_a_client_that_resets_during_the_dial_costs_the_use_that_was_dialled_and_leaves_nothing(
    open_port: Open, start: Start, dns: DnsStub
) -> None:
    slow_name(dns)
    origin = start(SilentOrigin())
    target = f"{SLOW}:{origin.port}"
    port = open_port(resolver=dns.address)
    private = entry(target, private=True)
    grant = port.call(lambda: port.grants.add(private, Limits(max_uses=1)))
    with while_looking_up(port, dns, target) as sock:
        close_with_reset(sock)
    origin.wait_for_end()
    end = port.log.only(Ended)
    assert (end.cause, end.bytes_out, end.bytes_in) == (EndCause.CLIENT_RESET, 0, 0)
    assert end.request_id == port.log.only(Decided).request_id
    assert uses_left(port, grant.id) == 0
    eventually(lambda: port.tasks() == 1)
    assert port.table.count().open == 0


def full_socket(port: DataPort, request: bytes) -> tuple[socket.socket, int]:
    """Serve a client that has sent ``request`` and takes nothing in; how much was sent to it before."""
    pair = connected_pair(small=True)
    port.close_at_end(pair.peer)
    pair.peer.sendall(request)
    sent = 0
    poll = select.poll()
    poll.register(pair.ours, select.POLLOUT)
    while poll.poll(150):
        with contextlib.suppress(BlockingIOError):
            sent += pair.ours.send(bytes(65_536))
    port.call(lambda: port.intake.serve(SocketStream(port.loop, pair.ours), Peer("a full client")))
    return pair.peer, sent


def test_a_200_that_waits_for_its_client_is_void_when_the_grant_is_gone(start: Start) -> None:
    origin = start(SilentOrigin())
    port = start(DataPort())
    grant = port.grant(origin.address, max_uses=1)
    peer, sent = full_socket(port, connect_request(origin.address))
    assert port.log.only(Decided).verdict == "allow"  # the 200 is written down and on its way
    port.call(lambda: port.grants.revoke(grant))
    received, end = read_until_end(peer)
    assert received[sent:] == ESTABLISHED
    assert end is not End.OPEN
    assert origin.wait_for_end() is not None
    assert port.log.only(Ended).cause is EndCause.POLICY_CHANGED
    assert port.table.count().open == 0


def test_a_client_that_does_not_take_our_answer_in_is_given_up(start: Start) -> None:
    origin = start(SilentOrigin())
    port = start(DataPort(connections=limits(head_s=0.3)))
    grant = port.grant(origin.address, max_uses=1)
    full_socket(port, connect_request(origin.address))
    full_socket(port, connect_request("evil.test:443"))
    origin.wait_for_end()
    assert port.log.only(Ended).cause is EndCause.CLIENT_RESET
    assert uses_left(port, grant) == 0
    eventually(lambda: port.tasks() == 1)
    assert port.table.count().open == 0


def test_a_reload_closes_just_the_tunnels_that_it_does_not_allow(open_port: Open, start: Start) -> None:
    kept, gone = start(EchoOrigin()), start(EchoOrigin())
    port = open_port(allow=[kept.address, gone.address])
    stays, leaves = port.tunnel(kept.address), port.tunnel(gone.address)
    port.setup.allow = [kept.address]

    def reload() -> int:
        port.parts.in_force.policy = port.setup.policy()
        return port.table.close_where(
            lambda facts: tunnel_is_unwanted(facts, port.parts), EndCause.POLICY_CHANGED
        )

    assert port.call(reload) == 1
    assert read_end(leaves) is End.RESET
    stays.sendall(b"still here")
    assert read_exactly(stays, 10) == b"still here"
    assert port.ask(connect_request(gone.address)).status == 403
    assert port.log.of(Decided)[-1].reason is Reason.NOT_LISTED


# Clients.


def basic(user: str, token: str) -> tuple[str, str]:
    return "Proxy-Authorization", "Basic " + base64.b64encode(f"{user}:{token}".encode()).decode()


def test_a_client_is_known_by_its_token_and_its_user_name_is_a_label(
    open_port: Open, echo: EchoOrigin
) -> None:
    tokens = ClientTokens(Secret("shared"), {"build": Secret("own")})
    port = open_port(allow=[echo.address], clients=tokens)
    for header in (basic("me", "own"), basic("me", "shared"), ("Proxy-Authorization", "Bearer own")):
        sock = port.open()
        sock.sendall(connect_request(echo.address, headers=[header]))
        assert read_head(sock).status == 200
    clients = [event.client for event in port.log.wait_for(Decided, 3)]
    assert clients == [Client("build", "me"), Client("anonymous", "me"), Client("build", "")]


@pytest.mark.parametrize(
    "headers", [[], [basic("build", "wrong")], [("Proxy-Authorization", "Bearer ")], [basic("", "own")] * 2]
)
def test_a_client_without_a_known_token_learns_nothing_of_the_lists(
    open_port: Open, headers: list[tuple[str, str]]
) -> None:
    port = open_port(allow=["ok.example"], clients=ClientTokens(own={"build": Secret("own")}))
    for target in ("ok.example:443", "evil.test:443"):
        assert port.ask(connect_request(target, headers=headers)).status == 407
    assert {event.reason for event in port.log.wait_for(Decided, 2)} == {Reason.CLIENT_UNKNOWN}
    named = {str(event.target) for event in port.log.of(Decided)}
    assert named == {"ok.example:443", "evil.test:443"}  # what it asked for, and no more


def test_a_client_whose_token_went_is_refused_inside_the_connect_it_was_let_in_with(start: Start) -> None:
    provider = start(Provider())
    provider.otherwise(fixed(b"ok"))
    tokens = ClientTokens(own={"build": Secret("own")})
    port = start(broker(provider, clients=tokens))
    sock = port.open()
    sock.sendall(connect_request("127.0.0.1:80", headers=[basic("me", "own")]))
    assert read_head(sock).status == 200
    for status in (200, 407):
        sock.sendall(request_bytes("GET", "/", [("Host", "127.0.0.1")]))
        assert read_response(sock).status == status
        port.parts.in_force.clients = ClientTokens(own={"other": Secret("own")})
    assert port.log.of(Decided)[-1].reason is Reason.CLIENT_UNKNOWN
    assert [event.client.id for event in port.log.of(Decided)[:2]] == ["build", "build"]
    assert len(provider.requests) == 1


def test_an_entry_of_one_client_opens_nothing_for_others(open_port: Open, echo: EchoOrigin) -> None:
    port = open_port(clients=ClientTokens(own={"build": Secret("own"), "test": Secret("other")}))
    rule = entry(echo.address, client="build")
    port.call(lambda: port.grants.add(rule, Limits()))
    for token, status in (("own", 200), ("other", 403)):
        sock = port.open()
        sock.sendall(connect_request(echo.address, headers=[basic("x", token)]))
        assert read_head(sock).status == status
    assert port.log.of(Decided)[-1].reason is Reason.NOT_LISTED


# An injected request that waits for its upstream.


@pytest.fixture
def upstream(start: Start, ca: CertificateAuthority) -> HeldUpstream:
    provider = start(HeldUpstream(server_context(ca.leaf(API_HOST))))
    provider.otherwise(fixed(b"ok"))
    return provider


@pytest.fixture
def waiting(start: Start, upstream: HeldUpstream, ca: CertificateAuthority, dns: DnsStub) -> DataPort:
    """A port to that upstream, which knows one client by its token."""
    tokens = ClientTokens(own={"build": Secret("own")})
    return start(secured_broker(upstream.port, ca, dns, clients=tokens))


def ask_and_wait(port: DataPort, upstream: HeldUpstream, door: str) -> Caller:
    """A client whose request is allowed, written down, and waits for the upstream's handshake."""
    sock = port.open()
    if door == "inside":
        sock.sendall(connect_request(f"{API_HOST}:80", headers=[basic("me", "own")]))
        assert read_head(sock).status == 200
    caller = Caller(sock, "" if door == "inside" else f"http://{API_HOST}", API_HOST)
    caller.send("GET", headers=[basic("me", "own")])
    upstream.wait_for_connections(1)
    assert port.log.of(Decided)[-1].verdict == "allow"
    return caller


def remove_rule(port: DataPort) -> None:
    port.parts.in_force.policy = Policy()
    port.parts.in_force.credentials = {}


def rename_rule(port: DataPort) -> None:
    """The same host, by another rule: what was taken and judged was the first one's."""
    route = port.setup.routes[0]
    port.parts.in_force.policy = Policy(routes=(dataclasses.replace(route, name="other"),))


def lead_elsewhere(port: DataPort) -> None:
    elsewhere = rule(9, host=API_HOST, scheme=Scheme.HTTPS)
    port.parts.in_force.policy = Policy(routes=(elsewhere,))


def deny_host(port: DataPort) -> None:
    port.setup.deny = [API_HOST]
    port.parts.in_force.policy = port.setup.policy()


def deny_method(port: DataPort) -> None:
    port.setup.routes = [dataclasses.replace(port.setup.routes[0], methods=frozenset({"POST"}))]
    port.parts.in_force.policy = port.setup.policy()


def revoke_token(port: DataPort) -> None:
    port.parts.in_force.clients = ClientTokens(own={"other": Secret("own")})


MEANWHILE = [
    (remove_rule, 403, Reason.INJECT_OTHER_TARGET),
    (rename_rule, 403, Reason.INJECT_OTHER_TARGET),
    (lead_elsewhere, 403, Reason.INJECT_OTHER_TARGET),
    (deny_host, 403, Reason.DENIED_BY_RULE),
    (deny_method, 403, Reason.INJECT_METHOD),
    (revoke_token, 407, Reason.CLIENT_UNKNOWN),
]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("change", "status", "reason"), MEANWHILE, ids=[c.__name__ for c, _, _ in MEANWHILE])
def test_a_request_that_is_void_when_its_upstream_is_there_is_refused_and_nothing_is_sent(
    waiting: DataPort,
    upstream: HeldUpstream,
    door: str,
    change: Callable[[DataPort], None],
    status: int,
    reason: Reason,
) -> None:
    caller = ask_and_wait(waiting, upstream, door)
    waiting.call(lambda: change(waiting))
    upstream.gate.set()
    assert refusal(read_until_end(caller.sock)[0]).status == status
    ended = waiting.log.only(Ended)
    assert (ended.cause, ended.reason, ended.status) == (EndCause.FAULT, reason, status)
    assert ended.request_id == waiting.log.of(Decided)[-1].request_id
    upstream.wait_for_closed()
    assert upstream.octets_received == 0


@pytest.mark.parametrize("door", DOORS)
def test_a_request_that_waited_is_sent_when_a_reload_has_left_its_rule_as_it_was(
    waiting: DataPort, upstream: HeldUpstream, door: str
) -> None:
    caller = ask_and_wait(waiting, upstream, door)

    def reload() -> None:
        waiting.setup.routes = [dataclasses.replace(waiting.setup.routes[0])]
        waiting.parts.in_force.policy = waiting.setup.policy()
        waiting.parts.in_force.clients = ClientTokens(own={"build": Secret("own")})
        waiting.parts.forwarder.forget()

    waiting.call(reload)
    upstream.gate.set()
    assert read_response(caller.sock).body == b"ok"
    assert waiting.log.only(Ended).cause is EndCause.DONE


def test_the_client_of_a_sandbox_that_waited_needs_no_token(
    start: Start, upstream: HeldUpstream, waiting: DataPort
) -> None:
    pair = connected_pair()
    waiting.close_at_end(pair.peer)
    sandbox = Peer("test", Client("sandbox-1"))
    waiting.call(lambda: waiting.intake.serve(SocketStream(waiting.loop, pair.ours), sandbox))
    Caller(pair.peer, f"http://{API_HOST}", API_HOST).send("GET")
    upstream.wait_for_connections(1)
    upstream.gate.set()
    assert read_response(pair.peer).body == b"ok"


# Questions.


def test_without_anybody_to_ask_a_question_is_a_refusal(open_port: Open) -> None:
    port = open_port(on_miss=OnMiss.HOLD)
    assert port.ask(connect_request("new.example:443")).status == 403
    assert denied(port).reason is Reason.NOT_LISTED


def test_a_person_may_say_yes_by_a_grant_that_this_connection_spends(
    open_port: Open, echo: EchoOrigin
) -> None:
    asked: list[Access] = []

    async def ask(access: Access) -> Allow | Deny:
        asked.append(access)
        port.grants.add(entry(echo.address), Limits(max_uses=1))
        allowed = sound(access, port.parts.in_force.policy, port.grants.snapshot(), port.clock())
        assert isinstance(allowed, Allow)
        return allowed

    port = open_port(on_miss=OnMiss.HOLD, asker=ask)
    sock = port.tunnel(echo.address, b"HELLO")
    assert read_exactly(sock, 5) == b"HELLO"
    assert asked == [Access(Client(), parse_authority(echo.address), Door.TUNNEL)]
    assert [grant.uses_left for grant in port.grants.snapshot().by_id.values()] == [0]


@pytest.mark.parametrize("reason", [Reason.APPROVAL_DENIED, Reason.APPROVAL_TIMEOUT])
def test_a_person_may_say_no_or_nothing(open_port: Open, reason: Reason) -> None:
    async def ask(access: Access) -> Allow | Deny:
        return Deny(reason, access.target)

    port = open_port(on_miss=OnMiss.HOLD, asker=ask)
    response = refusal(port.converse(connect_request("new.example:443"))[0])
    assert (response.status, response.value("X-Proxy-Error")) == (403, reason.replace("_", "-"))
    assert response.reason == "Forbidden; egress denied for new.example:443"
    assert denied(port).reason is reason


def test_deny_entries_and_the_list_are_not_asked_about(open_port: Open, echo: EchoOrigin) -> None:
    async def ask(access: Access) -> Allow | Deny:
        raise AssertionError(f"asked about {access}")

    port = open_port(allow=[echo.address], deny=["bad.example"], on_miss=OnMiss.HOLD, asker=ask)
    port.tunnel(echo.address)
    assert port.ask(connect_request("bad.example:443")).status == 403
    assert port.log.of(Decided)[-1].reason is Reason.DENIED_BY_RULE


# The log.


def test_what_cannot_be_written_down_does_not_pass(open_port: Open, start: Start) -> None:
    def fail(event: Event) -> None:
        if isinstance(event, Decided) and event.reason is None:
            raise AuditUnavailable

    origin = start(SilentOrigin())
    port = open_port()
    grant = port.grant(origin.address, max_uses=1)
    port.log.refusing = fail
    response = refusal(port.converse(connect_request(origin.address))[0])
    assert (response.status, response.value("X-Proxy-Error")) == (503, "audit-unavailable")
    assert denied(port).reason is Reason.AUDIT_UNAVAILABLE
    assert uses_left(port, grant) == 1
    assert origin.received() == b""


def test_an_injected_request_that_cannot_be_written_down_is_not_sent(start: Start) -> None:
    def fail(event: Event) -> None:
        if isinstance(event, Decided) and event.reason is None:
            raise AuditUnavailable

    provider = start(Provider())
    port = start(broker(provider))
    port.log.refusing = fail
    assert call(port).ask("GET").status == 503
    assert port.ask(connect_request("127.0.0.1:80")).status == 503
    assert {event.reason for event in port.log.wait_for(Decided, 2)} == {Reason.AUDIT_UNAVAILABLE}
    assert provider.connections_accepted == 0


def test_a_refusal_is_sent_even_when_it_cannot_be_written_down(open_port: Open) -> None:
    def fail(event: Event) -> None:
        raise AuditUnavailable

    port = open_port()
    port.log.refusing = fail
    response = refusal(port.converse(connect_request("evil.test:443"))[0])
    assert (response.status, response.json()["reason"]) == (403, Reason.NOT_LISTED)


def test_what_a_client_sends_forges_no_log_line(open_port: Open) -> None:
    port = open_port()
    method = "A" * 5000
    for octets in (f"{method} / HTTP/1.1\r\n\r\n".encode(), b"CONNECT a\x1b[2J:443 HTTP/1.1\r\n\r\n"):
        refusal(port.converse(octets)[0])
    for event in port.log.wait_for(Decided, 2):
        assert len(str(event)) < 1000
        assert str(event).isprintable()


# Faults of ours.


def faulty(times: int) -> Callable[[Access, Policy, Grants, float], Decision]:
    """`decide`, which breaks at its ``times``-th question about port 1."""
    asked = [0]

    def decide(access: Access, policy: Policy, grants: Grants, now: float) -> Decision:
        if access.target.port == 1:
            asked[0] += 1
            if asked[0] == times:
                raise RuntimeError("canary")
            return sound(dataclasses.replace(access), policy, grants, now)
        return sound(access, policy, grants, now)

    return decide


def test_a_fault_in_the_policy_ends_that_connection_alone_and_is_logged_once(
    open_port: Open, echo: EchoOrigin, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("connection", "arrivals"):
        monkeypatch.setattr(f"egress_proxy.proxy.{module}.decide", faulty(1))
    port = open_port(allow=[echo.address, "127.0.0.1:1"], expect_faults=True)
    tunnel, bad = port.tunnel(echo.address), port.open()
    bad.sendall(connect_request("127.0.0.1:1"))
    received, end = read_until_end(bad)
    assert end is not End.OPEN
    assert received == b"" or received.startswith(b"HTTP/1.1 500 ")
    fault = port.log.only(Faulted)
    assert fault.error == "RuntimeError"
    assert "canary" not in repr(fault)
    tunnel.sendall(b"HELLO")
    assert read_exactly(tunnel, 5) == b"HELLO"
    port.tunnel(echo.address)


def test_a_fault_after_the_dial_ends_that_connection_alone_and_costs_nothing(
    open_port: Open, echo: EchoOrigin, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed(access: Access, allow: Allow, parts: object) -> Deny | None:
        if allow.grant_id is not None:
            raise RuntimeError("canary")
        return None

    for module in ("opening", "arrivals"):
        monkeypatch.setattr(f"egress_proxy.proxy.{module}.no_longer_allowed", changed)
    other = EchoOrigin()
    with other:
        port = open_port(allow=[other.address], expect_faults=True)
        grant = port.grant(echo.address, max_uses=1)
        tunnel = port.tunnel(other.address)
        other.wait_for_connections(1)
        before = open_descriptors(os.getpid())
        bad = port.open()
        bad.sendall(connect_request(echo.address))
        received, end = read_until_end(bad, DEFAULT_S)
        assert end is not End.OPEN
        assert ESTABLISHED not in received
        assert port.log.only(Faulted).error == "RuntimeError"
        assert uses_left(port, grant) == 1
        echo.wait_for_end()
        bad.close()
        eventually(lambda: open_descriptors(os.getpid()) <= before)
        tunnel.sendall(b"HELLO")
        assert read_exactly(tunnel, 5) == b"HELLO"


# Kept connections.


def test_a_kept_connection_without_a_next_request_is_closed_quietly(start: Start) -> None:
    provider = start(Provider())
    provider.otherwise(fixed(b"ok"))
    port = start(broker(provider, connections=limits(keep_alive_s=0.3)))
    caller = call(port)
    assert caller.ask("GET").status == 200
    assert read_end(caller.sock) is End.EOF
    assert len(port.log.of(Decided)) == 1


def test_a_kept_connection_may_become_a_tunnel(start: Start, echo: EchoOrigin) -> None:
    provider = start(Provider())
    provider.otherwise(fixed(b"ok"))
    port = start(broker(provider, allow=[echo.address]))
    caller = call(port)
    assert caller.ask("GET").status == 200
    caller.sock.sendall(connect_request(echo.address) + b"HELLO")
    assert read_exactly(caller.sock, len(ESTABLISHED) + 5) == ESTABLISHED + b"HELLO"
    ids = [event.request_id for event in port.log.of(Decided)]
    assert len(set(ids)) == 2


def test_a_draining_port_answers_the_next_request_of_a_kept_connection_with_503(start: Start) -> None:
    provider = start(Provider())
    provider.otherwise(fixed(b"ok"))
    port = start(broker(provider))
    caller = call(port)
    assert caller.ask("GET").status == 200
    port.is_draining = True
    assert caller.ask("GET").status == 503
    assert read_end(caller.sock) is End.EOF
    assert port.log.of(Decided)[-1].reason is Reason.DRAINING
    assert len(provider.requests) == 1


def test_a_task_that_is_cancelled_within_an_exchange_cuts_it(start: Start) -> None:
    provider = start(Provider())
    stream = LiveStream()
    provider.otherwise(stream)
    port = start(broker(provider))
    caller = call(port)
    caller.send("GET")
    read_head(caller.sock)

    def cancel() -> None:
        (task,) = port.intake._running
        task.cancel()

    port.call(cancel)
    assert read_until_end(caller.sock) == (b"", End.RESET)
    assert stream.await_hangup() is End.RESET
    eventually(lambda: port.tasks() == 1)


@pytest.mark.parametrize("relay", ["loop", "epoll"])
def test_the_host_of_a_rule_is_never_tunnelled(start: Start, relay: str) -> None:
    provider = start(Provider())
    port = start(broker(provider, allow=["127.0.0.1"], relay=relay))
    caller = call(port, "inside")
    caller.sock.sendall(hello())  # no HTTP in there: a tunnel would have carried it
    assert read_until_end(caller.sock)[1] is not End.OPEN
    assert provider.connections_accepted == 0
    assert [event.door for event in port.log.of(Decided)][:1] == [Door.CONNECT_INJECT]


def test_requests_have_ids_of_their_own(open_port: Open) -> None:
    port = open_port()
    answers = [port.ask(connect_request("evil.test:443")).json()["request_id"] for _ in range(5)]
    assert len(set(answers)) == 5
    assert answers == [event.request_id for event in port.log.wait_for(Decided, 5)]
