"""Addresses: nothing special is dialled without an opt-in, wherever it hides, judged by a second opinion.

Tables of cases are in ../egress_proxy/core/test_address.py and test_dial_policy.py.
"""

import ipaddress

from hypothesis import given
from hypothesis import strategies as st

from egress_proxy.core.address import Address, AddressClass, classify, embedded_ipv4
from egress_proxy.core.decision import Allow, Deny, OptIn
from egress_proxy.core.dial_policy import judge_addresses
from egress_proxy.core.host import Target, parse_authority
from tests.properties.oracle import hidden_ipv4
from tests.properties.strategies import addresses, ipv6

ANSWERS = st.lists(addresses, min_size=1, max_size=5)
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
        assert classify(address) is classify(hidden[0])


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
