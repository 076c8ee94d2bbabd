"""What was allowed a while ago is asked for again: who may stay, who must go, and why.

Real parts that are never started: nothing here waits or opens a socket. Tunnels that are closed because of
this are in test_connection.py.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from ipaddress import ip_address

import pytest

from egress_proxy.core.access import Access, Client, Door, InjectRoute, Scheme
from egress_proxy.core.decision import Allow, Ask, Deny, Reason
from egress_proxy.core.events import Event
from egress_proxy.core.grants import Limits
from egress_proxy.core.host import Name, Target, parse_authority, parse_host
from egress_proxy.core.policy import OnMiss, decide, rule_index
from egress_proxy.core.request import parse_head
from egress_proxy.core.seams import Answer
from egress_proxy.proxy.client_tokens import ClientTokens
from egress_proxy.proxy.forward import Forwarder
from egress_proxy.proxy.grant_store import MemoryGrantStore
from egress_proxy.proxy.order import Order
from egress_proxy.proxy.outbound import Outbound
from egress_proxy.proxy.parts import InForce, Parts
from egress_proxy.proxy.peer import Peer
from egress_proxy.proxy.readiness import LoopReadiness
from egress_proxy.proxy.rejudge import no_longer_allowed, order_is_void, tunnel_is_unwanted
from egress_proxy.proxy.tunnel import TunnelFacts
from egress_proxy.proxy.tunnel_table import TunnelTable
from egress_proxy.proxy.upstream_pool import UpstreamPool
from egress_proxy.vault.secret import Secret
from tests.egress_proxy.core.entries import deny_entry
from tests.support.data_port import CONNECTIONS, FORWARDING, TUNNELS, Clock, Setup, entry

TARGET = parse_authority("ok.example:443")
ACCESS = Access(Client(), TARGET, Door.TUNNEL)
PUBLIC = ip_address("93.184.215.14")
INWARD = ip_address("10.0.0.1")


@dataclass
class Bench:
    """Parts in force under ``setup``; a test changes them between the first judgement and the next."""

    setup: Setup
    clock: Clock = field(default_factory=Clock)
    own: list[Target] = field(default_factory=list)

    def __post_init__(self) -> None:
        loop = asyncio.new_event_loop()
        in_force = InForce(self.setup.policy(), self.setup.clients, {})
        self.grants = MemoryGrantStore(self.clock, self.clock)
        outbound = Outbound(_no_lookup, lambda: self.own, 1.0)
        table = TunnelTable(loop, LoopReadiness(loop), TUNNELS, _no_log, self.grants)
        pool = UpstreamPool(outbound, ssl.create_default_context, loop.time)
        forwarder = Forwarder(pool, dict, FORWARDING, None)
        self.parts = Parts(
            in_force, self.grants, outbound, table, forwarder, _no_log, self.clock, CONNECTIONS
        )
        loop.close()

    def decide(self) -> Allow | Ask | Deny:
        return decide(ACCESS, self.parts.in_force.policy, self.grants.snapshot(), self.clock())

    def allowed(self) -> Allow:
        decision = self.decide()
        assert isinstance(decision, Allow)
        return decision

    def use(self, **limits: float) -> Allow:
        """Make a grant for the target and take one use of it, as a CONNECT does."""
        grant = self.grants.add(entry("ok.example"), Limits(**limits))  # type: ignore[arg-type]
        allow = self.allowed()
        assert allow.grant_id == grant.id
        assert self.grants.spend_use(grant.id)
        return allow

    def swap(self, setup: Setup) -> None:
        self.parts.in_force.policy = setup.policy()

    def reason(self, allow: Allow) -> Reason | None:
        deny = no_longer_allowed(ACCESS, allow, self.parts)
        return None if deny is None else deny.reason

    def is_unwanted(self, allow: Allow, address: str = str(PUBLIC)) -> bool:
        facts = TunnelFacts("r-1", Client(), TARGET, ip_address(address), allow, 0.0)
        return tunnel_is_unwanted(facts, self.parts)


async def _no_lookup(name: Name) -> Answer:
    raise AssertionError(f"{name} was looked up")


def _no_log(*events: Event) -> None:
    raise AssertionError(f"{events} were written down")


def test_what_is_still_listed_is_still_allowed() -> None:
    bench = Bench(Setup(allow=["ok.example"]))
    allow = bench.allowed()
    assert bench.reason(allow) is None
    assert not bench.is_unwanted(allow)


def test_a_new_deny_entry_for_the_completed_name_ends_the_tunnel() -> None:
    bench = Bench(Setup(allow=["ok.example"]))
    allow = replace(bench.allowed(), completed=Name("ok.example.svc.test"))
    for denied, is_unwanted in (("other.svc.test", False), ("ok.example.svc.test", True)):
        rules = [deny_entry(denied)]
        outbound = replace(bench.parts.outbound, denied=partial(rule_index, rules))
        bench.parts = replace(bench.parts, outbound=outbound)
        assert bench.is_unwanted(allow) is is_unwanted


def test_what_was_taken_off_the_list_is_not() -> None:
    bench = Bench(Setup(allow=["ok.example"]))
    allow = bench.allowed()
    bench.swap(Setup())
    assert bench.reason(allow) is Reason.NOT_LISTED
    assert bench.is_unwanted(allow)


def test_what_another_entry_still_allows_may_stay() -> None:
    bench = Bench(Setup(allow=["ok.example"]))
    allow = bench.allowed()
    bench.swap(Setup(allow=["**.ok.example"]))
    assert bench.reason(allow) is None
    assert not bench.is_unwanted(allow)


def test_a_new_deny_entry_ends_what_is_listed_or_granted() -> None:
    for setup in (Setup(allow=["ok.example"]), Setup()):
        bench = Bench(setup)
        allow = bench.allowed() if setup.allow else bench.use(max_uses=1)
        bench.swap(Setup(allow=setup.allow, deny=["ok.example"]))
        assert bench.reason(allow) is Reason.DENIED_BY_RULE
        assert bench.is_unwanted(allow)


def test_a_question_that_nobody_has_answered_allows_nothing() -> None:
    bench = Bench(Setup(allow=["ok.example"]))
    allow = bench.allowed()
    bench.swap(Setup(on_miss=OnMiss.HOLD))
    assert bench.reason(allow) is Reason.NOT_LISTED


# What rests on a grant.


@pytest.mark.parametrize("on_miss", OnMiss)
def test_the_use_that_spent_a_grant_may_go_on(on_miss: OnMiss) -> None:
    bench = Bench(Setup(on_miss=on_miss))
    allow = bench.use(max_uses=1)
    assert not isinstance(bench.decide(), Allow)  # for the next one it is over
    assert bench.reason(allow) is None
    assert not bench.is_unwanted(allow)


def test_a_revoked_grant_allows_nothing_any_more() -> None:
    bench = Bench(Setup())
    allow = bench.use(max_uses=1)
    bench.grants.revoke(allow.grant_id or "")
    assert bench.reason(allow) is Reason.NOT_LISTED
    assert bench.is_unwanted(allow)


@pytest.mark.parametrize("on_miss", OnMiss)
def test_a_grant_whose_time_is_over_allows_nothing_any_more(on_miss: OnMiss) -> None:
    bench = Bench(Setup(on_miss=on_miss))
    allow = bench.use(ttl_s=60)
    bench.clock.at += 59
    assert bench.reason(allow) is None
    bench.clock.at += 1
    assert bench.reason(allow) is Reason.NOT_LISTED


@pytest.mark.parametrize("on_miss", OnMiss)
def test_a_grant_whose_bytes_are_spent_allows_nothing_any_more(on_miss: OnMiss) -> None:
    bench = Bench(Setup(on_miss=on_miss))
    allow = bench.use(max_bytes_out=5)
    assert bench.grants.spend_bytes(allow.grant_id or "", 5)
    assert bench.reason(allow) is Reason.NOT_LISTED


def test_a_grant_does_not_keep_alive_what_rests_on_another_one() -> None:
    bench = Bench(Setup())
    allow = bench.use(max_uses=1)
    other = bench.grants.add(entry("other.example"), Limits())
    bench.grants.revoke(allow.grant_id or "")
    assert bench.grants.snapshot().by_id.keys() == {other.id}
    assert bench.reason(allow) is Reason.NOT_LISTED


def test_another_grant_for_the_same_target_does_not_count_since_it_was_not_spent() -> None:
    bench = Bench(Setup())
    allow = bench.use(max_uses=1)
    bench.grants.add(entry("ok.example"), Limits(max_uses=5))
    bench.grants.revoke(allow.grant_id or "")
    assert bench.allowed().grant_id != allow.grant_id
    assert bench.reason(allow) is Reason.NOT_LISTED


def test_a_grant_does_not_keep_alive_what_rested_on_the_list() -> None:
    bench = Bench(Setup(allow=["ok.example"]))
    allow = bench.allowed()
    bench.grants.add(entry("ok.example"), Limits())
    bench.swap(Setup())
    assert bench.reason(allow) is Reason.NOT_LISTED


# Clients, and addresses: what only an open tunnel has.


def test_a_tunnel_of_a_client_that_is_no_longer_known_is_unwanted() -> None:
    bench = Bench(Setup(allow=["ok.example"]))
    allow = bench.allowed()
    assert not bench.is_unwanted(allow)
    bench.parts.in_force.clients = ClientTokens(own={"build": Secret("token")})
    assert bench.reason(allow) is None  # the target is listed, only the client is gone
    assert bench.is_unwanted(allow)


def test_a_tunnel_to_an_address_that_no_entry_opts_in_to_any_more_is_unwanted() -> None:
    bench = Bench(Setup(private=["ok.example"]))
    allow = bench.allowed()
    assert not bench.is_unwanted(allow, str(INWARD))
    bench.swap(Setup(allow=["ok.example"]))
    assert bench.reason(allow) is None  # the name is listed, only the address is not
    assert bench.is_unwanted(allow, str(INWARD))
    assert not bench.is_unwanted(allow, str(PUBLIC))


def test_a_tunnel_to_a_listener_of_our_own_is_unwanted() -> None:
    bench = Bench(Setup(private=["ok.example"]))
    allow = bench.allowed()
    assert not bench.is_unwanted(allow, "127.0.0.1")
    bench.own.append(parse_authority("127.0.0.1:443"))
    assert bench.is_unwanted(allow, "127.0.0.1")


def test_a_tunnel_that_rests_on_a_spent_grant_keeps_the_address_it_was_given() -> None:
    bench = Bench(Setup())
    allow = bench.use(max_uses=1)
    assert not bench.is_unwanted(allow, str(PUBLIC))
    assert bench.is_unwanted(allow, str(INWARD))


# Injected requests that waited for their upstream.

ROUTE = InjectRoute("provider", parse_host("api.example"), 80, 443, Scheme.HTTPS)
ASKED = Access(Client(), parse_authority("api.example:80"), Door.ABSOLUTE, "GET", b"/v1/x")
REQUEST = parse_head(b"GET http://api.example/v1/x HTTP/1.1\r\n\r\n")
WAY_BACK = {
    "as it was": ([replace(ROUTE)], [], None),
    "gone": ([], [], Reason.INJECT_OTHER_TARGET),
    "to another port": ([replace(ROUTE, upstream_port=444)], [], Reason.INJECT_OTHER_TARGET),
    "to another host": (
        [replace(ROUTE, host=parse_host("other.example"))],
        [],
        Reason.INJECT_OTHER_TARGET,
    ),
    "by another name": ([replace(ROUTE, name="other")], [], Reason.INJECT_OTHER_TARGET),
    "for another client": ([replace(ROUTE, client="build")], [], Reason.INJECT_OTHER_TARGET),
    "for another method": ([replace(ROUTE, methods=frozenset({"POST"}))], [], Reason.INJECT_METHOD),
    "for another path": ([replace(ROUTE, paths=(b"/v2",))], [], Reason.INJECT_PATH),
    "for this path alone": ([replace(ROUTE, paths=(b"/v1",))], [], Reason.INJECT_OTHER_TARGET),
    "denied": ([ROUTE], ["api.example"], Reason.DENIED_BY_RULE),
    "behind another": ([replace(ROUTE, name="first"), ROUTE], [], Reason.INJECT_OTHER_TARGET),
    "before another": ([ROUTE, replace(ROUTE, name="last")], [], None),
}


def admitted(bench: Bench) -> Order:
    allow = decide(ASKED, bench.parts.in_force.policy, bench.grants.snapshot(), bench.clock())
    assert isinstance(allow, Allow)
    return Order("r-1", REQUEST, b"/v1/x", 0, ROUTE, allow)


def why_void(
    bench: Bench, order: Order, access: Access = ASKED, sandbox: Client | None = None
) -> Reason | None:
    void = order_is_void(access, order, Peer("test", sandbox), bench.parts)
    return None if void is None else void.reason


@pytest.mark.parametrize(("routes", "deny", "reason"), WAY_BACK.values(), ids=WAY_BACK)
def test_an_injected_request_goes_out_by_the_very_rule_that_admitted_it_or_not_at_all(
    routes: Sequence[InjectRoute], deny: Sequence[str], reason: Reason | None
) -> None:
    bench = Bench(Setup(routes=[ROUTE]))
    order = admitted(bench)
    assert why_void(bench, order) is None
    bench.swap(Setup(routes=routes, deny=deny))
    assert why_void(bench, order) is reason


def test_an_injected_request_of_a_client_that_is_no_longer_known_does_not_go_out() -> None:
    tokens = ClientTokens(own={"build": Secret("token")})
    bench = Bench(Setup(routes=[ROUTE], clients=tokens))
    order, access = admitted(bench), replace(ASKED, client=Client("build"))
    assert why_void(bench, order, access) is None
    bench.parts.in_force.clients = ClientTokens(own={"other": Secret("token")})
    assert why_void(bench, order, access) is Reason.CLIENT_UNKNOWN


def test_an_injected_request_of_a_sandbox_needs_no_token_where_it_came_in_by_its_own_door() -> None:
    tokens = ClientTokens(own={"build": Secret("token")})
    bench = Bench(Setup(routes=[ROUTE], clients=tokens))
    box = Client("sandbox-1")
    order, access = admitted(bench), replace(ASKED, client=box)
    assert why_void(bench, order, access, sandbox=box) is None
    assert why_void(bench, order, access, sandbox=Client("sandbox-2")) is Reason.CLIENT_UNKNOWN
