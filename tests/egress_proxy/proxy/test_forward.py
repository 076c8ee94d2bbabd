"""Injected requests: what reaches the upstream, with whose credential, and what never leaves.

Through a running data port before a scripted provider, by both doors where they could differ. How bytes
flow is in test_exchange.py, what guards the credential in test_forward_credential.py.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from egress_proxy.core.access import Client, Door
from egress_proxy.core.decision import Reason
from egress_proxy.core.events import Decided, EndCause, Ended
from egress_proxy.core.host import parse_authority
from egress_proxy.proxy.client_tokens import ClientTokens
from egress_proxy.proxy.recorder import Recorder
from egress_proxy.vault.secret import Secret
from tests.conftest import Start, StartProvider
from tests.egress_proxy.proxy.brokers import (
    API_HOST,
    DOORS,
    RULE,
    SECRET,
    broker,
    call,
    ended,
    rule,
    secured_broker,
)
from tests.support.answers import (
    abort,
    bodiless,
    fixed,
    held,
    play,
    redirect,
    reply_with,
)
from tests.support.byte_stream import End, close_with_reset, read_end, read_until, read_until_end
from tests.support.certificates import CertificateAuthority
from tests.support.data_port import DataPort, credential
from tests.support.dns_stub import DnsStub
from tests.support.exchange import Exchange
from tests.support.http import Response, read_response, request_bytes
from tests.support.provider import Provider

CANARY = SECRET.encode()
VALUE = b"Bearer " + CANARY
OK = fixed(b"ok")

by_both_doors = pytest.mark.parametrize("door", DOORS)


@pytest.fixture
def provider(start: Start) -> Provider:
    made = start(Provider())
    made.otherwise(OK)
    return made


@pytest.fixture
def port(start: Start, provider: Provider) -> DataPort:
    return start(broker(provider))


def denied(port: DataPort) -> Decided:
    """The last decision, which must be a refusal."""
    last = port.log.wait_for(Decided)[-1]
    assert last.verdict == "deny"
    return last


def error(response: Response) -> tuple[int, str | None]:
    return response.status, response.value("X-Proxy-Error")


# What goes out.


def test_a_request_goes_to_the_upstream_with_the_credential_and_the_upstreams_name(
    start: Start, start_provider: StartProvider, ca: CertificateAuthority, dns: DnsStub
) -> None:
    provider = start_provider(API_HOST)
    provider.otherwise(OK)
    port = start(secured_broker(provider.port, ca, dns))
    for door in DOORS:
        caller = call(port, door, API_HOST)
        response = caller.ask("POST", "/v1/x?y=z", [("X-Own", "1"), ("Content-Type", "a/b")], b"body")
        assert (response.status, response.body) == (200, b"ok")
    lines = (
        "POST /v1/x?y=z HTTP/1.1",
        f"Host: {API_HOST}:{provider.port}",
        "X-Own: 1",
        "Content-Type: a/b",
        "Content-Length: 4",
        "Accept-Encoding: identity",
        f"Authorization: Bearer {SECRET}",
    )
    for request in provider.requests:
        assert request.raw_head.decode() == "\r\n".join((*lines, "", ""))
        assert request.body == b"body"
    assert provider.connections[0].server_name == API_HOST
    assert provider.connections_accepted == 1


PATHS = ["/a%2Fb/%41//d;p=1?x=%20+y&z=%2B&u=/..", "/", "/?q=1", "/" + "x" * 6000, "/~!$&'()*,;=:@\"|^`{}"]


@by_both_doors
@pytest.mark.parametrize("path", PATHS, ids=[path[:20] for path in PATHS])
def test_path_and_query_go_out_byte_for_byte(
    port: DataPort, provider: Provider, door: str, path: str
) -> None:
    assert call(port, door).ask("GET", path).status == 200
    assert provider.only_request.target == path


def test_an_empty_path_becomes_a_slash(port: DataPort, provider: Provider) -> None:
    assert port.ask(request_bytes("GET", "http://127.0.0.1?q=1")).status == 200
    assert provider.only_request.target == "/?q=1"


@by_both_doors
def test_credentials_of_the_client_are_taken_out_in_any_spelling_and_one_is_set(
    port: DataPort, provider: Provider, door: str
) -> None:
    own = [
        ("authorization", "Bearer A-own"),
        ("AUTHORIZATION", "Bearer B-own"),
        ("x-API-key", "C-own"),
        ("X_Api_Key", "D-own"),
        ("Api-Key", "E-own"),
        ("X-Goog-Api-Key", "F-own"),
        ("Cookie", "sid=G-own"),
        ("Proxy-Authorization", "Basic eDp5LW93bg=="),
        ("Proxy-Connection", "keep-alive"),
        ("X-Kept", "kept"),
    ]
    assert call(port, door).ask("GET", headers=own).status == 200
    request = provider.only_request
    assert request.value("Authorization") == f"Bearer {SECRET}"
    assert request.raw_head.count(CANARY) == 1
    assert b"own" not in request.raw_head
    assert b"eDp5" not in request.raw_head
    assert request.value("X-Kept") == "kept"


@by_both_doors
def test_headers_for_the_next_hop_and_those_that_connection_names_are_taken_out(
    port: DataPort, provider: Provider, door: str
) -> None:
    hop = [
        ("Connection", "X-Named, keep-alive, authorization"),
        ("X-Named", "1"),
        ("Keep-Alive", "timeout=5"),
        ("TE", "trailers"),
        ("Trailer", "X-Late"),
        ("Upgrade", "h2c"),
        ("X-Kept", "kept"),
    ]
    assert call(port, door).ask("GET", headers=hop).status == 200
    names = [name.lower() for name, _ in provider.only_request.headers]
    assert names == ["host", "x-kept", "accept-encoding", "authorization"]


@pytest.mark.parametrize(
    ("offered", "passed"),
    [
        (None, "identity"),
        ("gzip, br, zstd", "identity, gzip"),
        ("br", "identity"),
        ("*", "identity, gzip"),
        ("gzip;q=0", "identity"),
    ],
)
def test_only_codings_that_can_be_looked_into_are_offered(
    port: DataPort, provider: Provider, offered: str | None, passed: str
) -> None:
    headers = [] if offered is None else [("Accept-Encoding", offered)]
    assert call(port).ask("GET", headers=headers).status == 200
    assert provider.only_request.value("Accept-Encoding") == passed


def test_a_rule_may_set_another_header_in_another_form(start: Start, provider: Provider) -> None:
    held_by = {"provider": credential(SECRET, "X-Api-Key", "key={secret};")}
    port = start(broker(provider, credentials=held_by))
    assert call(port).ask("GET", headers=[("Authorization", "own")]).status == 200
    assert provider.only_request.value("X-Api-Key") == f"key={SECRET};"
    assert provider.only_request.value("Authorization") is None


def test_a_rule_without_a_secret_forwards_and_still_takes_out_what_the_client_sent(
    start: Start, provider: Provider
) -> None:
    port = start(broker(provider, credentials={}))
    response = call(port).ask("GET", headers=[("Authorization", "own")])
    assert response.status == 200
    assert provider.only_request.value("Authorization") is None


def test_cookies_of_an_answer_reach_the_client_and_are_never_played_back(
    port: DataPort, provider: Provider
) -> None:
    provider.otherwise(fixed(b"", headers=[("Set-Cookie", "sid=1"), ("Set-Cookie", "b=2")]))
    for _ in range(2):
        response = call(port).ask("GET")
        assert response.head.values("Set-Cookie") == ["sid=1", "b=2"]
    assert [request.value("Cookie") for request in provider.requests] == [None, None]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_returned_and_not_followed(port: DataPort, provider: Provider, status: int) -> None:
    provider.otherwise(redirect("http://127.0.0.1/elsewhere", status))
    response = call(port).ask("GET")
    assert (response.status, response.value("Location")) == (status, "http://127.0.0.1/elsewhere")
    assert len(provider.requests) == 1


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "M-SEARCH"])
def test_any_method_passes_that_could_not_leave_the_rule(
    port: DataPort, provider: Provider, method: str
) -> None:
    provider.otherwise(bodiless(204))
    assert call(port).ask(method).status == 204
    assert provider.only_request.method == method


# What the log says.


@by_both_doors
def test_a_request_is_recorded_before_it_goes_out_and_when_it_is_over(
    port: DataPort, provider: Provider, door: str
) -> None:
    caller = call(port, door)
    caller.ask("POST", "/secret-path?token=x", body=b"body")
    over = ended(port)
    decided = port.log.of(Decided)[-1]
    way = Door.ABSOLUTE if door == "absolute" else Door.CONNECT_INJECT
    assert (decided.method, decided.door, decided.verdict, decided.rule) == ("POST", way, "allow", RULE)
    assert (decided.target, decided.status) == (parse_authority("127.0.0.1:80"), None)
    assert decided.request_id == over.request_id
    assert over == Ended(
        request_id=over.request_id,
        client=Client(),
        target=parse_authority(f"127.0.0.1:{provider.port}"),
        door=way,
        cause=EndCause.DONE,
        bytes_out=4,
        bytes_in=2,
        duration_s=over.duration_s,
        status=200,
    )
    assert "secret-path" not in str(port.log.all)


# Who may ask for what.


@by_both_doors
@pytest.mark.parametrize(
    "target",
    ["https://127.0.0.1/", "http://127.0.0.1:8080/", "http://evil.test/", "http://user:pw@127.0.0.1/"],
)
def test_another_target_is_refused(port: DataPort, provider: Provider, door: str, target: str) -> None:
    caller = call(port, door)
    caller.sock.sendall(request_bytes("GET", target))
    assert error(read_response(caller.sock)) == (403, "blocked-by-policy")
    assert denied(port).reason is Reason.INJECT_OTHER_TARGET
    assert read_end(caller.sock) is End.EOF
    assert provider.connections_accepted == 0


MALFORMED = [
    request_bytes("OPTIONS", "*", [("Host", "127.0.0.1")]),
    request_bytes("GET", "ftp://127.0.0.1/"),
    request_bytes("GET", "http://127.0.0.1/a/../b"),
    request_bytes("GET", "http://127.0.0.1/%2e%2e/b"),
    request_bytes("GET", "http://127.0.0.1/", [("Host", "evil.test")]),
    request_bytes("GET", "http://127.0.0.1/", [("Host", "127.0.0.1"), ("Host", "127.0.0.1")]),
    request_bytes("GET", "http://127.0.0.1/\xe4"),
    b"GET http://127.0.0.1/ HTTP/1.1\r\nX : 1\r\n\r\n",
    b"GET http://127.0.0.1/ HTTP/1.1\r\n X: 1\r\n\r\n",
    b"GET http://127.0.0.1/ HTTP/1.1\r\nX: 1\r\n folded\r\n\r\n",
    b"GET http://127.0.0.1/ HTTP/1.1\r\nX: a\rTransfer-Encoding: chunked\r\n\r\n",
    b"GET http://127.0.0.1/ HTTP/1.1\r\nX: a\x00b\r\n\r\n",
    b"GET http://127.0.0.1/ HTTP/1.1\nX: 1\n\n",
    b"GET http://127.0.0.1/ HTTP/1.1\r\nno colon\r\n\r\n",
]


@by_both_doors
@pytest.mark.parametrize("request_head", MALFORMED, ids=[str(octets[:60]) for octets in MALFORMED])
def test_a_malformed_request_is_a_400_and_nothing_goes_out(
    port: DataPort, provider: Provider, door: str, request_head: bytes
) -> None:
    caller = call(port, door)
    caller.sock.sendall(request_head)
    response = read_response(caller.sock)
    assert error(response) == (400, "bad-request")
    assert denied(port).reason in (Reason.MALFORMED, Reason.NOT_HTTP)
    assert read_end(caller.sock) is End.EOF
    assert provider.connections_accepted == 0


def test_origin_form_needs_a_connect_before_it(port: DataPort, provider: Provider) -> None:
    assert error(port.ask(request_bytes("GET", "/", [("Host", "127.0.0.1")]))) == (400, "bad-request")
    assert denied(port).reason is Reason.MALFORMED
    assert call(port, "inside").ask("GET").status == 200


@pytest.mark.parametrize(
    ("door", "method"), [("absolute", "TRACE"), ("inside", "TRACE"), ("inside", "CONNECT")]
)
def test_a_method_that_would_hand_out_the_credential_is_refused(
    port: DataPort, provider: Provider, door: str, method: str
) -> None:
    caller = call(port, door)
    caller.sock.sendall(request_bytes(method, "http://127.0.0.1/", [("Host", "127.0.0.1")]))
    assert error(read_response(caller.sock)) == (405, "method-not-allowed")
    assert denied(port).reason is Reason.METHOD_NOT_ALLOWED
    assert provider.connections_accepted == 0


@by_both_doors
def test_methods_and_paths_can_be_limited(start: Start, provider: Provider, door: str) -> None:
    limited = rule(provider.port, methods=frozenset({"GET"}), paths=(b"/v1",))
    port = start(broker(provider, route=limited))
    for method, path, reason in (
        ("POST", "/v1/x", Reason.INJECT_METHOD),
        ("GET", "/v2", Reason.INJECT_PATH),
        ("GET", "/v10", Reason.INJECT_PATH),
    ):
        refused = call(port, door).ask(method, path)
        assert error(refused) == (403, "blocked-by-method-policy")
        assert denied(port).reason is reason
    assert provider.connections_accepted == 0
    assert call(port, door).ask("GET", "/v1/x?y").status == 200


FRAMINGS = [
    ("Transfer-Encoding: chunked", 501),
    ("Transfer-Encoding: Chunked", 400),
    ("Transfer-Encoding: chunked,", 400),
    ("Transfer-Encoding: gzip, chunked", 400),
    ("Transfer-Encoding: identity", 400),
    ("Transfer-Encoding: xchunked", 400),
    ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", 400),
    ("Transfer-Encoding: chunked\r\nContent-Length: 3", 400),
    ("Content-Length: 5\r\nContent-Length: 6", 400),
    ("Content-Length: +5", 400),
    ("Content-Length: 5,5", 400),
    ("Content-Length: 0x5", 400),
    ("Content-Length: 5 5", 400),
    ("Content-Length : 5", 400),
    ("X: 1\r\n folded", 400),
    ("X: a\rTransfer-Encoding: chunked", 400),
]
SMUGGLED = b"GET /admin HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@by_both_doors
@pytest.mark.parametrize(("framing", "status"), FRAMINGS, ids=[line for line, _ in FRAMINGS])
def test_no_framing_makes_one_request_of_two(
    port: DataPort, provider: Provider, door: str, framing: str, status: int
) -> None:
    caller = call(port, door)
    line = f"POST {caller.origin}/ HTTP/1.1\r\nHost: 127.0.0.1\r\n{framing}\r\n\r\n"
    caller.sock.sendall(line.encode() + SMUGGLED)
    response = read_response(caller.sock)
    assert response.status == status
    assert response.value("Connection") == "close"
    expected = Reason.CHUNKED_BODY if status == 501 else Reason.MALFORMED
    assert denied(port).reason is expected
    assert read_until_end(caller.sock) == (b"", End.EOF)
    assert provider.connections_accepted == 0


@by_both_doors
@pytest.mark.parametrize("expect", [True, False])
def test_a_chunked_upload_is_refused_at_once_with_what_to_do(
    port: DataPort, provider: Provider, door: str, expect: bool
) -> None:
    caller = call(port, door)
    headers = [("Transfer-Encoding", "chunked")] + [("Expect", "100-continue")] * expect
    caller.send("POST", headers=headers)
    response = read_response(caller.sock)  # nothing of the body has been sent
    assert error(response) == (501, "chunked-not-supported")
    assert "Content-Length" in response.json()["hint"]
    assert denied(port).reason is Reason.CHUNKED_BODY


@by_both_doors
def test_a_websocket_is_refused_and_nothing_goes_out(port: DataPort, provider: Provider, door: str) -> None:
    upgrade = [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Key", "eA==")]
    assert error(call(port, door).ask("GET", "/ws", upgrade)) == (501, "upgrade-not-supported")
    assert denied(port).reason is Reason.UPGRADE
    assert provider.connections_accepted == 0


@by_both_doors
def test_another_expectation_is_refused(port: DataPort, provider: Provider, door: str) -> None:
    assert error(call(port, door).ask("GET", headers=[("Expect", "x")])) == (417, "expectation-failed")
    assert denied(port).reason is Reason.EXPECTATION
    assert provider.connections_accepted == 0


def test_without_a_rule_only_connect_is_taken(start: Start) -> None:
    port = start(DataPort(allow=["ok.example"]))
    for method, target in (("GET", "http://ok.example/"), ("POST", "/"), ("OPTIONS", "*"), ("TRACE", "/")):
        response = port.ask(request_bytes(method, target))
        assert error(response) == (405, "method-not-allowed")
        assert response.value("Allow") == "CONNECT"
        assert denied(port).reason is Reason.METHOD_NOT_ALLOWED


def test_a_rule_of_one_client_serves_no_other(start: Start, provider: Provider) -> None:
    tokens = ClientTokens(own={"build": Secret("build-token"), "test": Secret("test-token")})
    port = start(broker(provider, route=rule(provider.port, client="build"), clients=tokens))
    for token, expected in (("build-token", 200), ("test-token", 403)):
        response = call(port).ask("GET", headers=[("Proxy-Authorization", f"Bearer {token}")])
        assert response.status == expected
    assert denied(port).reason is Reason.INJECT_OTHER_TARGET
    assert error(call(port).ask("GET")) == (407, "client-authentication-required")
    assert denied(port).reason is Reason.CLIENT_UNKNOWN
    assert len(provider.requests) == 1
    assert b"token" not in provider.only_request.raw_head


def test_a_deny_entry_holds_for_the_upstream_of_a_rule(start: Start, provider: Provider) -> None:
    port = start(broker(provider, deny=[f"127.0.0.1:{provider.port}"]))
    assert error(call(port).ask("GET")) == (403, "blocked-by-denylist")
    assert denied(port).reason is Reason.DENIED_BY_RULE
    assert provider.connections_accepted == 0


# Kept connections.


@by_both_doors
def test_a_client_may_send_one_request_after_another(port: DataPort, provider: Provider, door: str) -> None:
    caller = call(port, door)
    for number in range(5):
        assert caller.ask("POST", f"/{number}", body=b"x" * number).status == 200
    assert [request.target for request in provider.requests] == [f"/{number}" for number in range(5)]
    assert provider.connections_accepted == 1


@by_both_doors
def test_pipelined_requests_are_answered_in_order(port: DataPort, provider: Provider, door: str) -> None:
    provider.otherwise(reply_with(lambda request: fixed(request.target.encode() + request.body)))
    caller = call(port, door)
    caller.sock.sendall(
        b"".join(
            request_bytes("POST", f"{caller.origin}/{number}", [("Host", "127.0.0.1")], b"b" * number)
            for number in range(1, 5)
        )
    )
    bodies = [read_response(caller.sock).body for _ in range(4)]
    assert bodies == [b"/%d" % number + b"b" * number for number in range(1, 5)]
    assert [request.number for request in provider.requests] == [0, 1, 2, 3]


@by_both_doors
def test_each_request_of_a_kept_connection_is_judged_by_itself(
    port: DataPort, provider: Provider, door: str
) -> None:
    caller = call(port, door)
    assert caller.ask("GET", "/1").status == 200
    caller.sock.sendall(request_bytes("GET", "http://evil.test/2", [("Host", "evil.test")]))
    caller.send("GET", "/3")
    assert read_response(caller.sock).status == 403
    assert denied(port).reason is Reason.INJECT_OTHER_TARGET
    assert read_until_end(caller.sock) == (b"", End.EOF)
    assert [request.target for request in provider.requests] == ["/1"]


def test_what_follows_a_body_is_a_request_of_its_own(port: DataPort, provider: Provider) -> None:
    caller = call(port)
    caller.sock.sendall(
        request_bytes("POST", "http://127.0.0.1/", body=b"abc") + request_bytes("GET", "http://evil.test/x")
    )
    assert read_response(caller.sock).status == 200
    assert read_response(caller.sock).status == 403
    assert denied(port).reason is Reason.INJECT_OTHER_TARGET
    assert provider.only_request.body == b"abc"


def test_a_policy_that_changed_holds_from_the_next_request_on(port: DataPort, provider: Provider) -> None:
    caller = call(port, "inside")
    assert caller.ask("GET").status == 200
    port.setup.deny = ["127.0.0.1"]
    port.parts.in_force.policy = port.setup.policy()
    assert error(caller.ask("GET")) == (403, "blocked-by-denylist")
    assert denied(port).reason is Reason.DENIED_BY_RULE
    assert len(provider.requests) == 1


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "DELETE"])
def test_a_request_on_a_dead_kept_connection_is_repeated_when_that_is_safe(
    port: DataPort, provider: Provider, method: str
) -> None:
    provider.otherwise(OK, play(abort), bodiless(204))
    caller = call(port)
    assert caller.ask("GET").status == 200
    assert caller.ask(method).status == 204
    assert [request.connection for request in provider.requests] == [0, 0, 1]
    assert [over.status for over in port.log.wait_for(Ended, 2)] == [200, 204]


def test_a_request_is_repeated_on_a_new_connection_and_not_on_another_that_may_be_dead(
    port: DataPort, provider: Provider
) -> None:
    gate = threading.Event()
    provider.on("/held", held(gate, OK))
    callers = [call(port), call(port)]
    for caller in callers:
        caller.send("GET", "/held")
    provider.wait_for_requests(2)
    gate.set()
    assert [read_response(caller.sock).status for caller in callers] == [200, 200]

    def die(exchange: Exchange) -> None:
        if exchange.connection.index < 2:
            exchange.abort()
        else:
            exchange.send(OK)

    provider.otherwise(die)
    assert callers[0].ask("GET").status == 200
    assert provider.connections_accepted == 3


@pytest.mark.parametrize("last", ["HTTP/1.0", "Connection: close"])
def test_a_repeated_request_of_a_client_that_will_close_keeps_the_upstream(
    port: DataPort, provider: Provider, last: str
) -> None:
    provider.otherwise(OK, play(abort), OK)
    assert call(port).ask("GET").status == 200
    version = "HTTP/1.0" if last == "HTTP/1.0" else "HTTP/1.1"
    headers = [] if last == "HTTP/1.0" else [("Connection", "close")]
    answer, end = port.converse(request_bytes("GET", "http://127.0.0.1/", headers, version=version))
    assert (answer.startswith(b"HTTP/1.1 200"), end) == (True, End.EOF)
    assert call(port).ask("GET").status == 200
    assert [request.connection for request in provider.requests] == [0, 0, 1, 1]


@pytest.mark.parametrize(("method", "body"), [("POST", b""), ("PATCH", b""), ("PUT", b"x"), ("POST", b"x")])
def test_a_request_that_could_do_something_twice_is_never_sent_twice(
    port: DataPort, provider: Provider, method: str, body: bytes
) -> None:
    provider.otherwise(OK, play(abort), OK)
    caller = call(port)
    assert caller.ask("GET").status == 200
    assert error(caller.ask(method, body=body)) == (502, "upstream-protocol")
    assert port.log.wait_for(Ended, 2)[-1].reason is Reason.UPSTREAM_PROTOCOL
    assert [request.method for request in provider.requests] == ["GET", method]


def test_a_request_is_not_repeated_once_the_upstream_has_said_a_word(
    port: DataPort, provider: Provider
) -> None:
    provider.otherwise(OK, play(b"HTTP/1.1 2", abort), OK)
    caller = call(port)
    assert caller.ask("GET").status == 200
    assert error(caller.ask("GET")) == (502, "upstream-protocol")
    assert port.log.wait_for(Ended, 2)[-1].reason is Reason.UPSTREAM_PROTOCOL
    assert len(provider.requests) == 2


def test_a_request_on_a_fresh_connection_is_not_repeated(port: DataPort, provider: Provider) -> None:
    provider.otherwise(play(abort), OK)
    assert error(call(port).ask("GET")) == (502, "upstream-protocol")
    assert ended(port).reason is Reason.UPSTREAM_PROTOCOL
    assert len(provider.requests) == 1


class LastAnswer:
    """An upstream that answers one request, takes a second one in, and is gone for good."""

    def __enter__(self) -> LastAnswer:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, name="support-once", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()

    def _serve(self) -> None:
        sock, _ = self._listener.accept()
        read_until(sock, b"\r\n\r\n")
        sock.sendall(OK)
        read_until(sock, b"\r\n\r\n")
        self._listener.close()
        close_with_reset(sock)


def test_a_repeated_request_may_find_that_there_is_no_upstream_any_more(start: Start) -> None:
    route = rule(start(LastAnswer()).port)
    port = start(DataPort(routes=[route], credentials={route.name: credential(SECRET)}))
    caller = call(port)
    assert caller.ask("GET").status == 200
    assert error(caller.ask("GET")) == (502, "upstream-unreachable")
    assert port.log.wait_for(Ended, 2)[-1].reason is Reason.UPSTREAM_REFUSED


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_kept_connection_that_the_upstream_has_closed_is_noticed_for_every_method(
    port: DataPort, provider: Provider, method: str
) -> None:
    caller = call(port)
    assert caller.ask("GET").status == 200
    provider.wait_for_idle()
    provider.close_idle()
    assert caller.ask(method).status == 200
    assert provider.connections_accepted == 2
    assert len(provider.requests) == 2


# What is recorded besides.


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    made = Recorder(tmp_path / "requests.jsonl", lambda: 1_800_000_000.0)
    yield made
    made.close()


def recorded(folder: Path) -> list[tuple[str, str]]:
    """Method and path of each line."""
    lines = map(json.loads, (folder / "requests.jsonl").read_text().splitlines())
    return [(line["method"], line["path"]) for line in lines]


@pytest.mark.parametrize("way", ["in a task", "without one"])
def test_each_attempt_that_went_out_is_recorded_when_a_request_is_repeated(
    start: Start, provider: Provider, tmp_path: Path, recorder: Recorder, way: str
) -> None:
    port = start(broker(provider, recorder=recorder))
    caller = call(port)
    assert caller.ask("GET", "/1").status == 200
    provider.otherwise(play(abort), OK)
    asking = call(port) if way == "in a task" else caller
    assert asking.ask("DELETE", "/2").status == 200
    port.log.wait_for(Ended, 2)
    assert [request.target for request in provider.requests] == ["/1", "/2", "/2"]
    assert recorded(tmp_path) == [("GET", "/1"), ("DELETE", "/2"), ("DELETE", "/2")]


@pytest.mark.parametrize("way", ["in a task", "without one"])
def test_an_attempt_that_went_out_is_recorded_though_it_cannot_be_repeated(
    start: Start, tmp_path: Path, recorder: Recorder, way: str
) -> None:
    route = rule(start(LastAnswer()).port)
    port = start(DataPort(routes=[route], credentials={route.name: credential(SECRET)}, recorder=recorder))
    caller = call(port)
    assert caller.ask("GET", "/1").status == 200
    asking = call(port) if way == "in a task" else caller
    assert error(asking.ask("DELETE", "/2")) == (502, "upstream-unreachable")
    port.log.wait_for(Ended, 2)
    assert recorded(tmp_path) == [("GET", "/1"), ("DELETE", "/2")]


def test_bodies_are_recorded_as_they_were_sent(start: Start, provider: Provider, tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    recorder = Recorder(path, lambda: 1_800_000_000.0)
    port = start(broker(provider, recorder=recorder))
    caller = call(port)
    assert caller.ask("POST", "/v1?x=1", [("Cookie", "c=1")], b'{"a": 1}').status == 200
    assert caller.ask("GET").status == 200
    port.stop()
    recorder.close()
    first, second = map(json.loads, path.read_text().splitlines())
    assert (first["method"], first["host"], first["path"]) == ("POST", "127.0.0.1", "/v1?x=1")
    assert (first["body"], first["body_bytes"], first["truncated"]) == ('{"a": 1}', 8, False)
    assert (second["method"], second["body_bytes"]) == ("GET", 0)
    assert SECRET not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
