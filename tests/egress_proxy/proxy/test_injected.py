"""An injected request without its bytes: whose it is, whether it may be, and how its end is told.

With the parts of a real data port; no request is sent. The order of the checks for clients is in
test_connection.py, the text of requests in test_intake.py. See egress_proxy/proxy/injected.py.
"""

from __future__ import annotations

import pytest

from egress_proxy.core.access import Access, Client, Door
from egress_proxy.core.decision import Deny, Reason
from egress_proxy.core.events import EndCause, Ended, Event, Faulted
from egress_proxy.core.host import parse_authority
from egress_proxy.core.request import RequestHead, parse_head
from egress_proxy.core.seams import AuditUnavailable
from egress_proxy.proxy.client_tokens import ClientTokens
from egress_proxy.proxy.forward import ClientAfter, Forwarded
from egress_proxy.proxy.injected import Admitted, Inside, Refused, admit, record_end
from egress_proxy.proxy.peer import Peer
from egress_proxy.vault.secret import Secret
from tests.conftest import Start
from tests.egress_proxy.proxy.brokers import RULE, SECRET, rule
from tests.support.data_port import DataPort, credential

HERE = parse_authority("127.0.0.1:80")
CLIENT = Client("agent-1", "label")
PEER = Peer("test")


def inside(client: Client) -> Inside:
    return Inside("r-1", Access(client, HERE, Door.CONNECT_INJECT), 0.0)


INSIDE = inside(Client())


def port_with(**route_options: object) -> DataPort:
    route = rule(8000, **route_options)  # type: ignore[arg-type]
    return DataPort(routes=[route], credentials={route.name: credential(SECRET)}, expect_faults=True)


@pytest.fixture
def port(start: Start) -> DataPort:
    return start(port_with())


def head(target: str = "http://127.0.0.1/v1?a=b", method: str = "GET", *lines: str) -> RequestHead:
    return parse_head("\r\n".join((f"{method} {target} HTTP/1.1", *lines, "", "")).encode())


def admitted(port: DataPort, asked: RequestHead, inside: Inside | None = None, peer: Peer = PEER) -> Admitted:
    outcome = port.call(lambda: admit("r-1", asked, inside, peer, port.parts))
    assert isinstance(outcome, Admitted), outcome
    return outcome


def refused(port: DataPort, asked: RequestHead, inside: Inside | None = None, peer: Peer = PEER) -> Refused:
    outcome = port.call(lambda: admit("r-1", asked, inside, peer, port.parts))
    assert isinstance(outcome, Refused), outcome
    return outcome


# Whether it may be.


def test_what_a_rule_lets_pass_is_ordered_as_it_was_asked(port: DataPort) -> None:
    asked = head("http://127.0.0.1/v1?a=b", "POST", "Content-Length: 7")
    one = admitted(port, asked)
    assert one.access == Access(Client(), HERE, Door.ABSOLUTE, "POST", b"/v1?a=b")
    order = one.order
    assert (order.request_id, order.path, order.body_bytes) == ("r-1", b"/v1?a=b", 7)
    assert order.head is asked
    assert order.route is port.setup.routes[0]
    assert (order.allow.rule, order.allow.target) == (RULE, order.route.upstream)


def test_inside_a_connect_the_path_alone_names_what_is_asked(port: DataPort) -> None:
    one = admitted(port, head("/v1"), INSIDE)
    assert one.access == Access(Client(), HERE, Door.CONNECT_INJECT, "GET", b"/v1")


@pytest.mark.parametrize(
    ("asked", "inside", "reason"),
    [
        (head("/v1"), None, Reason.MALFORMED),
        (head("http://127.0.0.1/../x"), None, Reason.MALFORMED),
        (head("http://127.0.0.1/", "TRACE"), None, Reason.METHOD_NOT_ALLOWED),
        (head("127.0.0.1:80", "CONNECT"), INSIDE, Reason.METHOD_NOT_ALLOWED),
        (head("http://127.0.0.1/", "POST", "Transfer-Encoding: chunked"), None, Reason.CHUNKED_BODY),
        (head("http://other.test/"), INSIDE, Reason.INJECT_OTHER_TARGET),
    ],
    ids=["origin form", "dots", "TRACE", "CONNECT", "chunked", "another host inside"],
)
def test_what_is_no_request_for_a_rule_is_refused_before_anybody_is_asked(
    port: DataPort, asked: RequestHead, inside: Inside | None, reason: Reason
) -> None:
    outcome = refused(port, asked, inside)
    assert outcome.deny.reason is reason
    assert outcome.access is None


