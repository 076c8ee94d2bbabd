"""Rules of core/policy.py for inject rules: who may use one, for what, and that it opens nothing else.

Everything else that decide() weighs is in test_policy.py.
"""

import dataclasses
from ipaddress import ip_address

import pytest

from egress_proxy.core.access import Client, Door, InjectRoute, Scheme
from egress_proxy.core.decision import Allow, Decision, Deny, OptIn, Reason
from egress_proxy.core.dial_policy import judge_addresses
from egress_proxy.core.grants import Grants
from egress_proxy.core.host import Target, parse_authority, parse_host
from egress_proxy.core.policy import OnMiss, Policy, decide, rule_index
from tests.egress_proxy.core.entries import (
    NOW,
    allow_entry,
    allowed,
    granted,
    policy,
    refused,
    request,
    tunnel,
)

API = InjectRoute("provider", parse_host("api.example"))


def dialled(route: InjectRoute = API, opt_in: OptIn = OptIn.NONE) -> Allow:
    """Yes, at the route's upstream: its host and the port that is not the client's to name."""
    assert str(route.upstream) == f"{route.host}:443"
    return Allow(route.upstream, f"inject:{route.name}", opt_in, route=route)


INJECT_DOORS = [Door.ABSOLUTE, Door.CONNECT_INJECT, Door.BASE_URL]


@pytest.mark.parametrize("door", INJECT_DOORS)
def test_a_route_is_dialled_at_its_upstream(door: Door) -> None:
    answer = decide(request("api.example:80", door=door), policy(routes=(API,)), Grants(), NOW)
    assert answer == dialled()


def test_door_two_opens_with_a_connect_and_judges_each_request_inside() -> None:
    route = dataclasses.replace(API, methods=frozenset({"GET"}), paths=(b"/v1",))
    rules = policy(routes=(route,))
    opening = request("api.example:80", "CONNECT", b"", Door.CONNECT_INJECT)
    assert decide(opening, rules, Grants(), NOW) == dialled(route)
    inside = request("api.example:80", "POST", b"/v1/x", Door.CONNECT_INJECT)
    assert decide(inside, rules, Grants(), NOW) == refused(
        "api.example:80", Reason.INJECT_METHOD, "inject:provider"
    )


@pytest.mark.parametrize("door", [Door.ABSOLUTE, Door.BASE_URL])
def test_a_connect_is_no_request_at_the_other_doors(door: Door) -> None:
    access = request("api.example:80", "CONNECT", b"", door)
    answer = decide(access, policy(routes=(API,)), Grants(), NOW)
    assert answer == refused("api.example:80", Reason.INJECT_METHOD, "inject:provider")


@pytest.mark.parametrize("door", INJECT_DOORS)
def test_trace_would_echo_the_credential(door: Door) -> None:
    answer = decide(request("api.example:80", "TRACE", door=door), policy(routes=(API,)), Grants(), NOW)
    assert answer == refused("api.example:80", Reason.INJECT_METHOD, "inject:provider")


@pytest.mark.parametrize("door", INJECT_DOORS)
def test_a_route_admits_its_methods_and_paths(door: Door) -> None:
    route = dataclasses.replace(API, methods=frozenset({"GET"}), paths=(b"/v1",))
    rules = policy(routes=(route,))

    def answer(method: str, path: bytes) -> Decision:
        return decide(request("api.example:80", method, path, door), rules, Grants(), NOW)

    assert answer("GET", b"/v1/x?y") == dialled(route)
    assert answer("POST", b"/v1/x") == refused("api.example:80", Reason.INJECT_METHOD, "inject:provider")
    for path in (b"/", b"/v10", b"/v1/../admin", b"/v1/%2e%2e/admin"):
        assert answer("GET", path) == refused("api.example:80", Reason.INJECT_PATH, "inject:provider")


