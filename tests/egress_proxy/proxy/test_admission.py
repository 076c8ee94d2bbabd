"""The steps of a CONNECT that wait for nothing."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest

from egress_proxy.core.access import Access, Client, Door, InjectRoute
from egress_proxy.core.decision import Allow, Deny, OptIn, Reason
from egress_proxy.core.grants import Limits
from egress_proxy.core.host import parse_authority, parse_host
from egress_proxy.core.policy import Policy
from egress_proxy.core.request import parse_head
from egress_proxy.proxy.admission import (
    METHOD_SHOWN,
    allowed_event,
    connect_access,
    give_room_back,
    refused_event,
    take_room,
)
from egress_proxy.proxy.client_tokens import ClientTokens
from egress_proxy.proxy.peer import Peer
from egress_proxy.vault.secret import Secret
from tests.support.data_port import TUNNELS, DataPort, entry

TARGET = parse_authority("ok.example:443")
ACCESS = Access(Client(), TARGET, Door.TUNNEL)
PEER = Peer("peer")


@pytest.fixture
def port() -> Iterator[DataPort]:
    with DataPort(allow=["ok.example"]) as started:
        yield started


def head(authority: str, *lines: str) -> bytes:
    return "\r\n".join((f"CONNECT {authority} HTTP/1.1", *lines, "", "")).encode()


def test_a_malformed_target_is_told_before_a_missing_token(port: DataPort) -> None:
    port.parts.in_force.clients = ClientTokens(Secret("tok"))
    for authority, reason in (("ok.example", Reason.MALFORMED), ("ok.example:443", Reason.CLIENT_UNKNOWN)):
        answer = connect_access(parse_head(head(authority)), PEER, port.parts)
        assert isinstance(answer, Deny)
        assert answer.reason is reason


def test_the_client_is_the_one_whose_token_came(port: DataPort) -> None:
    port.parts.in_force.clients = ClientTokens(own={"build": Secret("tok")})
    credential = base64.b64encode(b"me:tok").decode()
    access = connect_access(
        parse_head(head("ok.example:443", f"Proxy-Authorization: Basic {credential}")), PEER, port.parts
    )
    assert access == Access(Client("build", "me"), TARGET, Door.TUNNEL)


def test_what_comes_in_by_a_sandboxs_listener_is_its_whatever_token_it_shows(port: DataPort) -> None:
    port.parts.in_force.clients = ClientTokens(own={"build": Secret("tok")})
    sandbox = Client("sandbox-1", "npm test")
    for line in ((), ("Proxy-Authorization: Bearer tok",), ("Proxy-Authorization: Bearer wrong",)):
        access = connect_access(parse_head(head("ok.example:443", *line)), Peer("p", sandbox), port.parts)
        assert access == Access(sandbox, TARGET, Door.TUNNEL)


def test_a_refusal_that_came_before_the_target_was_read_still_names_the_sandbox() -> None:
    sandbox = Client("sandbox-1")
    refused = refused_event("r-1", Peer("p", sandbox), Deny(Reason.MALFORMED), None, None)
    assert (refused.client, refused.peer) == (sandbox, "p")


def test_the_plain_port_of_an_inject_rule_is_its_own_door(port: DataPort) -> None:
    port.parts.in_force.policy = Policy(routes=(InjectRoute("provider", parse_host("ok.example")),))
    for authority, door in (("ok.example:80", Door.CONNECT_INJECT), ("ok.example:443", Door.TUNNEL)):
        access = connect_access(parse_head(head(authority)), PEER, port.parts)
        assert isinstance(access, Access)
        assert access.door is door


def test_a_use_is_taken_once_and_can_be_given_back(port: DataPort) -> None:
    grant = port.grants.add(entry("new.example"), Limits(max_uses=1))
    allow = Allow(TARGET, "new.example", OptIn.NONE, grant.id)
    assert take_room(ACCESS, allow, port.parts) is None
    spent = take_room(ACCESS, allow, port.parts)
    assert spent is not None
    assert spent.reason is Reason.GRANT_EXHAUSTED
    give_room_back(ACCESS, allow, port.parts)
    assert take_room(ACCESS, allow, port.parts) is None


def test_without_room_no_use_is_taken() -> None:
    full = TUNNELS.__class__(0, 0, 1, 1, 1)
    with DataPort(tunnels=full) as port:
        grant = port.grants.add(entry("new.example"), Limits(max_uses=1))
        refused = take_room(ACCESS, Allow(TARGET, "new.example", OptIn.NONE, grant.id), port.parts)
        assert refused is not None
        assert refused.reason is Reason.TOO_MANY_TUNNELS
        assert port.grants.snapshot().by_id[grant.id].uses_left == 1


def test_whatever_is_refused_leaves_its_place(port: DataPort) -> None:
    grant = port.grants.add(entry("new.example"), Limits(max_uses=1))
    allow = Allow(TARGET, "new.example", OptIn.NONE, grant.id)
    for _ in range(3):
        take_room(ACCESS, allow, port.parts)
    assert len(port.table.places) == 1
    give_room_back(ACCESS, allow, port.parts)
    assert len(port.table.places) == 0


def test_events_say_what_was_decided_and_cut_a_long_method() -> None:
    allowed = allowed_event("r-1", PEER, ACCESS, Allow(TARGET, "ok.example", OptIn.NONE, "g-1"), "192.0.2.1")
    assert (allowed.verdict, allowed.status, allowed.grant) == ("allow", 200, "g-1")
    long = parse_head(b"A" * 400 + b" / HTTP/1.1\r\n\r\n")
    refused = refused_event("r-1", PEER, Deny(Reason.METHOD_NOT_ALLOWED), long, None)
    assert (refused.verdict, refused.status, refused.method) == ("deny", 405, "A" * METHOD_SHOWN)