def test_a_host_without_a_rule_is_refused_with_who_asked_for_it(port: DataPort) -> None:
    outcome = refused(port, head("http://other.test/"))
    assert outcome.access is not None
    assert str(outcome.access.target) == "other.test:80"
    assert outcome.deny.reason is Reason.INJECT_OTHER_TARGET


def test_an_allow_entry_is_no_inject_rule(start: Start) -> None:
    """It allows tunnels: a plain request would go out without one, and be read on the way."""
    port = start(DataPort(allow=["other.test:80"], routes=[rule(8000)]))
    outcome = refused(port, head("http://other.test/"))
    assert outcome.deny.reason is Reason.INJECT_OTHER_TARGET


def test_methods_and_paths_of_a_rule_are_judged(start: Start) -> None:
    port = start(port_with(methods=frozenset({"GET"}), paths=(b"/v1",)))
    admitted(port, head("http://127.0.0.1/v1/x"))
    for asked, reason in (
        (head("http://127.0.0.1/v2"), Reason.INJECT_PATH),
        (head("http://127.0.0.1/v1", "POST"), Reason.INJECT_METHOD),
    ):
        outcome = refused(port, asked)
        assert (outcome.deny.reason, outcome.deny.rule) == (reason, RULE)
        assert outcome.access is not None


# Whose it is.


def with_tokens(start: Start) -> DataPort:
    route = rule(8000)
    tokens = ClientTokens(own={CLIENT.id: Secret("token-1")})
    return start(DataPort(routes=[route], credentials={route.name: credential(SECRET)}, clients=tokens))


def test_outside_a_connect_each_request_shows_a_token(start: Start) -> None:
    port = with_tokens(start)
    shown = head("http://127.0.0.1/", "GET", "Proxy-Authorization: Bearer token-1")
    assert admitted(port, shown).access.client == Client("agent-1")
    assert refused(port, head()) == Refused(Deny(Reason.CLIENT_UNKNOWN))


def test_what_comes_by_a_sandboxs_listener_is_the_sandboxs(port: DataPort) -> None:
    peer = Peer("test", Client("sandbox-1"))
    assert admitted(port, head(), peer=peer).access.client == Client("sandbox-1")


def test_inside_a_connect_it_is_whoever_sent_that_as_long_as_there_is_such_a_client(start: Start) -> None:
    port = with_tokens(start)
    assert admitted(port, head("/v1"), inside(CLIENT)).access.client == CLIENT
    other = head("/v1", "GET", "Proxy-Authorization: Bearer token-1")  # a token inside changes nothing
    assert refused(port, other, inside(Client("agent-2"))) == Refused(Deny(Reason.CLIENT_UNKNOWN))


# How its end is told.

DONE = Forwarded(ClientAfter.KEPT, EndCause.DONE, 200, bytes_out=7, bytes_in=11)


def test_an_end_is_told_with_what_was_carried(port: DataPort) -> None:
    one = admitted(port, head())
    port.call(lambda: record_end(one, DONE, 1.23456, port.parts))
    assert port.log.only(Ended) == Ended(
        request_id="r-1",
        client=Client(),
        target=one.order.allow.target,
        door=Door.ABSOLUTE,
        cause=EndCause.DONE,
        bytes_out=7,
        bytes_in=11,
        duration_s=1.235,
        status=200,
    )


def test_an_end_that_was_a_refusal_is_told_with_its_reason_and_what_the_client_saw(port: DataPort) -> None:
    one = admitted(port, head())
    deny = Deny(Reason.UPSTREAM_TIMEOUT, HERE, RULE, "it was silent")
    failed = Forwarded(ClientAfter.CLOSE, EndCause.FAULT, 200, deny=deny)
    port.call(lambda: record_end(one, failed, 0.1, port.parts))
    ended = port.log.only(Ended)
    assert (ended.cause, ended.status, ended.reason) == (EndCause.FAULT, 504, Reason.UPSTREAM_TIMEOUT)
    assert ended.detail == "it was silent"


def test_a_fault_is_told_before_the_end_that_it_brought_and_quotes_nothing(port: DataPort) -> None:
    one = admitted(port, head())
    failed = Forwarded(ClientAfter.GONE, EndCause.FAULT, fault=RuntimeError("canary"))
    port.call(lambda: record_end(one, failed, 0.1, port.parts))
    kinds = [type(event) for event in port.log.all]
    assert kinds == [Faulted, Ended]
    assert port.log.only(Faulted).request_id == "r-1"
    assert "canary" not in repr(port.log.all)


def test_an_end_that_cannot_be_written_down_is_no_fault(port: DataPort) -> None:
    def refuse(event: Event) -> None:
        raise AuditUnavailable

    one = admitted(port, head())
    port.log.refusing = refuse
    port.call(lambda: record_end(one, DONE, 0.1, port.parts))
    assert port.log.all == []