@pytest.mark.parametrize("door", INJECT_DOORS)
@pytest.mark.parametrize(
    "authority", ["api.example:443", "api.example:8080", "evil.test:80", "a.api.example:80"]
)
def test_an_inject_door_leads_to_its_route_and_nowhere_else(door: Door, authority: str) -> None:
    rules = policy(allow=("**.api.example:*", "evil.test:*"), routes=(API,), on_miss=OnMiss.HOLD)
    answer = decide(request(authority, door=door), rules, granted("evil.test:*"), NOW)
    assert answer == refused(authority, Reason.INJECT_OTHER_TARGET)


def test_a_route_admits_no_tunnel() -> None:
    rules = policy(routes=(API,))
    assert tunnel("api.example:80", rules) == refused("api.example:80", Reason.INJECT_OTHER_TARGET)
    assert tunnel("api.example:443", rules) == refused("api.example:443", Reason.NOT_LISTED)


def test_a_routes_plain_address_is_never_tunnelled_even_where_it_is_listed() -> None:
    other = dataclasses.replace(API, client="build")
    for route in (API, other):
        rules = policy(allow=("api.example:*",), routes=(route,))
        assert tunnel("api.example:80", rules, granted("api.example:80")) == refused(
            "api.example:80", Reason.INJECT_OTHER_TARGET
        )
        assert tunnel("api.example:443", rules) == allowed("api.example:443", "api.example:*")


def test_an_allow_entry_implies_no_credential() -> None:
    answer = decide(request("ok.example:80"), policy(allow=("ok.example",)), granted("ok.example"), NOW)
    assert answer == refused("ok.example:80", Reason.INJECT_OTHER_TARGET)


@pytest.mark.parametrize("door", INJECT_DOORS)
@pytest.mark.parametrize("deny", ["api.example", "api.example:80", "api.example:443", "**.api.example"])
def test_a_deny_entry_for_either_port_of_a_route_wins(door: Door, deny: str) -> None:
    answer = decide(request("api.example:80", door=door), policy(deny=(deny,), routes=(API,)), Grants(), NOW)
    assert isinstance(answer, Deny)
    assert answer.reason is Reason.DENIED_BY_RULE


def test_a_deny_entry_for_another_port_leaves_the_route_alone() -> None:
    answer = decide(request("api.example:80"), policy(deny=("api.example:25",), routes=(API,)), Grants(), NOW)
    assert isinstance(answer, Allow)


def test_a_route_of_one_client_is_closed_to_others() -> None:
    rules = policy(routes=(dataclasses.replace(API, client="build"),))
    assert isinstance(decide(request("api.example:80", client="build"), rules, Grants(), NOW), Allow)
    for client in ("anonymous", "guest"):
        answer = decide(request("api.example:80", client=client), rules, Grants(), NOW)
        assert answer == refused("api.example:80", Reason.INJECT_OTHER_TARGET)


def test_each_client_gets_its_own_route_to_one_host() -> None:
    routes = tuple(dataclasses.replace(API, name=name, client=name) for name in ("one", "two"))
    for route in routes:
        answer = decide(request("api.example:80", client=route.name), policy(routes=routes), Grants(), NOW)
        assert answer == dialled(route)


@pytest.mark.parametrize(
    ("host", "scheme", "opt_in"),
    [("api.example", Scheme.HTTPS, OptIn.NONE), ("localhost", Scheme.HTTPS, OptIn.LOOPBACK),
     ("10.0.0.5", Scheme.HTTPS, OptIn.LITERAL), ("api.example", Scheme.HTTP, OptIn.ONLY_LOOPBACK),
     ("localhost", Scheme.HTTP, OptIn.ONLY_LOOPBACK),
     ("127.0.0.1", Scheme.HTTP, OptIn.ONLY_LOOPBACK),
     ("10.0.0.5", Scheme.HTTP, OptIn.ONLY_LOOPBACK)],
)  # fmt: skip
def test_a_route_opts_in_to_what_its_host_names(host: str, scheme: Scheme, opt_in: OptIn) -> None:
    route = InjectRoute("one", parse_host(host), scheme=scheme)
    answer = decide(request(f"{host}:80"), policy(routes=(route,)), Grants(), NOW)
    assert answer == dialled(route, opt_in)


