"""Addresses: nothing special is dialled without an opt-in, wherever it hides, judged by a second opinion.

Tables of cases are in ../egress_proxy/core/test_address.py and test_dial_policy.py.
"""

import ipaddress
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from egress_proxy.core.access import Access, Client, Door
from egress_proxy.core.address import Address, AddressClass, classify, embedded_ipv4
from egress_proxy.core.decision import Allow, Deny, OptIn, Reason
from egress_proxy.core.dial_policy import judge_addresses
from egress_proxy.core.grants import Grants
from egress_proxy.core.host import Name, Target, parse_authority, parse_host
from egress_proxy.core.policy import Policy, decide, rule_index
from egress_proxy.core.rules import Ports, Rule, Scope
from tests.properties.oracle import hidden_ipv4
from tests.properties.strategies import addresses, inner_ipv4, ipv6

ANSWERS = st.lists(addresses, min_size=1, max_size=5)
# Each way in which an IPv4 address is written into an IPv6 one; RFC 6052 2.4 shows the last three.
HIDERS: dict[str, Callable[[int], int]] = {
    "mapped": lambda v4: 0xFFFF << 32 | v4,
    "compatible": lambda v4: v4,
    "translated": lambda v4: 0xFFFF << 48 | v4,
    "NAT64": lambda v4: 0x64FF9B << 96 | v4,
    "local NAT64": lambda v4: 0x64FF9B0001 << 80 | v4,
    "6to4": lambda v4: 0x2002 << 112 | v4 << 80,
    "Teredo": lambda v4: 0x20010000 << 96 | v4 ^ 0xFFFFFFFF,
    "local NAT64, 48 bits": lambda v4: 0x64FF9B0001 << 80 | v4 >> 16 << 64 | (v4 & 0xFFFF) << 40,
    "local NAT64, 56 bits": lambda v4: 0x64FF9B0001 << 80 | 7 << 72 | v4 >> 24 << 64 | (v4 & 0xFFFFFF) << 32,
    "local NAT64, 64 bits": lambda v4: 0x64FF9B0001 << 80 | 7 << 64 | v4 << 24,
}
hidings = st.sampled_from(list(HIDERS.values()))
OWN = [parse_authority("127.0.0.1:443"), parse_authority("[::]:8443")]


def ordinary(address: Address) -> bool:
    """What the standard library thinks public. It says so too often, never too rarely for what we dial."""
    return address.is_global and not (address.is_multicast or address.is_unspecified or address.is_loopback)


@given(addresses)
def test_what_is_public_is_public_to_the_standard_library_inside_and_outside(address: Address) -> None:
    if classify(address) is AddressClass.PUBLIC:
        hidden = embedded_ipv4(address)
        assert ordinary(address if hidden is None else hidden[0])


@given(ipv6)
def test_hidden_ipv4_is_found_where_the_standard_library_finds_it(address: ipaddress.IPv6Address) -> None:
    hidden = embedded_ipv4(address)
    assert (None if hidden is None else str(hidden[0])) == hidden_ipv4(f"[{address}]")


@given(addresses)
def test_hiding_an_address_makes_it_no_more_public(address: Address) -> None:
    hidden = embedded_ipv4(address)
    if hidden is not None and classify(hidden[0]) is not AddressClass.PUBLIC:
        assert classify(address) in (classify(hidden[0]), AddressClass.METADATA)


@given(inner_ipv4, hidings)
def test_what_is_denied_as_a_literal_is_denied_under_every_name_and_in_every_embedding(
    inner: ipaddress.IPv4Address, hide: Callable[[int], int]
) -> None:
    deny = rule_index([Rule(Scope.EXACT, inner, Ports.ANY)])
    outside = ipaddress.IPv6Address(hide(int(inner)))
    if int(outside) <= 1:
        return  # `::` and `::1` are addresses of their own
    named = Allow(parse_authority("ok.example:443"), "ok.example", OptIn.INWARD)
    assert isinstance(judge_addresses(named, [outside], (), (), deny), Deny)
    literal = Target(parse_host(f"[{outside}]"), 443)
    policy = Policy(allow=rule_index([Rule(Scope.EXACT, literal.host, Ports.ANY)]), deny=deny)
    judged = decide(Access(Client("anonymous"), literal, Door.TUNNEL), policy, Grants(), 0)
    assert isinstance(judged, Deny)
    assert judged.reason in (Reason.DENIED_BY_RULE, Reason.METADATA)
    # A public address is refused for the entry alone: without it the same answer is dialled.
    if judge_addresses(named, [outside], (), ()) == (outside,):
        refused = judge_addresses(named, [outside], (), (), deny)
        assert isinstance(refused, Deny)
        assert refused.reason is Reason.DENIED_BY_RULE


@given(inner_ipv4, hidings)
def test_metadata_and_our_own_listeners_are_found_in_every_embedding(
    inner: ipaddress.IPv4Address, hide: Callable[[int], int]
) -> None:
    outside = ipaddress.IPv6Address(hide(int(inner)))
    if int(outside) <= 1:
        return
    own = [Target(inner, 443)]
    for allow in (
        Allow(Target(Name("ok.example"), 443), "ok.example", OptIn.INWARD),
        Allow(Target(parse_host(f"[{outside}]"), 443), "literal", OptIn.LITERAL),
    ):
        assert isinstance(judge_addresses(allow, [outside], (), own), Deny)
    if classify(inner) is AddressClass.METADATA:
        assert classify(outside) is AddressClass.METADATA


@given(ANSWERS, st.sampled_from(OptIn), st.sampled_from([443, 8443]))
def test_what_may_be_dialled_comes_out_of_the_answers_in_their_order(
    answers: list[Address], opt_in: OptIn, port: int
) -> None:
    allow = Allow(parse_authority(f"ok.example:{port}"), "ok.example:*", opt_in)
    judged = judge_addresses(allow, answers, (), OWN)
    if isinstance(judged, Deny):
        assert (judged.target, judged.rule) == (allow.target, allow.rule)
        assert all(isinstance(judge_addresses(allow, [address], (), OWN), Deny) for address in answers)
    else:
        rest = iter(answers)
        assert judged
        assert all(address in rest for address in judged)


@given(ANSWERS, st.sampled_from(OptIn))
def test_without_an_opt_in_only_public_addresses_are_dialled(answers: list[Address], opt_in: OptIn) -> None:
    judged = judge_addresses(Allow(parse_authority("ok.example:25"), "x", opt_in), answers, (), ())
    dialled = [] if isinstance(judged, Deny) else [classify(address) for address in judged]
    wanted = {
        OptIn.NONE: {"public"},
        OptIn.LITERAL: set(),
        OptIn.LOOPBACK: {"public", "loopback"},
        OptIn.INWARD: {
            "public",
            "loopback",
            "private",
            "carrier_nat",
            "link_local",
            "documentation",
            "benchmarking",
        },
        OptIn.ONLY_LOOPBACK: {"loopback"},
    }
    assert {kind.value for kind in dialled} <= wanted[opt_in]


@given(addresses, addresses)
def test_a_literal_opens_itself_alone(literal: Address, other: Address) -> None:
    allow = Allow(Target(literal, 25), "x", OptIn.LITERAL)
    judged = judge_addresses(allow, [literal, other], (), ())
    assert isinstance(judged, Deny) or set(judged) <= {
        literal,
        *([other] if mapped(other) == literal else []),
    }


def mapped(address: Address) -> object:
    return getattr(address, "ipv4_mapped", None)