def test_a_credential_goes_in_clear_to_loopback_alone_even_where_the_address_is_written_out() -> None:
    for host in ("10.0.0.5", "8.8.8.8"):
        rules = policy(
            allow=(allow_entry(host, private=True),),
            routes=(InjectRoute("one", parse_host(host), upstream_port=80, scheme=Scheme.HTTP),),
        )
        answer = decide(request(f"{host}:80"), rules, Grants(), NOW)
        assert isinstance(answer, Allow)
        judged = judge_addresses(answer, [ip_address(host)], (), ())
        assert isinstance(judged, Deny)
        assert judged.reason is Reason.ADDRESS_NOT_PUBLIC


@pytest.mark.parametrize("entry", ["api.example:443", "api.example:80", "api.example", "**.api.example"])
def test_a_private_entry_for_a_routes_host_lets_it_lie_inside(entry: str) -> None:
    rules = policy(allow=(allow_entry(entry, private=True),), routes=(API,))
    answer = decide(request("api.example:80"), rules, Grants(), NOW)
    assert answer == dialled(opt_in=OptIn.INWARD)


@pytest.mark.parametrize("entry", ["api.example:8443", "other.example", "*.api.example"])
def test_another_private_entry_does_not(entry: str) -> None:
    rules = policy(allow=(allow_entry(entry, private=True), "api.example"), routes=(API,))
    answer = decide(request("api.example:80"), rules, Grants(), NOW)
    assert answer == dialled()


def test_a_private_entry_of_another_client_does_not_let_a_route_lie_inside() -> None:
    rules = policy(allow=(allow_entry("api.example", private=True, client="build"),), routes=(API,))
    outside = decide(request("api.example:80"), rules, Grants(), NOW)
    inside = decide(request("api.example:80", client="build"), rules, Grants(), NOW)
    assert outside == dialled()
    assert inside == dialled(opt_in=OptIn.INWARD)


@pytest.mark.parametrize("door", [Door.ABSOLUTE, Door.BASE_URL, Door.CONNECT_INJECT])
def test_metadata_is_refused_at_the_inject_doors(door: Door) -> None:
    for host in ("metadata.google.internal", "169.254.169.254"):
        rules = policy(routes=(InjectRoute("cloud", parse_host(host), upstream_port=80, scheme=Scheme.HTTP),))
        answer = decide(request(f"{host}:80", door=door), rules, Grants(), NOW)
        assert answer == refused(f"{host}:80", Reason.METADATA)


def test_thousands_of_inject_rules_cost_a_connect_no_more_than_three(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each CONNECT compared its target with every rule, twice: 4 ms for 3,000."""
    routes = tuple(InjectRoute(f"r{number}", parse_host(f"h{number}.example")) for number in range(3_000))
    many = Policy(rule_index([]), routes=routes)
    asked: list[InjectRoute] = []
    serves = InjectRoute.serves

    def counted(route: InjectRoute, target: Target, client: Client) -> bool:
        asked.append(route)
        return serves(route, target, client)

    monkeypatch.setattr(InjectRoute, "serves", counted)
    assert not many.is_route(parse_authority("h2999.example:443"))
    assert many.is_route(parse_authority("h2999.example:80"))
    assert many.route_for(parse_authority("h2999.example:80"), Client()) is routes[2999]
    assert many.route_for(parse_authority("other.example:80"), Client()) is None
    assert asked == [routes[2999]]


def test_of_several_rules_for_one_target_the_first_that_serves_the_client_is_taken() -> None:
    host = parse_host("a.example")
    routes = tuple(InjectRoute(name, host, client=name) for name in ("build", "ci"))
    three = Policy(routes=(*routes, InjectRoute("all", host)))
    found = [
        three.route_for(parse_authority("a.example:80"), Client(name)) for name in ("build", "ci", "other")
    ]
    assert [route.name if route else None for route in found] == ["build", "ci", "all"]
